//! JSON: its index, its changes, its differences.

use portcullis_cel::json::{Document, diff, patch};

use crate::{measure, worst};

/// Pairs of texts: each of the worst, and what `change` makes of it.
fn pairs(
    change: impl Fn(&str) -> String,
) -> Vec<(&'static str, usize, (Document<'static>, Document<'static>))> {
    worst()
        .into_iter()
        .map(|(name, text)| {
            let bytes = text.len();
            let other = Document::parse(change(&text)).unwrap();
            (name, bytes, (Document::parse(text).unwrap(), other))
        })
        .collect()
}

#[test]
fn an_index_takes_ten_bytes_a_byte() {
    let _turn = crate::turn();
    let texts = worst()
        .into_iter()
        .map(|(name, text)| (name, text.len(), text.into_bytes()));
    measure("index", 10.5, texts, |text| {
        let document = Document::parse_bytes(text).unwrap();
        assert!(
            document.bytes() <= Document::most_index_bytes(text),
            "it is known beforehand"
        );
    });
}

#[test]
fn bytes_that_are_no_text_take_six_bytes_a_byte() {
    let _turn = crate::turn();
    let bytes = [b"\"".as_slice(), &[0xff; 1_000_000], b"\""].concat();
    measure("bytes", 6.5, [("no text", bytes.len(), bytes)], |bytes| {
        Document::parse_bytes(bytes).unwrap();
    });
}

#[test]
fn comparing_takes_no_memory_that_grows_with_the_values() {
    let _turn = crate::turn();
    // White space makes the texts differ.
    let pairs = pairs(|text| text.replacen(['[', '{'], if text.starts_with('[') { "[ " } else { "{ " }, 1));
    measure("comparison", 1.0, pairs, |(one, other)| {
        assert!(one.root().same(other.root()));
    });
}

#[test]
fn a_difference_takes_what_the_new_value_takes() {
    let _turn = crate::turn();
    for (what, change) in [
        (
            "difference of all",
            &(|text: &str| text.replace('0', "1")) as &dyn Fn(&str) -> String,
        ),
        ("difference of one", &|text| {
            let end = text.len() - 1;
            let more = if text.ends_with(']') { ",0]" } else { ",\"zz\":0}" };
            format!("{}{more}", &text[..end])
        }),
        ("difference of half", &|text| {
            text[..].replacen("0,", "2,", text.len() / 4)
        }),
    ] {
        measure(what, 6.0, pairs(change), |(before, after)| {
            drop(patch::write(&diff(before.root(), after.root())));
        });
    }
}

#[test]
fn a_patch_takes_what_it_makes() {
    let _turn = crate::turn();
    let objects = worst().into_iter().map(|(name, text)| {
        let text = format!("{{\"v\":{text}}}");
        (name, text.len(), Document::parse(text).unwrap())
    });
    let read =
        Document::parse(r#"[{"op":"add","path":"/v/-","value":{}},{"op":"add","path":"/w","value":0}]"#)
            .unwrap();
    let read = patch::read(read.root()).unwrap();
    measure("patch", 1.1, objects, |object| {
        drop(patch::apply(object.root(), read).unwrap().to_text());
    });
}
