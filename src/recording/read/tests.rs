use super::*;

#[test]
fn the_first_line_tells_the_version() {
    let read = |line: &str| RecordingHeader::read(line.as_bytes());
    assert_eq!(
        read("{\"portcullisRecording\":1,\"more\":2}\n").unwrap().version,
        1
    );
    for line in [
        "",
        "{}",
        "[]",
        "{\"portcullisRecording\":0}",
        "{\"portcullisRecording\":\"1\"}",
        "\u{0}",
    ] {
        assert!(matches!(read(line), Err(RecordingError::NoRecording)), "{line}");
    }
    let newer = read("{\"portcullisRecording\":2}").unwrap_err();
    assert!(matches!(newer, RecordingError::Newer { found: 2 }));
    assert!(newer.to_string().contains("format 2"), "{newer}");
}

#[test]
fn a_line_without_a_field_that_every_line_has_is_none() {
    let whole =
        r#"{"time":"2026-11-22T12:00:00.5Z","endpoint":"authorize","decision":"noOpinion","review":{}}"#;
    let read = |text: &str| {
        let document = Document::parse(text.to_owned()).unwrap();
        RecordLine::read(&document).map(|line| line.decision)
    };
    assert_eq!(read(whole).unwrap(), Decision::NoOpinion);
    for (from, to, field) in [
        ("time", "at", "time"),
        ("2026-11", "2026-13", "time"),
        ("authorize", "console", "endpoint"),
        ("noOpinion", "perhaps", "decision"),
        ("{}", "1", "review"),
    ] {
        match read(&whole.replace(from, to)).unwrap_err() {
            RecordingError::Field(found) => assert_eq!(found, field),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn places_are_told_apart_by_what_they_are_in() {
    let text = r#"{"time":"2026-11-22T12:00:00Z","endpoint":"mutate","decision":"allow","review":{},
        "webhooks":[{"webhook":"a/b"},{"webhook":"c/d"}],
        "redacted":["/review/request/object/data","/webhooks/1/patch/0/value","/patches"]}"#;
    let document = Document::parse(text.to_owned()).unwrap();
    let line = RecordLine::read(&document).unwrap();
    assert_eq!(line.redacted(), ["/request/object/data"]);
    assert!(!line.is_patch_redacted());
    let calls: Vec<bool> = line.calls().map(|call| call.is_redacted).collect();
    assert_eq!(calls, [false, true]);
}
