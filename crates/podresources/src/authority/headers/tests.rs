use super::*;
use proptest::prelude::*;

/// The fields of a block of literals.
fn fields(block: &[u8]) -> Vec<(String, String)> {
    let fields = Decoder::new().decode(block).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    fields.into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[track_caller]
fn rewrites(headers: &mut Headers, block: &[u8], expect: &[(&str, &str)]) {
    let rewritten = headers.rewrite(block).unwrap();
    let expect: Vec<(String, String)> =
        expect.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(fields(&rewritten), expect);
}

/// RFC 7541, appendix C.4: three requests on a connection with Huffman code. The later ones refer to the
/// dynamic table.
#[test]
fn the_examples_of_the_standard_are_rewritten() {
    let mut headers = Headers::default();
    let common =
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "localhost")];
    let first = hex("828684418cf1e3c2e5f23a6ba0ab90f4ff");
    rewrites(&mut headers, &first, &common);
    let second = hex("828684be5886a8eb10649cbf");
    rewrites(&mut headers, &second, &[&common[..], &[("cache-control", "no-cache")]].concat());
    let third = hex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf");
    rewrites(
        &mut headers,
        &third,
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "localhost"),
            ("custom-key", "custom-value"),
        ],
    );
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn an_authority_in_any_representation_is_replaced() {
    let path = b"\x2b/var/lib/kubelet/pod-resources/kubelet.sock";
    let mut headers = Headers::default();
    let authority = [(":authority", "localhost")];
    for prefix in [&[0x41][..], &[0x01], &[0x11], b"\x40\x0a:authority", b"\x00\x0a:authority"] {
        rewrites(&mut headers, &[prefix, path].concat(), &authority);
    }
    // From the table, which has the authorities with indexing: the fourth one, then the first.
    for index in [0xbe, 0xbf] {
        rewrites(&mut headers, &[index], &authority);
    }
    // A new size of the table comes before fields.
    rewrites(&mut headers, &[0x20, 0x3f, 0xe1, 0x1f, 0x83], &[(":method", "POST")]);
    assert_eq!(headers.rewrite(&[0xbe]), Err(INVALID), "the table was emptied");
}

#[test]
fn long_values_are_not_changed() {
    for length in [126, 127, 128, 254, 255, 256, 4000] {
        let mut block = vec![0, 1, b'x'];
        write_string(&vec![b'y'; length], &mut block);
        assert_eq!(Headers::default().rewrite(&block), Ok(block));
    }
}

#[test]
fn blocks_with_too_many_or_too_large_fields_are_refused() {
    let value = "y".repeat(4000);
    let mut large = vec![0x40, 1, b'x'];
    write_string(value.as_bytes(), &mut large);
    let mut headers = Headers::default();
    headers.rewrite(&large).unwrap();
    // Each byte refers to a copy of the field.
    headers.rewrite(&[0xbe; 2]).unwrap();
    assert_eq!(headers.rewrite(&[0xbe; 3]), Err(TOO_LARGE));
    assert_eq!(headers.rewrite(&[0x82; 65]), Err(TOO_LARGE));
    // A table larger than the one advertised.
    assert_eq!(headers.rewrite(&[0x3f, 0xe2, 0x1f, 0x83]), Err(INVALID));
}

#[test]
fn invalid_blocks_are_refused() {
    for block in [
        &[0x3f][..],                           // half a size
        &[0x80],                               // index 0
        &[0xff, 0x80, 0x01],                   // past the table
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f], // a number past every limit
        &[0x41],                               // no value
        &[0x41, 0x05, b'a'],                   // a value cut short
        &[0x41, 0x81, 0x00],                   // invalid padding of Huffman's code
        &[0x41, 0x84, 0xff, 0xff, 0xff, 0xff], // its end in the text
        &[0x82, 0x20],                         // a size after the fields
    ] {
        assert_eq!(Headers::default().rewrite(block), Err(INVALID), "{block:x?}");
    }
}

/// Blocks that are nearly valid: they reach more code than random bytes.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let literal = (0..0x80_u8, prop::collection::vec(any::<u8>(), 0..40), any::<bool>());
    let literal = literal.prop_map(|(first, text, huffman)| {
        let length = text.len() as u8 | if huffman { 0x80 } else { 0 };
        [vec![first, length], text].concat()
    });
    let field = prop_oneof![
        literal,
        (0x80..0xff_u8).prop_map(|index| vec![index]),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(field, 0..8).prop_map(|fields| fields.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn hostile_blocks_are_rewritten_or_refused(blocks in prop::collection::vec(block(), 0..5)) {
        let mut headers = Headers::default();
        for block in blocks {
            let Ok(rewritten) = headers.rewrite(&block) else { break };
            prop_assert!(rewritten.len() <= MAX_BLOCK);
            for (name, value) in Decoder::new().decode(&rewritten).unwrap() {
                prop_assert!(name != b":authority" || value == b"localhost");
            }
        }
    }
}
