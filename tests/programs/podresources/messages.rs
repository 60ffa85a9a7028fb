//! Messages of podresources, written and read by the field numbers of its definition.

use std::collections::BTreeMap;

pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

pub(crate) fn field(number: u64, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    [varint(number << 3 | 2), varint(content.len() as u64), content].concat()
}

/// A pod in namespace `ns` with one container, `c`, as the kubelet lists it.
pub(crate) fn pod(name: &str, container: &[&[u8]]) -> Vec<u8> {
    let container = field(3, &[&field(1, &[b"c"]), &container.concat()]);
    field(1, &[&field(1, &[name.as_bytes()]), &field(2, &[b"ns"]), &container])
}

pub(crate) fn request(name: &str, namespace: &str) -> Vec<u8> {
    [field(1, &[name.as_bytes()]), field(2, &[namespace.as_bytes()])].concat()
}

/// The fields of a message of strings and messages.
pub(crate) fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = read_varint(&mut message);
        assert_eq!(key & 7, 2, "a string or a message");
        let length = read_varint(&mut message) as usize;
        let (content, rest) = message.split_at(length);
        fields.push((key >> 3, content.to_vec()));
        message = rest;
    }
    fields
}

fn read_varint(message: &mut &[u8]) -> u64 {
    let length = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (bytes, rest) = message.split_at(length);
    *message = rest;
    bytes.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

/// The value of a string.
fn text(fields: &[(u64, Vec<u8>)], number: u64) -> String {
    let field = fields.iter().find(|field| field.0 == number);
    String::from_utf8(field.map(|field| field.1.clone()).unwrap_or_default()).unwrap()
}

/// `NAMESPACE/POD/CONTAINER` of each container of an answer to `List`, and its `cpu_ids`.
pub(crate) fn listed(answer: &[u8]) -> BTreeMap<String, Vec<u64>> {
    let mut listed = BTreeMap::new();
    for (_, pod) in fields(answer) {
        let pod = fields(&pod);
        for (_, container) in pod.iter().filter(|field| field.0 == 3) {
            let container = fields(container);
            let name = format!("{}/{}/{}", text(&pod, 2), text(&pod, 1), text(&container, 1));
            let cpus = container.iter().filter(|field| field.0 == 3);
            let cpus = cpus.flat_map(|(_, packed)| numbers(packed)).collect();
            assert_eq!(listed.insert(name.clone(), cpus), None, "{name} is listed twice");
        }
    }
    listed
}

pub(crate) fn numbers(mut packed: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !packed.is_empty() {
        numbers.push(read_varint(&mut packed));
    }
    numbers
}
