//! An object as the kube client delivers it: its metadata, and its text.
//!
//! Objects are decoded one by one, so that an unreadable object does not affect the
//! others in its list.

use std::borrow::Cow;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::object::Name;

/// An object of any kind.
#[derive(Debug, Clone)]
pub(super) struct RawObject {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

/// The part of an object that must be valid.
#[derive(Deserialize)]
struct Head {
    metadata: ObjectMeta,
}

// === impl RawObject ===

impl RawObject {
    /// Its JSON.
    pub(super) fn text(&self) -> &str {
        self.text.get()
    }

    pub(super) fn name(&self) -> Name {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (text(&self.metadata.namespace), text(&self.metadata.name))
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Head { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self { metadata, text })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::api::WatchEvent;
    use kube::core::ObjectList;

    use super::*;

    fn deep() -> String {
        let (open, close) = ("[".repeat(5000), "]".repeat(5000));
        format!(r#"{{"metadata":{{"name":"deep","namespace":"n"}},"data":{open}{close}}}"#)
    }

    #[test]
    fn an_object_that_is_nested_too_deep_leaves_the_others_of_its_list_alone() {
        let deep = deep();
        let text = format!(
            r#"{{"kind":"LimitList","apiVersion":"example.com/v1","metadata":{{"resourceVersion":"7"}},
            "items":[{deep},{{"metadata":{{"name":"flat"}}}}]}}"#
        );
        let list: ObjectList<RawObject> = serde_json::from_str(&text).unwrap();
        let names: Vec<Name> = list.items.iter().map(RawObject::name).collect();
        assert_eq!(
            names,
            [("n".into(), "deep".into()), (String::new(), "flat".into())]
        );
        assert_eq!(list.items[0].text(), deep);
    }

    #[test]
    fn an_event_is_read_however_deep_its_object_is() {
        let text = format!(r#"{{"type":"MODIFIED","object":{}}}"#, deep());
        let event: WatchEvent<RawObject> = serde_json::from_str(&text).unwrap();
        assert!(matches!(event, WatchEvent::Modified(object) if object.name().1 == "deep"));
    }
}
