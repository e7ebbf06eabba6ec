//! A server-side apply: the object on the first line, what is applied to it in the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_policy::admission::GroupVersionKind;
use portcullis_policy::admission::apply::{Schemas, merge};
use portcullis_cel::json::Document;

fuzz_target!(|data: &[u8]| {
    let (object, patch) = portcullis_fuzz::halves(data);
    let (Ok(object), Ok(patch)) = (Document::parse_bytes(object), Document::parse_bytes(patch)) else {
        return;
    };
    for (group, version, kind) in [
        ("", "v1", "Pod"),
        ("apps", "v1", "Deployment"),
        ("", "v1", "ConfigMap"),
    ] {
        let kind = GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        if let Ok(merged) = merge(Schemas::builtin(), &kind, object.root(), patch.root()) {
            Document::parse(merged.to_text()).expect("what is merged is JSON");
        }
    }
});
