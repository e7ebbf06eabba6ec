//! A suggestion allows what its lines were allowed, and nothing else.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{self, Options, Source};
use portcullis_policy::model::{Attributes, Decision, ResourceAttributes, Target, Time, User};

const USERS: [&str; 4] = ["jane", "a/b", "a-b", "system:serviceaccount:shop:web"];
const VERBS: [&str; 4] = ["get", "list", "delete", "bind"];
const RESOURCES: [(&str, &str, &str); 5] = [
    ("", "pods", ""),
    ("", "pods", "log"),
    ("", "pods", "exec"),
    ("", "secrets", ""),
    ("apps", "deployments", ""),
];
const NAMESPACES: [&str; 3] = ["", "shop", "live"];
const NAMES: [&str; 3] = ["", "x", "y"];
const PATHS: [&str; 3] = ["/metrics", "/metrics/x", "/debug/"];

/// A request by the places of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GeneratedRequest {
    Resource {
        user: usize,
        verb: usize,
        resource: usize,
        namespace: usize,
        name: usize,
    },
    Path {
        user: usize,
        verb: usize,
        path: usize,
    },
}

impl GeneratedRequest {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for user in 0..USERS.len() {
            for verb in 0..VERBS.len() {
                for resource in 0..RESOURCES.len() {
                    for namespace in 0..NAMESPACES.len() {
                        all.extend((0..NAMES.len()).map(|name| Self::Resource {
                            user,
                            verb,
                            resource,
                            namespace,
                            name,
                        }));
                    }
                }
                all.extend((0..PATHS.len()).map(|path| Self::Path { user, verb, path }));
            }
        }
        all
    }

    fn line(self) -> Value {
        let (user, attributes) = match self {
            Self::Resource {
                user,
                verb,
                resource,
                namespace,
                name,
            } => {
                let (group, resource, subresource) = RESOURCES[resource];
                let attributes = json!({"verb": VERBS[verb], "group": group, "resource": resource,
                    "subresource": subresource, "namespace": NAMESPACES[namespace], "name": NAMES[name]});
                (user, attributes)
            }
            Self::Path { user, verb, path } => (user, json!({"verb": VERBS[verb], "path": PATHS[path]})),
        };
        json!({"time": "2026-11-21T10:15:02.123456Z", "cluster": "default", "endpoint": "authorize",
            "user": USERS[user], "attributes": attributes, "decision": "allow", "reason": "",
            "cause": {"kind": "RoleBinding", "name": "b", "rule": 0}, "shadow": [], "durationSeconds": 0.1})
    }

    fn attributes(self) -> Attributes<'static> {
        let (user, target) = match self {
            Self::Resource {
                user,
                verb,
                resource,
                namespace,
                name,
            } => {
                let (group, resource, subresource) = RESOURCES[resource];
                let resource = ResourceAttributes {
                    verb: VERBS[verb].into(),
                    group: group.into(),
                    resource: resource.into(),
                    subresource: subresource.into(),
                    namespace: NAMESPACES[namespace].into(),
                    name: NAMES[name].into(),
                    ..ResourceAttributes::default()
                };
                (user, Target::Resource(Box::new(resource)))
            }
            Self::Path { user, verb, path } => {
                let (path, verb) = (PATHS[path].into(), VERBS[verb].into());
                (user, Target::NonResource { path, verb })
            }
        };
        let user = User {
            name: USERS[user].into(),
            ..User::default()
        };
        Attributes { user, target }
    }

    /// Whether RBAC cannot allow `self` without `other`: no name is every name, and no namespace
    /// every namespace.
    fn implies(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Resource {
                    user,
                    verb,
                    resource,
                    namespace,
                    name,
                },
                Self::Resource {
                    user: other_user,
                    verb: other_verb,
                    resource: other_resource,
                    namespace: other_namespace,
                    name: other_name,
                },
            ) => {
                (user, verb, resource) == (other_user, other_verb, other_resource)
                    && (namespace == 0 || namespace == other_namespace)
                    && (name == 0 || name == other_name)
            }
            _ => self == other,
        }
    }

    fn is_sensitive(self) -> bool {
        match self {
            Self::Resource { verb, resource, .. } => VERBS[verb] == "bind" || matches!(resource, 2 | 3),
            Self::Path { .. } => false,
        }
    }
}

fn suggest(arguments: WideningOptions) -> Suggest {
    Suggest {
        usage: Vec::new(),
        logs: Vec::new(),
        all: false,
        with_path_token: false,
        with_sensitive: false,
        widening: arguments,
        cluster: None,
        config: None,
        manifests: Vec::new(),
        kubeconfig: None,
        context: None,
        jobs: super::FileJobs::default(),
        output: super::Output::default(),
    }
}

fn report(lines: &str, widening: WideningOptions, with_sensitive: bool) -> SuggestReport {
    let folder = tempfile::tempdir().unwrap();
    let log: PathBuf = folder.path().join("decisions.log");
    std::fs::write(&log, lines).unwrap();
    let command = suggest(widening);
    let mut gathered = CollectedLogs::default();
    command.gather(std::slice::from_ref(&log), &mut gathered).unwrap();
    let cluster = command.chosen_cluster(&gathered).unwrap();
    SuggestReport {
        used: Vec::new(),
        roles: command.suggested(&gathered.usage.remove(&cluster).unwrap_or_default()),
        seen: gathered.seen,
        left_out: gathered.left_out,
        never_asked: Vec::new(),
        unused: None,
        with_sensitive,
    }
}

fn text_of(lines: impl Iterator<Item = GeneratedRequest>) -> String {
    lines.map(|asked| format!("{}\n", asked.line())).collect()
}

fn allowed_by(text: &str) -> BTreeSet<GeneratedRequest> {
    let source = Source {
        file: "suggested.yaml".into(),
        text: text.into(),
        cluster: None,
    };
    let (manifests, faults) = manifest::load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}\n{text}"));
    let set: &PolicySet = manifests.policies.for_cluster("default");
    let is_allowed = |asked: &GeneratedRequest| {
        let decided = set.authorize(&asked.attributes(), Time::UNIX_EPOCH);
        decided.decision == Decision::Allow
    };
    GeneratedRequest::all().into_iter().filter(is_allowed).collect()
}

fn implied_by(lines: &[GeneratedRequest]) -> BTreeSet<GeneratedRequest> {
    let is_implied = |asked: &GeneratedRequest| lines.iter().any(|line| line.implies(*asked));
    GeneratedRequest::all().into_iter().filter(is_implied).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_suggestion_allows_what_was_asked_and_nothing_else(
        lines in prop::collection::vec(prop::sample::select(GeneratedRequest::all()), 0..24)
    ) {
        let text = text_of(lines.iter().copied());
        let whole = report(&text, WideningOptions::default(), true).in_words().to_string();
        prop_assert!(!whole.contains('*'), "{}", whole);
        prop_assert_eq!(allowed_by(&whole), implied_by(&lines), "{}", whole);

        let plain: Vec<GeneratedRequest> = lines.iter().copied().filter(|asked| !asked.is_sensitive()).collect();
        let without = report(&text, WideningOptions::default(), false).in_words().to_string();
        prop_assert_eq!(allowed_by(&without), implied_by(&plain), "{}", without);
    }

    #[test]
    fn what_is_commented_out_is_all_that_was_sensitive(
        lines in prop::collection::vec(prop::sample::select(GeneratedRequest::all()), 0..24)
    ) {
        let text = text_of(lines.iter().copied());
        let words = report(&text, WideningOptions::default(), false).in_words().to_string();
        let uncommented: String = match words.split_once("# Sensitive:") {
            Some((plain, comments)) => {
                let lines = comments.lines().skip_while(|line| *line != "# ---");
                let lines = lines.map(|line| format!("{}\n", line.strip_prefix("# ").unwrap()));
                plain.to_owned() + &lines.collect::<String>()
            }
            None => words,
        };
        prop_assert_eq!(allowed_by(&uncommented), implied_by(&lines), "{}", uncommented);
    }
}

#[test]
fn rules_are_widened_where_that_is_asked_for() {
    let pod = |namespace: &str, name: &str| {
        let mut line = GeneratedRequest::all()[0].line();
        line["attributes"]["namespace"] = namespace.into();
        line["attributes"]["name"] = name.into();
        format!("{line}\n")
    };
    let lines = pod("a", "x") + &pod("a", "y") + &pod("b", "z") + &pod("b", "z");
    let objects = |max_names, max_namespaces| {
        let widening = WideningOptions {
            max_names,
            max_namespaces,
        };
        report(&lines, widening, false).roles.objects
    };
    let rules = |objects: &[Value]| -> Vec<Value> {
        let roles = objects.iter().filter(|object| object.get("rules").is_some());
        roles
            .map(|role| json!([role["metadata"]["namespace"], role["rules"][0]["resourceNames"]]))
            .collect()
    };
    let exact = json!([["a", ["x", "y"]], ["b", ["z"]]]);
    assert_eq!(json!(rules(&objects(None, None))), exact);
    assert_eq!(json!(rules(&objects(Some(2), Some(2)))), exact);
    assert_eq!(
        json!(rules(&objects(Some(1), None))),
        json!([["a", null], ["b", ["z"]]])
    );
    assert_eq!(
        json!(rules(&objects(None, Some(1)))),
        json!([[null, ["x", "y", "z"]]])
    );
    assert_eq!(json!(rules(&objects(Some(2), Some(1)))), json!([[null, null]]));
}

#[test]
fn what_cannot_be_allowed_exactly_is_left_out() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut line = GeneratedRequest::all()[0].line();
        change(&mut line);
        format!("{line}\n")
    };
    for (lines, reason) in [
        (
            changed(&|line| line["attributes"]["verb"] = "*".into()),
            OmissionReason::Wildcard,
        ),
        (
            changed(&|line| line["attributes"]["resource"] = "*".into()),
            OmissionReason::Wildcard,
        ),
        (
            changed(&|line| line["attributes"]["subresource"] = "*".into()),
            OmissionReason::Wildcard,
        ),
        (
            changed(&|line| line["attributes"] = json!({"verb": "get", "path": "/x/*"})),
            OmissionReason::Wildcard,
        ),
        (
            changed(&|line| line["attributes"] = json!({"verb": "get"})),
            OmissionReason::Incomplete,
        ),
        (
            changed(&|line| line["user"] = "".into()),
            OmissionReason::Incomplete,
        ),
        (
            changed(&|line| line["cause"]["kind"] = "AuthorizationPolicy".into()),
            OmissionReason::NotByRbac,
        ),
        (
            changed(&|line| {
                line["user"] = "x…".into();
                line["truncated"] = true.into();
            }),
            OmissionReason::Truncated,
        ),
    ] {
        let report = report(&lines, WideningOptions::default(), true);
        assert_eq!(report.roles.objects, Vec::<Value>::new(), "{lines}");
        let left_out: Vec<_> = report.left_out.keys().copied().collect();
        assert_eq!(left_out, [reason], "{lines}");
    }
}

#[test]
fn what_a_policy_allowed_for_its_selector_is_no_grant() {
    let mut line = GeneratedRequest::all()[0].line();
    line["cause"]["kind"] = "AuthorizationPolicy".into();
    line["attributes"]["labelSelector"] = json!({"requirements": []});
    let (mut usage, mut memory) = (AllowedRequests::default(), RequestMemory::default());
    let text = line.to_string();
    let logged: LoggedDecision<'_> = serde_json::from_str(&text).unwrap();
    let all = usage.add(&logged, true, WideningOptions::default(), &mut memory);
    assert_eq!(all, Err(OmissionReason::Selectors));
    line["cause"]["kind"] = "RoleBinding".into();
    let text = line.to_string();
    let logged: LoggedDecision<'_> = serde_json::from_str(&text).unwrap();
    assert_eq!(
        usage.add(&logged, false, WideningOptions::default(), &mut memory),
        Ok(())
    );
}

#[test]
fn a_users_name_stays_what_it_is() {
    for name in [
        "a\nb: c",
        "# x",
        "\u{2028}---",
        "yes",
        "*",
        "'",
        "\u{85}",
        "system:serviceaccount:x",
    ] {
        let mut line = GeneratedRequest::all()[0].line();
        line["user"] = name.into();
        line["attributes"]["resource"] = "secrets".into();
        let text = format!("{line}\n");
        for with_sensitive in [true, false] {
            let words = report(&text, WideningOptions::default(), with_sensitive)
                .in_words()
                .to_string();
            let mut faults = portcullis_policy::field::Faults::new();
            let source = Source {
                file: "f".into(),
                text: words.clone(),
                cluster: None,
            };
            let documents = manifest::documents(&source, &mut faults);
            assert_eq!(faults.to_string(), "", "{words}");
            let subjects: Vec<Value> = documents
                .iter()
                .filter_map(|document| document.root().to_json().get("subjects").cloned())
                .collect();
            let expected = match with_sensitive {
                true => {
                    vec![json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}])]
                }
                false => Vec::new(),
            };
            assert_eq!(subjects, expected, "{words}");
        }
    }
}

#[test]
fn users_that_begin_alike_get_their_names_in_linear_work() {
    let mut names = RoleNames::default();
    let (long, count) = ("x".repeat(LONGEST_NAME), 1000);
    let users = (0..count).flat_map(|user| {
        [
            format!("{long}{user}"),
            format!("a/-{user}"),
            format!("a%-{user}"),
        ]
    });
    let given: BTreeSet<String> = users.map(|user| names.name(&user)).collect();
    assert_eq!(given.len(), 3 * count);
    assert!(names.tried <= 2 * given.len(), "{} names were tried", names.tried);
}

/// Lines of users who each get so many pods by name.
fn pods_of(users: usize, names: usize) -> String {
    let asked = (0..users).flat_map(|user| (0..names).map(move |name| (user, name)));
    let line = |(user, name): (usize, usize)| {
        let attributes =
            json!({"verb": "get", "resource": "pods", "namespace": "shop", "name": format!("pod-{name}")});
        let line = json!({"cluster": "default", "endpoint": "authorize", "user": format!("user-{user}"),
            "attributes": attributes, "decision": "allow", "cause": {"kind": "RoleBinding", "name": "b", "rule": 0}});
        format!("{line}\n")
    };
    asked.map(line).collect()
}

#[test]
fn what_takes_more_memory_than_a_user_or_all_may_is_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("decisions.log");
    let kept = |text: &str, bytes: usize, max_names: Option<usize>| {
        std::fs::write(&log, text).unwrap();
        let command = suggest(WideningOptions {
            max_names,
            ..WideningOptions::default()
        });
        let mut gathered = CollectedLogs {
            memory: RequestMemory::new(bytes),
            ..CollectedLogs::default()
        };
        command.gather(std::slice::from_ref(&log), &mut gathered).unwrap();
        let left_out = gathered
            .left_out
            .get(&OmissionReason::NoRoom)
            .map_or(0, |(count, _)| *count);
        let usage = &gathered.usage["default"];
        let names = usage.users.values().flat_map(|user| user.resources.values());
        let names: Vec<usize> = names
            .map(|names| match names {
                UsedNames::Any => usize::MAX,
                UsedNames::Only(names) => names.len(),
            })
            .collect();
        (names, left_out)
    };
    let part = 64 << 10;
    let (of_one, left_out) = kept(&pods_of(1, 1_000), 8 * part, None);
    assert!((20..200).contains(&of_one[0]), "{of_one:?}");
    assert_eq!(left_out, 1_000 - u64::try_from(of_one[0]).unwrap());
    let (of_two, _) = kept(&pods_of(2, 1_000), 8 * part, None);
    assert_eq!(of_two, [of_one[0]; 2], "one leaves the other its part");
    let (of_many, left_out) = kept(&pods_of(1_000, 1), 8 * part, None);
    assert!(
        of_many.len() < 200 && left_out > 800,
        "{} {left_out}",
        of_many.len()
    );
    // What is widened takes the room of its names no more.
    let (widened, left_out) = kept(&pods_of(1, 1_000), 8 * part, Some(10));
    assert_eq!((widened, left_out), (vec![usize::MAX], 0));
}

#[test]
fn logs_of_too_many_clusters_or_objects_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("decisions.log");
    let gather = |lines: String| {
        std::fs::write(&log, lines).unwrap();
        let error = suggest(WideningOptions::default())
            .gather(std::slice::from_ref(&log), &mut CollectedLogs::default());
        error.unwrap_err().to_string()
    };
    let line = |cluster: usize| format!("{{\"cluster\":\"c-{cluster}\",\"endpoint\":\"authorize\"}}\n");
    let error = gather((0..=MAX_CLUSTERS).map(line).collect());
    assert!(error.contains("choose one with `--cluster`"), "{error}");
    // A name of a megabyte counts as many.
    let long = "x".repeat(900_000);
    let line = |number: usize| format!("{{\"cause\":{{\"kind\":\"{long}\",\"name\":\"{number}\"}}}}\n");
    let error = gather((0..300).map(line).collect());
    assert!(error.contains("name fewer logs"), "{error}");
}
