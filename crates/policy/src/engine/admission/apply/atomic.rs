//! Which fields can only be replaced as a whole.

use super::schema::Lists;
use super::{Error, Schemas};
use crate::engine::admission::GroupVersionKind;

impl Schemas<'_> {
    /// Whether what stands at `path` in an object of `kind` can only be replaced as a whole, so that
    /// a configuration must not name it. Through lists the path goes on with the fields of their
    /// items. `None` where the kind has no such field.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`].
    pub fn is_atomic(&self, kind: &GroupVersionKind<'_>, path: &[&str]) -> Result<Option<bool>, Error> {
        let mut of = self.of(kind)?;
        for step in path {
            while let Some((item, _)) = of.lists() {
                if self.maps(of).is_some() {
                    break;
                }
                of = item;
            }
            match self.maps(of).and_then(|maps| maps.key(step)) {
                Some(field) => of = field,
                None => return Ok(None),
            }
        }
        let list = of.lists().is_some_and(|(_, lists)| *lists == Lists::Atomic);
        let map = self.maps(of).is_some_and(|maps| maps.atomic);
        Ok(Some(list || map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_as_a_whole_is_told_by_its_path() {
        let kind = |kind: &'static str| GroupVersionKind {
            group: if kind == "Pod" { "" } else { "apps" }.into(),
            version: "v1".into(),
            kind: kind.into(),
        };
        for (of, path, expected) in [
            ("Pod", "spec.containers", Some(false)),
            ("Pod", "spec.containers.args", Some(true)),
            ("Pod", "spec.nodeSelector", Some(true)),
            ("Pod", "spec.tolerations", Some(true)),
            ("Pod", "spec.securityContext", Some(false)),
            ("Pod", "metadata.labels", Some(false)),
            ("Pod", "metadata.labels.a", Some(false)),
            ("Deployment", "spec.template.spec.tolerations", Some(true)),
            ("Deployment", "spec.replicas", Some(false)),
            ("Deployment", "spec.nothing", None),
        ] {
            let path: Vec<&str> = path.split('.').collect();
            let actual = Schemas::builtin().is_atomic(&kind(of), &path).unwrap();
            assert_eq!(actual, expected, "{of} {path:?}");
        }
        assert!(Schemas::builtin().is_atomic(&kind("Widget"), &["spec"]).is_err());
    }
}
