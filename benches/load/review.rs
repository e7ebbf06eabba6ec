//! An AdmissionReview, decoded with serde without copying.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "decoded to be measured")]
pub(crate) struct Review<'r> {
    #[serde(borrow)]
    kind: Cow<'r, str>,
    #[serde(borrow)]
    api_version: Cow<'r, str>,
    #[serde(borrow)]
    request: Request<'r>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "decoded to be measured")]
struct Request<'r> {
    #[serde(borrow)]
    uid: Cow<'r, str>,
    #[serde(borrow)]
    kind: Kind<'r>,
    #[serde(borrow)]
    resource: Resource<'r>,
    #[serde(borrow, default)]
    sub_resource: Cow<'r, str>,
    #[serde(borrow, default)]
    name: Cow<'r, str>,
    #[serde(borrow, default)]
    namespace: Cow<'r, str>,
    #[serde(borrow)]
    operation: Cow<'r, str>,
    #[serde(borrow)]
    user_info: User<'r>,
    #[serde(borrow)]
    object: Option<&'r RawValue>,
    #[serde(borrow)]
    old_object: Option<&'r RawValue>,
    #[serde(borrow)]
    options: Option<&'r RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "decoded to be measured")]
struct Kind<'r> {
    #[serde(borrow)]
    group: Cow<'r, str>,
    #[serde(borrow)]
    version: Cow<'r, str>,
    #[serde(borrow)]
    kind: Cow<'r, str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "decoded to be measured")]
struct Resource<'r> {
    #[serde(borrow)]
    group: Cow<'r, str>,
    #[serde(borrow)]
    version: Cow<'r, str>,
    #[serde(borrow)]
    resource: Cow<'r, str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "decoded to be measured")]
struct User<'r> {
    #[serde(borrow, default)]
    username: Cow<'r, str>,
    #[serde(borrow, default)]
    groups: Vec<Cow<'r, str>>,
}
