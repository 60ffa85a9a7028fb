use super::*;
use proptest::prelude::*;

/// Fields of every wire type, with numbers that no version has yet.
const UNKNOWN: &[&[u8]] = &[
    &[0xa0, 0x06, 0x96, 0x01],                   // 100: varint 150
    &[0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8],       // 100: fixed64
    &[0xa5, 0x06, 1, 2, 3, 4],                   // 100: fixed32
    &[0xa2, 0x06, 0x83, 0x00, b'a', b'b', b'c'], // 100: bytes, with a longer length
    &[0xa3, 0x06, 0x18, 0x05, 0xab, 0x06, 0xac, 0x06, 0xa4, 0x06], // 100: a group in a group
    &[0xf8, 0xff, 0xff, 0xff, 0x0f, 0x00],       // the highest number
];

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[track_caller]
fn edits(message: &[&[u8]], list: &str, expect: &[&[u8]]) {
    assert_eq!(with_cpus(&message.concat(), 3, &cpus(list)), Ok(expect.concat()), "{message:?}");
}

#[test]
fn cpus_are_replaced_and_all_else_stays() {
    let (name, memory): (&[u8], &[u8]) = (&[0x0a, 1, b'c'], &[0x22, 2, 0x0a, 0]);
    let packed: &[u8] = &[0x1a, 2, 8, 9];
    let other: &[u8] = &[0x1a, 3, 1, 0xac, 0x02];
    for unknown in UNKNOWN {
        edits(
            &[unknown, name, packed, unknown, memory],
            "1,300",
            &[unknown, name, other, unknown, memory],
        );
        edits(&[name, packed, memory, unknown], "", &[name, memory, unknown]);
    }
    edits(&[name, packed, memory], "8-9", &[name, packed, memory]);
    // Not packed, and in two places.
    edits(&[name, &[0x18, 8], memory, &[0x18, 9], packed], "4", &[name, &[0x1a, 1, 4], memory]);
    // A message without CPUs gets them where the kubelet's encoder writes them.
    edits(&[name, memory], "8-9", &[name, packed, memory]);
    edits(&[name], "8-9", &[name, packed]);
    edits(&[], "", &[]);
    // A number of a fixed size does not count as CPU.
    let fixed: &[u8] = &[0x1d, 8, 0, 0, 0];
    edits(&[fixed, packed], "", &[fixed]);
}

#[test]
fn a_field_whose_content_is_replaced_keeps_the_encoding_of_its_tag() {
    let field = Fields::of(&[0x8a, 0x00, 0x81, 0x00, b'x']).next().unwrap().unwrap();
    let with = |content: &[u8]| {
        let mut bytes = Vec::new();
        field.write_with(content, &mut bytes);
        bytes
    };
    assert_eq!(with(b"x"), [0x8a, 0x00, 0x81, 0x00, b'x']);
    assert_eq!(with(b"yz"), [0x8a, 0x00, 2, b'y', b'z']);
}

#[test]
fn malformed_messages_are_errors() {
    let deep = [&[0x0b; MAX_GROUPS + 1][..], &[0x0c; MAX_GROUPS + 1]].concat();
    for message in [
        &[0x00][..],                                                         // number 0
        &[0x80, 0x80, 0x80, 0x80, 0x10, 0x00], // a number past the highest
        &[0x08],                               // no value
        &[0x08, 0x80],                         // half a number
        &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02], // 65 bits
        &[0x0a, 0x02, b'a'],                   // a string cut short
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // longer than memory
        &[0x09, 1, 2, 3],                      // fixed64 cut short
        &[0x0d, 1, 2],                         // fixed32 cut short
        &[0x0b, 0x08, 0x01],                   // a group without an end
        &[0x0b, 0x14],                         // the end of another group
        &[0x0c],                               // an end alone
        &[0x0e],                               // no such wire type
        &deep,
    ] {
        let found: Result<Vec<_>, _> = Fields::of(message).collect();
        assert_eq!(found, Err(Malformed), "{message:?}");
        assert_eq!(with_cpus(message, 3, &cpus("1")), Err(Malformed));
    }
    let deep = [&[0x0b; MAX_GROUPS][..], &[0x0c; MAX_GROUPS]].concat();
    assert_eq!(Fields::of(&deep).count(), 1);
}

#[test]
fn the_last_of_several_strings_counts() {
    let message = [0x0a, 1, b'a', 0x12, 1, b'n', 0x0a, 1, b'b'];
    assert_eq!(string(&message, 1), Ok(&b"b"[..]));
    assert_eq!(string(&message, 2), Ok(&b"n"[..]));
    assert_eq!(string(&message, 3), Ok(&b""[..]));
}

/// Fields of every kind, in any order.
pub(crate) fn message() -> impl Strategy<Value = Vec<u8>> {
    let unknown = (0..UNKNOWN.len()).prop_map(|at| UNKNOWN[at].to_vec());
    let known = (1..9_u64, prop::collection::vec(any::<u8>(), 0..6)).prop_map(|(number, bytes)| {
        let mut field = Vec::new();
        write_bytes(number, &bytes, &mut field);
        field
    });
    let number = (1..9_u8, 0..0x80_u8).prop_map(|(number, value)| vec![number << 3, value]);
    prop::collection::vec(prop_oneof![unknown, known, number], 0..12)
        .prop_map(|fields| fields.concat())
}

fn without_cpus(message: &[u8]) -> Vec<u8> {
    let fields = Fields::of(message).map(Result::unwrap);
    let others = fields.filter(|field| field.number != 3 || field.value == FieldValue::Other);
    others.flat_map(|field| field.raw.to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let read: Result<Vec<Field<'_>>, Malformed> = Fields::of(&bytes).collect();
        if let Ok(fields) = read {
            let raw: Vec<u8> = fields.iter().flat_map(|field| field.raw.to_vec()).collect();
            prop_assert_eq!(&raw, &bytes);
        }
        let _ = with_cpus(&bytes, 3, &cpus("0-3"));
    }

    #[test]
    fn an_edit_changes_nothing_else(message in message(), list in prop::collection::btree_set(0..400_usize, 0..9)) {
        let mut cpus = CpuSet::EMPTY;
        list.iter().for_each(|&cpu| cpus.insert(cpu).unwrap());
        let edited = with_cpus(&message, 3, &cpus).unwrap();
        prop_assert_eq!(without_cpus(&edited), without_cpus(&message));
        prop_assert_eq!(with_cpus(&edited, 3, &cpus).unwrap(), edited);
    }
}
