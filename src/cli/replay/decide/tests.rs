use super::*;

const LINE: &str = r#"{"time":"2026-11-22T12:00:00Z","endpoint":"authorize","cluster":"east","caller":"api","revision":"0123","decision":"allow","cause":{"kind":"RoleBinding","name":"b","rule":0},"review":{"spec":{"user":"jane","groups":["a","b"]}}}"#;

fn key(distinct: &DistinctReviews, line: &str, now: &str) -> Option<ReviewKey> {
    let document = Document::parse(line).unwrap();
    let recorded = RecordLine::read(&document).unwrap();
    distinct.key(&recorded, Time::parse(now).unwrap())
}

#[test]
fn reviews_are_equal_if_all_is_but_their_time_and_revision() {
    let distinct = DistinctReviews::with_boundaries(Some(Vec::new()), MAX_BYTES);
    let of = |line: &str| key(&distinct, line, "2026-11-22T12:00:00Z").unwrap();
    for (part, other) in [("12:00:00Z", "13:00:00Z"), ("0123", "4567")] {
        assert_eq!(of(LINE), of(&LINE.replacen(part, other, 1)), "{part}");
    }
    for (part, other) in [
        ("east", "west"),
        (r#""api""#, r#""api-2""#),
        (r#""allow""#, r#""deny""#),
        (r#""rule":0"#, r#""rule":1"#),
        (r#"["a","b"]"#, r#"["b","a"]"#),
        ("jane", "joe"),
        (r#"}}}"#, r#"}},"authorizers":[]}"#),
        (r#"}}}"#, r#"}},"later":1}"#),
    ] {
        assert_ne!(of(LINE), of(&LINE.replacen(part, other, 1)), "{part}");
    }
    let admission = LINE.replacen("authorize", "validate", 1);
    assert_eq!(key(&distinct, &admission, "2026-11-22T12:00:00Z"), None);
}

#[test]
fn reviews_are_not_equal_where_a_policy_begins_or_ends_between_them() {
    let christmas = Time::parse("2026-12-24T00:00:00Z").unwrap();
    let distinct = DistinctReviews::with_boundaries(Some(vec![christmas]), MAX_BYTES);
    let at = |now: &str| key(&distinct, LINE, now).unwrap();
    assert_eq!(at("2026-11-22T12:00:00Z"), at("2026-12-23T23:59:59.999999Z"));
    assert_ne!(at("2026-12-23T23:59:59.999999Z"), at("2026-12-24T00:00:00Z"));
    assert_eq!(at("2026-12-24T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let unsteady = DistinctReviews::with_boundaries(None, MAX_BYTES);
    let at = |now: &str| key(&unsteady, LINE, now).unwrap();
    assert_eq!(at("2026-11-22T12:00:00Z"), at("2026-11-22T12:00:00Z"));
    assert_ne!(at("2026-11-22T12:00:00Z"), at("2026-11-22T12:00:00.000001Z"));
}

#[test]
fn what_is_kept_is_bounded() {
    let distinct = DistinctReviews::with_boundaries(None, 10 * ENTRY_BYTES);
    for number in 0..100 {
        distinct.keep([number, 0], ReviewComparison::Same);
    }
    let known = (0..100).filter(|number| distinct.known([*number, 0]).is_some());
    assert_eq!(known.count(), 10);
    let distinct = DistinctReviews::with_boundaries(None, 10 * ENTRY_BYTES);
    distinct.keep([0, 0], ReviewComparison::Unknown("long".repeat(1000)));
    assert!(distinct.known([0, 0]).is_none());
    distinct.keep([0, 0], ReviewComparison::Unknown("short".to_owned()));
    assert!(matches!(&*distinct.known([0, 0]).unwrap(), ReviewComparison::Unknown(why) if why == "short"));
}
