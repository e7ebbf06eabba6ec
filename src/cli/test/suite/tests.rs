//! The schema of PolicyTest for editors has the fields that are read, and no others.

use serde_json::Value;

use super::*;
use crate::struct_fields::struct_fields;
use portcullis_policy::explain::request::{WrittenKind, WrittenResource, WrittenUser};

#[test]
fn the_schema_has_every_field_that_is_read_and_no_other() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../config/schemas/policytest.json")).unwrap();
    let case = "/properties/cases/items";
    let review = format!("{case}/properties/review");
    let types = [
        (String::new(), struct_fields::<WrittenSuite>()),
        ("/properties/metadata".into(), struct_fields::<SuiteMetadata>()),
        (case.into(), struct_fields::<WrittenCase>()),
        (
            format!("{case}/properties/request"),
            struct_fields::<RequestArguments>(),
        ),
        (
            format!("{case}/properties/expect"),
            struct_fields::<WrittenExpectation>(),
        ),
        (review.clone(), struct_fields::<WrittenReview>()),
        (
            format!("{review}/properties/kind"),
            struct_fields::<WrittenKind>(),
        ),
        (
            format!("{review}/properties/resource"),
            struct_fields::<WrittenResource>(),
        ),
        (
            format!("{review}/properties/userInfo"),
            struct_fields::<WrittenUser>(),
        ),
    ];
    for (pointer, read) in &types {
        let properties = schema.pointer(&format!("{pointer}/properties"));
        let properties = properties.and_then(Value::as_object);
        let mut properties: Vec<&str> = properties
            .unwrap_or_else(|| panic!("{pointer}"))
            .keys()
            .map(String::as_str)
            .collect();
        properties.sort_unstable();
        assert_eq!(&properties, read, "{pointer}");
    }
    let closed = schema
        .to_string()
        .matches(r#""additionalProperties":false"#)
        .count();
    assert_eq!(
        closed,
        types.len(),
        "a mapping of the schema that no type is read from"
    );
}

#[test]
fn cases_have_the_files_of_their_reviews_in_common_and_no_more_than_some_bytes_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("review-{number}.json"));
    for number in 0..5 {
        std::fs::write(path(number), vec![b' '; files::CONFIGURATION_BYTES]).unwrap();
    }
    let mut reviews = ReviewFiles::default();
    let first = reviews.text(&path(0)).unwrap();
    assert!((0..100).all(|_| Arc::ptr_eq(&first, &reviews.text(&path(0)).unwrap())));
    assert!((1..4).all(|number| reviews.text(&path(number)).is_ok()));
    let error = reviews.text(&path(4)).unwrap_err().to_string();
    assert!(error.contains("split the suite"), "{error}");
}
