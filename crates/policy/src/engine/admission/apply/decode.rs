//! The object as an API server would decode it after a webhook's change.
//!
//! An API server decodes the object into its type: values of wrong types are errors,
//! unknown fields are dropped, and empty values may be absent
//! (`apimachinery/pkg/api/equality/semantic.go`). Here nothing is dropped, because a
//! newer API server may know the field; but a change of an unknown field does not count
//! as a change.

use super::check::{is_type_meta, misfit};
use super::schema::{Maps, SchemaType};
use super::{FieldMismatches, MAX_LEVELS, Schemas};
use crate::engine::admission::GroupVersionKind;
use portcullis_cel::json::{Kind, Node};

/// Whether an object of `kind` is another one after a change.
///
/// Only what differs is looked at. A kind that is not built in is free of form,
/// and every difference counts.
///
/// # Errors
///
/// What of the change is not of its field's type.
pub fn is_changed(
    kind: &GroupVersionKind<'_>,
    before: Node<'_>,
    after: Node<'_>,
) -> Result<bool, FieldMismatches> {
    let schemas = Schemas::builtin();
    let Ok(of) = schemas.of(kind) else {
        return Ok(!before.same(after));
    };
    let mut walk = Decoder {
        schemas,
        path: String::new(),
        level: 0,
        found: FieldMismatches::default(),
    };
    let is_changed = walk.value(of, Some(before), after);
    walk.found.none().map(|()| is_changed)
}

struct Decoder<'s> {
    schemas: &'s Schemas<'static>,
    path: String,
    level: usize,
    found: FieldMismatches,
}

impl<'s> Decoder<'s> {
    /// What is deeper than any type of Kubernetes is compared, and not looked into.
    fn value(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) -> bool {
        if before.is_some_and(|before| before.same(after)) {
            return false;
        }
        if self.level > MAX_LEVELS {
            return true;
        }
        self.level += 1;
        let is_changed = self.other_value(of, before, after);
        self.level -= 1;
        is_changed
    }

    fn other_value(
        &mut self,
        of: &'s SchemaType<'static>,
        before: Option<Node<'_>>,
        after: Node<'_>,
    ) -> bool {
        if let Some(message) = misfit(self.schemas, of, after) {
            self.found.push(&self.path, message);
            return true;
        }
        let before = before.filter(|before| !before.is_null());
        match (of, after.kind()) {
            (_, Kind::Null) => before.is_some_and(|before| !is_empty(of, before)),
            (SchemaType::Deduced | SchemaType::Untyped | SchemaType::Scalar(_), _) => true,
            (_, Kind::Array) => self.list(of, before, after),
            (_, Kind::Object) => self.map(of, before, after),
            _ => true,
        }
    }

    fn list(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) -> bool {
        let Some((item, _)) = of.lists() else {
            return true;
        };
        let before = before.filter(|before| before.kind() == Kind::Array);
        let mut is_changed = before.map_or(0, Node::len) != after.len();
        for (place, value) in after.items().enumerate() {
            let back = self.enter(&format!("[{place}]"));
            let own = before.and_then(|before| before.item(place));
            is_changed |= self.value(item, own, value);
            self.path.truncate(back);
        }
        is_changed
    }

    fn map(&mut self, of: &'s SchemaType<'static>, before: Option<Node<'_>>, after: Node<'_>) -> bool {
        let Some(maps) = self.schemas.maps(of) else {
            return true;
        };
        let is_struct = matches!(of, SchemaType::Struct(..));
        let before = before.filter(|before| before.kind() == Kind::Object);
        // A struct that is there and empty is not the same as none: `emptyDir: {}`.
        let mut is_changed = is_struct && before.is_none();
        for (name, value) in after.entries() {
            let own = before.and_then(|before| before.get(&name));
            is_changed |= !is_struct && own.is_none();
            is_changed |= self.key(maps, &name, own, value);
        }
        let gone = before.into_iter().flat_map(Node::entries);
        let mut gone = gone.filter(|(name, _)| after.get(name).is_none());
        is_changed | gone.any(|(name, value)| !is_struct || self.is_missed(maps, &name, value))
    }

    fn key(
        &mut self,
        maps: Maps<'s, 'static>,
        name: &str,
        before: Option<Node<'_>>,
        after: Node<'_>,
    ) -> bool {
        if self.path.is_empty() && is_type_meta(name) {
            return false;
        }
        let Some(of) = maps.key(name) else {
            return false;
        };
        let back = self.enter(&format!(".{name}"));
        let is_changed = self.value(of, before, after);
        self.path.truncate(back);
        is_changed
    }

    /// Whether it matters that the field of a struct is gone.
    fn is_missed(&self, maps: Maps<'s, 'static>, name: &str, value: Node<'_>) -> bool {
        let is_type_meta = self.path.is_empty() && is_type_meta(name);
        !is_type_meta && maps.key(name).is_some_and(|of| !is_empty(of, value))
    }

    fn enter(&mut self, step: &str) -> usize {
        let back = self.path.len();
        self.path.push_str(step);
        back
    }
}

/// Whether the value may as well be absent.
fn is_empty(of: &SchemaType<'_>, value: Node<'_>) -> bool {
    match value.kind() {
        Kind::Null => true,
        Kind::Array => value.is_empty(),
        Kind::Object => value.is_empty() && matches!(of, SchemaType::Map(..)),
        Kind::Bool | Kind::Number | Kind::String => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_cel::json::Document;

    fn judged(kind: &str, before: &str, after: &str) -> Result<bool, String> {
        let kind = GroupVersionKind {
            group: "".into(),
            version: "v1".into(),
            kind: kind.to_owned().into(),
        };
        let (before, after) = (Document::parse(before).unwrap(), Document::parse(after).unwrap());
        is_changed(&kind, before.root(), after.root()).map_err(|found| found.to_string())
    }

    #[test]
    fn what_a_type_does_not_know_and_what_is_empty_is_no_change() {
        let same = [
            (r#"{"spec":{}}"#, r#"{"spec":{"bogus":"x"}}"#),
            (r#"{"spec":{"bogus":"x"}}"#, r#"{"spec":{}}"#),
            (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{}}}"#),
            (r#"{"metadata":{"labels":null}}"#, r#"{"metadata":{"labels":{}}}"#),
            (r#"{"spec":{"tolerations":[]}}"#, r#"{"spec":{}}"#),
            (
                r#"{"spec":{"nodeName":"n"}}"#,
                r#"{"spec":{"nodeName":"\u006e"}}"#,
            ),
        ];
        for (before, after) in same {
            assert_eq!(judged("Pod", before, after), Ok(false), "{before} {after}");
        }
    }

    #[test]
    fn every_other_difference_is_a_change() {
        let others = [
            (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"a":""}}}"#),
            (
                r#"{"metadata":{"labels":{"a":""}}}"#,
                r#"{"metadata":{"labels":{}}}"#,
            ),
            (r#"{"spec":{"nodeName":"n"}}"#, r#"{"spec":{}}"#),
            (r#"{"spec":{"nodeName":"n"}}"#, r#"{"spec":{"nodeName":null}}"#),
            (
                r#"{"spec":{"containers":[{"name":"a"}]}}"#,
                r#"{"spec":{"containers":[]}}"#,
            ),
            (
                r#"{"spec":{"volumes":[{"name":"a"}]}}"#,
                r#"{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}"#,
            ),
        ];
        for (before, after) in others {
            assert_eq!(judged("Pod", before, after), Ok(true), "{before} {after}");
        }
    }

    #[test]
    fn what_does_not_fit_its_field_is_an_error_where_it_was_changed() {
        let wrong = [
            (r#"{"metadata":{"labels":"x"}}"#, ".metadata.labels: expected map"),
            (
                r#"{"metadata":{"labels":{"a":1}}}"#,
                ".metadata.labels.a: expected string",
            ),
            (r#"{"spec":{"containers":{}}}"#, ".spec.containers: expected list"),
            (
                r#"{"spec":{"containers":[{"name":true}]}}"#,
                ".spec.containers[0].name",
            ),
        ];
        for (after, expected) in wrong {
            let found = judged("Pod", "{}", after).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
            assert_eq!(judged("Pod", after, after), Ok(false), "as it was sent");
            assert_eq!(judged("Sprocket", "{}", after), Ok(true), "free of form");
        }
        let quantity = r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":1}}}]}}"#;
        assert_eq!(judged("Pod", "{}", quantity), Ok(true));
    }
}
