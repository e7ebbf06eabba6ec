//! Whether an API server that does not serve a kind really has none of it.
//!
//! A 404 proves nothing: a load balancer without a backend answers it, too. It is believed where
//! the same server lists its groups as an API server does, and has the kind neither among them nor
//! among its CustomResourceDefinitions.

use super::definition::{self, CustomDefinition};
use super::kind::WatchedKind;
use super::requests::{ApiError, ApiServer};
use super::served::{
    ACCEPT, AfterPage, DiscoveredGroup, DiscoveredGroups, DiscoveredVersion, ServedKind, comparable,
};
use super::store::AbsenceEvidence;

/// The most bytes of a list of all groups, and of one definition.
const MAX_GROUPS_BYTES: usize = 16 << 20;
const MAX_DEFINITION_BYTES: usize = 8 << 20;

/// What every API server serves besides the core group.
const EVERYWHERE: [&str; 3] = ["apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io"];

/// What an API server serves.
struct ServerGroups(Vec<DiscoveredGroup>);

/// Why the server that answers is no API server; `None` if it is one.
pub(crate) async fn no_server(server: &ApiServer) -> Result<Option<String>, ApiError> {
    Ok(ServerGroups::of(server).await?.err())
}

/// Whether `kind`, which is not found where it should be, is absent. `newest` is the newest version
/// of definitions that was seen.
pub(crate) async fn of_absence(
    server: &ApiServer,
    kind: &WatchedKind,
    newest: Option<u64>,
) -> Result<AbsenceEvidence, ApiError> {
    let contradicted = |why: &str| Ok(AbsenceEvidence::Contradicted(why.to_owned()));
    let groups = match ServerGroups::of(server).await? {
        Ok(groups) => groups,
        Err(why) => return contradicted(&why),
    };
    if groups.has(kind) {
        return contradicted("the API server lists it among what it serves");
    }
    match is_defined(server, kind, newest).await {
        Ok(Some(why)) => contradicted(&why),
        Ok(None) => Ok(AbsenceEvidence::Proven),
        Err(error) if error.is(403) => Ok(AbsenceEvidence::Undefined),
        Err(error) => Err(error),
    }
}

// === impl ServerGroups ===

impl ServerGroups {
    /// Or why it is no API server.
    async fn of(server: &ApiServer) -> Result<Result<Self, String>, ApiError> {
        let mut all = Vec::new();
        for path in ["/api", "/apis"] {
            let listed: DiscoveredGroups = match server.get(path, ACCEPT, MAX_GROUPS_BYTES).await {
                Ok(listed) => listed,
                Err(error) if error.is_answer() => return Ok(Err(format!("`{path}`: {error}"))),
                Err(error) => return Err(error),
            };
            match listed.at(path) {
                Ok(items) => all.extend(items),
                Err(why) => return Ok(Err(why)),
            }
        }
        let groups = Self(all);
        let missing = [""]
            .iter()
            .chain(&EVERYWHERE)
            .find(|name| groups.group(name).is_none());
        Ok(match missing {
            None => Ok(groups),
            Some(name) => Err(format!(
                "the server that answers does not list the group `{name}`, as every API server does"
            )),
        })
    }

    fn group(&self, name: &str) -> Option<&DiscoveredGroup> {
        self.0.iter().find(|group| group.metadata.name == name)
    }

    /// Whether the kind is served, in a version that is taken or, of custom resources, in any.
    fn has(&self, kind: &WatchedKind) -> bool {
        let is_custom = kind.group.contains('.') && !kind.group.ends_with(".k8s.io");
        let is_taken = |version: &&DiscoveredVersion| is_custom || kind.versions.contains(&version.version);
        let versions = self
            .group(&kind.group)
            .into_iter()
            .flat_map(|group| &group.versions);
        versions.filter(is_taken).any(|version| version.has(&kind.kind))
    }
}

// === impl DiscoveredVersion ===

impl DiscoveredVersion {
    /// Whether it has the kind, or may have: what is stale was not asked for lately.
    fn has(&self, kind: &str) -> bool {
        let kinds = self
            .resources
            .iter()
            .filter_map(|resource| resource.response_kind.as_ref());
        self.freshness == "Stale" || kinds.into_iter().any(|served| served.kind == kind)
    }
}

/// Why `kind` may be defined although it is not served; `None` if it is not.
async fn is_defined(
    server: &ApiServer,
    kind: &WatchedKind,
    newest: Option<u64>,
) -> Result<Option<String>, ApiError> {
    let definitions = WatchedKind::definitions();
    let Some(served) = ServedKind::find(server, &definitions).await? else {
        return Ok(Some("CustomResourceDefinitions are not served".to_owned()));
    };
    let mut from = String::new();
    loop {
        let mut page = served.list(server, None, &from, MAX_DEFINITION_BYTES).await?;
        let after = loop {
            match page.next().await? {
                Ok(object) if defines(object.text.as_deref(), kind) => {
                    return Ok(Some(format!("`{}` defines it", object.head.name)));
                }
                Ok(_) => {}
                Err(after) => break after,
            }
        };
        match after {
            AfterPage::Next(next) => from = next,
            AfterPage::End(version) if comparable(&version).is_some_and(|version| Some(version) < newest) => {
                return Ok(Some(
                    "its CustomResourceDefinitions are older than those that are known".to_owned(),
                ));
            }
            AfterPage::End(_) => return Ok(None),
        }
    }
}

/// Whether a definition is that of `kind`, or may be.
fn defines(text: Option<&[u8]>, kind: &WatchedKind) -> bool {
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    let definition = text.and_then(|text| definition::reduced(text).ok());
    let definition = definition.and_then(|value| CustomDefinition::of(&value));
    definition.is_none_or(|CustomDefinition { resource, .. }| {
        resource.group == kind.group && resource.kind == kind.kind
    })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::tests::fixtures::{TestAnswer, api_server, block_on};

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    fn limits() -> WatchedKind {
        WatchedKind::of_object("example.com/v1", "Limit")
    }

    fn group(name: &str, version: &str, kind: &str, freshness: &str) -> Value {
        let resource =
            json!({"resource": "any", "responseKind": {"kind": kind}, "scope": "Cluster", "verbs": []});
        json!({
            "metadata": {"name": name},
            "versions": [{"version": version, "resources": [resource], "freshness": freshness}],
        })
    }

    fn groups(of: &[Value]) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "items": of})
    }

    /// The groups that an API server has besides the core group.
    fn everywhere() -> Vec<Value> {
        let named = EVERYWHERE.iter().map(|name| group(name, "v1", "Any", "Current"));
        named.collect()
    }

    fn definition(kind: &str) -> Value {
        let version = json!({"name": "v1", "served": true, "storage": true});
        let spec = json!({
            "group": "example.com", "names": {"kind": kind, "plural": "any"}, "scope": "Namespaced", "versions": [version],
        });
        json!({"metadata": {"name": format!("{kind}.example.com"), "resourceVersion": "7"}, "spec": spec})
    }

    fn definitions(items: &[Value]) -> Value {
        json!({
            "kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"resourceVersion": "100"}, "items": items,
        })
    }

    /// What an API server answers that has no Limits.
    fn without_limits(path: &str) -> TestAnswer {
        let answer = match path {
            "/api" => groups(&[group("", "v1", "Pod", "Current")]),
            "/apis" => groups(&everywhere()),
            "/apis/apiextensions.k8s.io/v1" => json!({"kind": "APIResourceList", "resources": [
                {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "verbs": ["list", "watch"]},
            ]}),
            DEFINITIONS => definitions(&[definition("Other")]),
            other => panic!("{other}"),
        };
        (StatusCode::OK, answer)
    }

    /// The evidence of a server that answers at `path` otherwise, where definitions of version 100
    /// are known.
    fn evidence_with(path: &'static str, answer: TestAnswer) -> AbsenceEvidence {
        block_on(async move {
            let server = api_server(move |uri| match uri.path() == path {
                true => answer.clone(),
                false => without_limits(uri.path()),
            });
            of_absence(&server, &limits(), Some(100)).await.unwrap()
        })
    }

    #[test]
    fn what_an_api_server_lists_nowhere_is_absent() {
        let as_it_is = without_limits("/api");
        assert_eq!(evidence_with("/api", as_it_is), AbsenceEvidence::Proven);
    }

    #[test]
    fn a_server_that_says_something_else_is_no_evidence() {
        let ok = |answer: Value| (StatusCode::OK, answer);
        let refused = |status: StatusCode| (status, json!({"kind": "Status", "message": "no"}));
        let mut lists_it = everywhere();
        lists_it.push(group("example.com", "v2", "Limit", "Current"));
        let mut is_stale = everywhere();
        is_stale.push(group("example.com", "v2", "Other", "Stale"));
        let mut unreadable = definition("Limit");
        unreadable["spec"] = json!("?");
        let mut older = definitions(&[]);
        older["metadata"]["resourceVersion"] = json!("99");
        for (path, answer, expected) in [
            ("/api", refused(StatusCode::NOT_FOUND), "`/api`: no"),
            ("/apis", refused(StatusCode::NOT_FOUND), "`/apis`: no"),
            ("/api", ok(groups(&[])), "does not list the group ``"),
            (
                "/apis",
                ok(groups(&everywhere()[1..])),
                "does not list the group `apps`",
            ),
            (
                "/apis",
                ok(groups(&everywhere()[..2])),
                "does not list the group `apiextensions.k8s.io`",
            ),
            (
                "/apis",
                ok(json!({"kind": "APIGroupList", "groups": []})),
                "no APIGroupDiscoveryList",
            ),
            ("/apis", ok(groups(&lists_it)), "lists it among what it serves"),
            ("/apis", ok(groups(&is_stale)), "lists it among what it serves"),
            (
                DEFINITIONS,
                ok(definitions(&[definition("Limit")])),
                "`Limit.example.com` defines it",
            ),
            (
                DEFINITIONS,
                ok(definitions(&[unreadable])),
                "`Limit.example.com` defines it",
            ),
            (DEFINITIONS, ok(older), "older than those that are known"),
            (
                "/apis/apiextensions.k8s.io/v1",
                refused(StatusCode::NOT_FOUND),
                "CustomResourceDefinitions are not served",
            ),
        ] {
            let AbsenceEvidence::Contradicted(why) = evidence_with(path, answer) else {
                panic!("{expected}");
            };
            assert!(why.contains(expected), "{why}");
        }
        let undefined = evidence_with(DEFINITIONS, refused(StatusCode::FORBIDDEN));
        assert_eq!(undefined, AbsenceEvidence::Undefined);
    }
}
