//! `metav1.Status`: the body of every HTTP answer that is not a review.

use super::super::*;

#[test]
fn reads_like_one_of_the_api_server() {
    let status = Status::new(StatusReason::TooManyRequests, "busy").retry_after(1);
    assert_eq!(
        String::from_utf8(status.encode()).unwrap(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#
    );
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let status = Status::new(StatusReason::BadRequest, "é".repeat(MESSAGE_BYTES));
    let body: serde_json::Value = serde_json::from_slice(&status.encode()).unwrap();
    assert_eq!(body["message"].as_str().unwrap().len(), MESSAGE_BYTES);
    assert!(body.get("details").is_none());
}

#[test]
fn sound_text_is_borrowed_and_each_bad_byte_replaced() {
    assert!(matches!(utf8("é".as_bytes()), Cow::Borrowed("é")));
    assert_eq!(utf8(b"a\xff\xfe"), "a\u{fffd}\u{fffd}");
    assert_eq!(utf8(b"\xe2\x82x"), "\u{fffd}\u{fffd}x");
}
