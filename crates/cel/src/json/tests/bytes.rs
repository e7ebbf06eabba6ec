use proptest::prelude::*;

use super::super::Document;

/// As Go's decoder reads a string: each byte that is no UTF-8 as U+FFFD.
fn go(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

#[test]
fn each_byte_reads_as_one_replacement_and_comes_back() {
    let cases: [(&[u8], &str); 7] = [
        (b"\"a\xffb\"", "a\u{fffd}b"),
        (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
        (b"\"\\\\\xff\"", "\\\u{fffd}"),
        (b"\"\\ud83d\xff\"", "\u{fffd}\u{fffd}"),
        (b"\"\\ud83d\\udc80\xff\"", "\u{1f480}\u{fffd}"),
        (b"\"\\\\ud83d\xff\"", "\\ud83d\u{fffd}"),
        (b"\"\xc3\xa9\xff\"", "é\u{fffd}"),
    ];
    for (bytes, expected) in cases {
        let document = Document::parse_bytes(bytes).unwrap();
        assert_eq!(document.root().as_str().unwrap(), expected, "{bytes:?}");
        let restored = document.restored(document.text().to_owned());
        if !bytes.starts_with(b"\"\\ud83d\xff") {
            assert_eq!(restored, bytes);
        }
    }
}

#[test]
fn beyond_strings_and_after_a_backslash_it_is_no_json() {
    for bytes in [
        &b"{\"a\":\xff}"[..],
        b"\xff",
        b"\"\\\xff\"",
        b"\"a\"\xff",
        b"[1,\xff]",
    ] {
        assert!(Document::parse_bytes(bytes).is_err(), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_a_string_read_as_go_reads_them(
        bytes in prop::collection::vec(prop_oneof![Just(0xff_u8), Just(0x80), Just(0xe2), 0x20_u8..0x22, 0x23_u8..0x5c, 0x5d_u8..], 0..40)
    ) {
        let quoted = [b"\"", bytes.as_slice(), b"\""].concat();
        let document = Document::parse_bytes(&quoted).unwrap();
        prop_assert_eq!(document.root().as_str().unwrap(), go(&bytes));
        prop_assert_eq!(document.restored(document.text().to_owned()), quoted);
    }
}
