//! The groups, resources and verbs of Kubernetes itself, and suggestions for misspelled ones; the
//! default roles of an API server, which bindings may name although no manifest has them, and which
//! no warnings are about; groups that include everybody, and rights that are dangerous for
//! everybody.
//!
//! Custom resources are not known, so there are no warnings about a rule for `widgets` of
//! `example.com`. There are warnings only about a group, resource or verb that nothing can ever
//! serve, or that is similar to a known one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use k8s_openapi::api::rbac::v1 as rbac;

use crate::authorization::Role;
use crate::authorization::rbac::{WildcardSet, bootstrap_policy};
use crate::document::{self, Document};
use crate::field::Faults;
use crate::manifest::compile;
use crate::manifest::report::Report;
use portcullis_cel::Version;

pub(crate) use crate::field::nearest;

/// The verbs of resource requests.
const REQUEST_VERBS: [&str; 9] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "proxy",
];

/// Verbs that components of Kubernetes check in addition to those of requests.
const SPECIAL_VERBS: [&str; 8] = [
    "impersonate",
    "bind",
    "escalate",
    "use",
    "approve",
    "sign",
    "attest",
    "request-serviceaccounts-token-audience",
];

/// HTTP methods in lower case: the verbs of requests for paths.
const HTTP_METHODS: [&str; 8] = [
    "get", "head", "post", "put", "patch", "delete", "options", "trace",
];

/// Resources, with their groups, that are checked but not served.
const UNSERVED_RESOURCES: [(&str, &str); 12] = [
    ("", "users"),
    ("", "groups"),
    ("", "uids"),
    ("authentication.k8s.io", "users"),
    ("authentication.k8s.io", "groups"),
    ("authentication.k8s.io", "uids"),
    ("authentication.k8s.io", "userextras"),
    ("authentication.k8s.io", "nodes"),
    ("authentication.k8s.io", "serviceaccounts"),
    ("certificates.k8s.io", "signers"),
    ("policy", "podsecuritypolicies"),
    ("imagepolicy.k8s.io", "imagereviews"),
];

/// Subresources that are checked but not in discovery: those of nodes are checked by kubelets for
/// requests to their own API.
const UNLISTED_SUBRESOURCES: [(&str, &str); 13] = [
    ("nodes", "log"),
    ("nodes", "stats"),
    ("nodes", "metrics"),
    ("nodes", "spec"),
    ("nodes", "checkpoint"),
    ("nodes", "healthz"),
    ("nodes", "pods"),
    ("nodes", "configz"),
    ("nodes", "exec"),
    ("nodes", "run"),
    ("nodes", "attach"),
    ("nodes", "portForward"),
    ("certificatesigningrequests", "nodeclient"),
];

/// The resources that API servers serve, from `resources.txt`.
struct Catalog {
    /// The resources and subresources of each group.
    groups: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// The kind of each group, version and resource.
    kinds: BTreeMap<(&'static str, &'static str, &'static str), &'static str>,
    /// Group, version and kind of namespaced objects.
    namespaced: BTreeSet<(&'static str, &'static str, &'static str)>,
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::read(include_str!("known/resources.txt")));

/// The default roles of one version, by namespace and name.
type Roles = BTreeMap<(String, String), Role>;

static OF_1_36: LazyLock<Roles> = LazyLock::new(|| read(Version::new(36)));
static OF_NEWEST: LazyLock<Roles> = LazyLock::new(|| read(Version::NEWEST));

/// Whether this is exactly a default role of an API server of some version.
pub(crate) fn is_builtin(role: &Role) -> bool {
    let key = (role.namespace.clone(), role.name.clone());
    [&OF_NEWEST, &OF_1_36]
        .into_iter()
        .any(|roles| roles.get(&key) == Some(role))
}

/// Whether an API server of `version` has a default ClusterRole of this name.
pub(crate) fn has_cluster_role(version: Version, name: &str) -> bool {
    let roles = if version.minor() < Version::NEWEST.minor() {
        &OF_1_36
    } else {
        &OF_NEWEST
    };
    roles.contains_key(&(String::new(), name.to_owned()))
}

fn read(version: Version) -> Roles {
    let documents = document::parse(None, bootstrap_policy(version)).unwrap_or_default();
    let roles = documents.iter().filter_map(role);
    roles
        .map(|role| ((role.namespace.clone(), role.name.clone()), role))
        .collect()
}

fn role(document: &Document) -> Option<Role> {
    let value = document.root().to_json();
    match document.text("kind")? {
        "Role" => serde_json::from_value::<rbac::Role>(value)
            .ok()
            .map(compile::role),
        "ClusterRole" => {
            let role: rbac::ClusterRole = serde_json::from_value(value).ok()?;
            compile::cluster_role(role, &mut Report::new(document, &mut Faults::new()))
        }
        _ => None,
    }
}

/// Groups that include nearly everybody.
const EVERYBODY: [&str; 4] = [
    "*",
    "system:authenticated",
    "system:unauthenticated",
    "system:serviceaccounts",
];

/// Verbs by which users can gain more rights.
const ESCALATING: [&str; 3] = ["bind", "escalate", "impersonate"];

/// Whether a Group or User of this name stands for everybody, or for an unauthenticated user.
pub(crate) fn is_everybody(kind: &str, name: &str) -> bool {
    match kind {
        "Group" => EVERYBODY.contains(&name),
        "User" => matches!(name, "*" | "system:anonymous"),
        _ => false,
    }
}

/// What makes a rule dangerous if it is granted to everybody; `None` if nothing does.
pub(crate) fn danger(
    verbs: &WildcardSet,
    api_groups: &WildcardSet,
    has_every_resource: bool,
) -> Option<String> {
    if verbs.is_all() && api_groups.is_all() && has_every_resource {
        return Some("everything".to_owned());
    }
    let escalates = |verb: &&str| ESCALATING.contains(verb) || verb.starts_with(CONSTRAINED);
    let escalating = verbs.named().find(escalates);
    escalating.map(|verb| format!("`{verb}`, which allows privilege escalation,"))
}

// === impl Catalog ===

impl Catalog {
    fn read(text: &'static str) -> Self {
        let mut catalog = Self {
            groups: BTreeMap::new(),
            kinds: BTreeMap::new(),
            namespaced: BTreeSet::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let (Some(group), Some(resource), Some(kind)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let group = if group == "core" { "" } else { group };
            catalog.groups.entry(group).or_default().insert(resource);
            let is_namespaced = words.next() == Some("namespaced");
            for version in words.nth(1).unwrap_or_default().split(',') {
                catalog.kinds.insert((group, version, resource), kind);
                if is_namespaced {
                    catalog.namespaced.insert((group, version, kind));
                }
            }
        }
        for (group, resource) in UNSERVED_RESOURCES {
            catalog.groups.entry(group).or_default().insert(resource);
        }
        catalog
    }

    fn serves(&self, group: &str, resource: &str) -> bool {
        self.groups
            .get(group)
            .is_some_and(|resources| resources.contains(resource))
    }
}

/// The kind of a built-in resource in this version, if it exists.
#[must_use]
pub fn kind_of(group: &str, version: &str, resource: &str) -> Option<&'static str> {
    let catalog = &*CATALOG;
    let key = catalog
        .kinds
        .range((group, version, resource)..)
        .next()
        .filter(|((g, v, r), _)| (*g, *v, *r) == (group, version, resource))?;
    Some(key.1)
}

/// Whether a built-in kind is namespaced.
#[must_use]
pub fn is_namespaced(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // The keys are `'static` and these strings are not, so `range` is used in place of `contains`.
    let mut found = CATALOG
        .namespaced
        .range((group, version, kind)..=(group, version, kind));
    found.next().is_some()
}

/// The built-in resources and subresources of `group`.
pub(crate) fn resources_of(group: &str) -> impl Iterator<Item = &'static str> + use<> {
    CATALOG.groups.get(group).into_iter().flatten().copied()
}

/// All built-in resources without subresources, as group and name.
pub fn built_in_resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    let served = CATALOG
        .kinds
        .keys()
        .map(|(group, _, resource)| (*group, *resource));
    let whole: BTreeSet<_> = served.filter(|(_, resource)| !resource.contains('/')).collect();
    whole.into_iter()
}

/// The resource and its group of a built-in kind, in any version. For the kind of a subresource,
/// the resource that has the subresource, if there is only one.
#[must_use]
pub fn built_in_resource(group: &str, kind: &str, subresource: &str) -> Option<(&'static str, &'static str)> {
    let of_kind = CATALOG
        .kinds
        .iter()
        .filter(|(_, own)| **own == kind)
        .map(|(key, _)| key);
    let whole = of_kind
        .clone()
        .find(|(own, _, resource)| *own == group && !resource.contains('/'));
    let having = of_kind.filter_map(|(group, _, resource)| {
        let (resource, own) = resource.split_once('/')?;
        (own == subresource).then_some((*group, resource))
    });
    let having: BTreeSet<_> = having.collect();
    let alone = having.first().filter(|_| having.len() == 1).copied();
    whole.map(|(group, _, resource)| (*group, *resource)).or(alone)
}

/// A warning about an unknown verb in a resource rule.
pub(crate) fn odd_verb(verb: &str) -> Option<String> {
    if verb == "*" || REQUEST_VERBS.contains(&verb) || SPECIAL_VERBS.contains(&verb) {
        return None;
    }
    if let Some(odd) = odd_impersonation_verb(verb, odd_verb) {
        return odd;
    }
    if ["head", "post", "put", "options"].contains(&verb) {
        return Some(format!(
            "`{verb}` is an HTTP method, and no request for a resource has it as its verb: write `create`, \
             `update`, `patch` or `delete`"
        ));
    }
    let known = REQUEST_VERBS.into_iter().chain(SPECIAL_VERBS);
    odd("verb", verb, nearest(verb, known))
}

/// A warning about an unknown verb in a rule for paths.
pub(crate) fn odd_method(verb: &str) -> Option<String> {
    if verb == "*" || HTTP_METHODS.contains(&verb) {
        return None;
    }
    if let Some(odd) = odd_impersonation_verb(verb, odd_method) {
        return odd;
    }
    if ["list", "watch", "create", "update", "deletecollection"].contains(&verb) {
        return Some(format!(
            "`{verb}`: requests for paths have HTTP methods in lower case as their verbs, such as \
             `get` and `post`"
        ));
    }
    odd("verb of requests for paths", verb, nearest(verb, HTTP_METHODS))
}

/// A warning about an unknown API group.
pub(crate) fn odd_group(group: &str) -> Option<String> {
    if group == "*" || CATALOG.groups.contains_key(group) {
        return None;
    }
    if group == "core" || group == "v1" {
        return Some(format!("`{group}` is not an API group: the core group is `\"\"`"));
    }
    if let Some((name, version)) = group.split_once('/') {
        return Some(format!(
            "`{group}` contains a version, so it matches nothing: write `{name}` without `/{version}`"
        ));
    }
    let near = nearest(
        group,
        CATALOG.groups.keys().copied().filter(|group| !group.is_empty()),
    );
    // The groups of custom resources contain a dot.
    (near.is_some() || !group.contains('.')).then(|| {
        odd("group", group, near).unwrap_or_else(|| format!("Kubernetes has no API group `{group}`"))
    })
}

/// A warning about an unknown resource in a rule for `groups`. `None` if one of the groups is not
/// built in, or is `*`.
pub(crate) fn odd_resource(groups: &[String], resource: &str) -> Option<String> {
    let catalog = &*CATALOG;
    let own = |group: &String| catalog.groups.contains_key(group.as_str());
    if groups.is_empty() || !groups.iter().all(own) {
        return None;
    }
    if groups.iter().any(|group| is_served(group, resource)) {
        return None;
    }
    let (name, subresource) = match resource.split_once('/') {
        Some((name, subresource)) => (name, Some(subresource)),
        None => (resource, None),
    };
    if let Some(subresource) = subresource
        && groups.iter().any(|group| catalog.serves(group, name))
    {
        let own = groups.iter().flat_map(|group| subresources(group, name));
        let near = nearest(subresource, own).map(|near| format!("{name}/{near}"));
        return odd("resource", resource, near.as_deref());
    }
    let elsewhere = catalog
        .groups
        .iter()
        .find(|(_, resources)| resources.contains(resource));
    if let Some((group, _)) = elsewhere {
        let listed = groups
            .iter()
            .map(|group| format!("`\"{group}\"`"))
            .collect::<Vec<_>>();
        return Some(format!(
            "`{resource}` is not in the group {}, but in `\"{group}\"`: write that group, or `{resource}.{group}` on the command line",
            listed.join(" or ")
        ));
    }
    let candidates = groups.iter().flat_map(|group| resources_of(group));
    odd("resource", resource, nearest(resource, candidates))
        .or_else(|| Some(format!("Kubernetes has no resource `{resource}` in these groups")))
}

/// Whether `resource` of a rule matches a built-in resource of `group`.
fn is_served(group: &str, resource: &str) -> bool {
    let catalog = &*CATALOG;
    match resource.split_once('/') {
        None => resource == "*" || catalog.serves(group, resource),
        Some(("*", subresource)) => {
            let ending = format!("/{subresource}");
            resources_of(group).any(|known| known.ends_with(&ending))
                || UNLISTED_SUBRESOURCES
                    .iter()
                    .any(|(_, known)| *known == subresource)
        }
        // The subresource is the key of the extra field.
        Some(("userextras", _)) => catalog.serves(group, "userextras"),
        Some((name, "*")) => catalog.serves(group, name),
        Some((name, subresource)) => {
            catalog.serves(group, resource) || UNLISTED_SUBRESOURCES.contains(&(name, subresource))
        }
    }
}

fn subresources<'r>(group: &str, name: &'r str) -> impl Iterator<Item = &'static str> + use<'r> {
    resources_of(group).filter_map(move |known| known.strip_prefix(name)?.strip_prefix('/'))
}

fn odd(what: &str, written: &str, meant: Option<&str>) -> Option<String> {
    match meant {
        Some(meant) => Some(format!(
            "Kubernetes has no {what} `{written}`; did you mean `{meant}`?"
        )),
        None if what == "verb" => None,
        None => Some(format!("Kubernetes has no {what} `{written}`")),
    }
}

// The verbs of constrained impersonation (KEP-5284).
//
// `impersonate:MODE` is checked for the impersonated user, `impersonate-on:MODE:VERB` for the
// request itself (`apiserver/pkg/endpoints/filters/impersonation/mode.go`).

/// The prefix of verbs for the impersonated user.
pub(crate) const CONSTRAINED: &str = "impersonate:";
/// The prefix of verbs for the request itself.
const CONSTRAINED_ON: &str = "impersonate-on:";

const MODES: [&str; 4] = ["associated-node", "arbitrary-node", "serviceaccount", "user-info"];

/// If `verb` is one of constrained impersonation, `Some` with a warning about it, if any; otherwise
/// `None`. `of_request` returns the warning about the verb of a request.
fn odd_impersonation_verb(verb: &str, of_request: impl Fn(&str) -> Option<String>) -> Option<Option<String>> {
    if let Some(mode) = verb.strip_prefix(CONSTRAINED) {
        return Some(odd_mode(verb, mode));
    }
    let on = verb.strip_prefix(CONSTRAINED_ON)?;
    let odd = match on.split_once(':') {
        None | Some((_, "" | "*")) => Some(format!(
            "`{verb}` does not end in the verb of a request, and wildcards are not supported: write one for \
            each verb, such as `{CONSTRAINED_ON}user-info:get`"
        )),
        Some((mode, of)) => odd_mode(verb, mode).or_else(|| of_request(of)),
    };
    Some(odd)
}

fn odd_mode(verb: &str, mode: &str) -> Option<String> {
    if MODES.contains(&mode) {
        return None;
    }
    let meant = match nearest(mode, MODES) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the modes are `{}`", MODES.join("`, `")),
    };
    Some(format!(
        "`{verb}`: `{mode}` is not a mode of impersonation; {meant}"
    ))
}

#[cfg(test)]
mod tests;
