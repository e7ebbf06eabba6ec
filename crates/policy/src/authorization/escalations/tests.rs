mod one_by_one;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::OWN_NAMESPACES;
use super::actors::{Question, QuestionName, StepTarget};
use super::*;
use crate::authorization::fixtures::{self, asks, binding, policy, role, rule, texts, user, words};
use crate::authorization::{
    AuthorizationPolicy, Binding, Effect, Objects, ResourceRule, Role, RoleKind, RoleRef, Rule, Subject,
    SubjectKind,
};
use crate::model::{Deadline, Time};
use crate::model::{Decision, User};

fn grants(verbs: &[&str], resources: &[&str]) -> Rule {
    Rule {
        verbs: words(verbs),
        api_groups: words(&["*"]),
        resources: words(resources),
        ..Rule::default()
    }
}

fn find(objects: &Objects, from: Option<Subject>, to: EscalationTarget) -> Escalations {
    let set = fixtures::set(objects.clone());
    let query = EscalationQuery {
        from,
        to,
        accounts: Vec::new(),
    };
    set.escalations(&query, Time::UNIX_EPOCH, Deadline::NEVER)
        .unwrap()
}

/// `Group /dev: create pods in a -> ServiceAccount a/x; …`.
fn in_words(path: &EscalationPath) -> String {
    let name = |identity: &Identity| {
        let Identity {
            kind,
            namespace,
            name,
        } = identity;
        format!("{kind} {namespace}/{name}")
    };
    let steps = path.steps.iter();
    let steps: Vec<String> = steps
        .map(|step| format!("{} -> {}", step.by, name(&step.becomes)))
        .collect();
    format!("{}: {}", name(&path.from), steps.join("; "))
}

#[test]
fn who_creates_pods_gets_at_the_accounts_of_the_namespace() {
    let objects = Objects {
        roles: vec![
            role("", "deploy", vec![grants(&["create"], &["pods"])]),
            role("", "all", vec![grants(&["*"], &["*"])]),
        ],
        bindings: vec![
            binding("ci", "dev", "deploy", vec![Subject::group("dev")]),
            binding(
                "",
                "builder",
                "all",
                vec![Subject::service_account("ci", "builder")],
            ),
        ],
        ..Objects::default()
    };
    let found = find(&objects, None, EscalationTarget::ClusterAdmin);
    let words: Vec<String> = found.paths.iter().map(in_words).collect();
    assert!(
        words.contains(&"Group /dev: create pods in ci -> ServiceAccount ci/builder".to_owned()),
        "{words:?}"
    );
    let dev = found.paths.iter().find(|path| path.from.name == "dev").unwrap();
    assert_eq!(dev.to.name, "cluster-admin");
    assert_eq!(dev.steps[0].via[0].name, "dev");
}

#[test]
fn who_writes_for_a_controller_gets_at_its_account_where_it_looks() {
    let account = Subject::service_account;
    let deployer = |verbs: &[&str], resources: &[&str], place: &str, name: &str| {
        let objects = Objects {
            roles: vec![
                role("", "write", vec![grants(verbs, resources)]),
                role("", "all", vec![grants(&["*"], &["*"])]),
            ],
            bindings: vec![
                binding(place, "dev", "write", vec![Subject::group("dev")]),
                binding(
                    "",
                    "flux",
                    "all",
                    vec![account("flux-system", "kustomize-controller")],
                ),
                binding(
                    "",
                    "argo",
                    "all",
                    vec![account("argocd", "argocd-application-controller")],
                ),
                binding("", "ci", "all", vec![account("ci", "builder")]),
            ],
            ..Objects::default()
        };
        let found = find(
            &objects,
            Some(Subject::group("dev")),
            EscalationTarget::ClusterAdmin,
        );
        let path = found.paths.into_iter().next()?;
        assert!(path.steps.iter().all(|step| step.via[0].name == name), "{path:?}");
        Some((in_words(&path), path.steps[0].limits.join("; ")))
    };
    let (flux, limits) = deployer(&["patch"], &["kustomizations"], "apps", "dev").unwrap();
    let expected = "Group /dev: patch kustomizations -> ServiceAccount flux-system/kustomize-controller";
    assert_eq!(flux, expected);
    assert!(limits.contains("Flux"), "{limits}");
    let (argo, _) = deployer(&["create"], &["applications"], "argocd", "dev").unwrap();
    let expected =
        "Group /dev: create applications in argocd -> ServiceAccount argocd/argocd-application-controller";
    assert_eq!(argo, expected);
    assert_eq!(deployer(&["create"], &["applications"], "apps", "dev"), None);
    let (tekton, _) = deployer(&["create"], &["taskruns"], "ci", "dev").unwrap();
    assert_eq!(
        tekton,
        "Group /dev: create taskruns in ci -> ServiceAccount ci/builder"
    );
    let (exec, limits) = deployer(&["get"], &["pods/exec"], "ci", "dev").unwrap();
    assert_eq!(
        exec,
        "Group /dev: get pods/exec in ci -> ServiceAccount ci/builder"
    );
    assert!(limits.contains("1.35"), "{limits}");
    // To read is not to write.
    assert_eq!(deployer(&["get"], &["kustomizations"], "apps", "dev"), None);
}

#[test]
fn a_deny_refutes_a_step_and_is_named() {
    let mut no_pods = policy(Effect::Deny, "no-pods");
    no_pods.resource_rules = vec![rule(&["create"], &["pods"])];
    let objects = Objects {
        roles: vec![
            role("", "deploy", vec![grants(&["create"], &["pods"])]),
            role("", "all", vec![grants(&["*"], &["*"])]),
        ],
        bindings: vec![
            binding("ci", "dev", "deploy", vec![Subject::group("dev")]),
            binding(
                "",
                "builder",
                "all",
                vec![Subject::service_account("ci", "builder")],
            ),
        ],
        policies: vec![no_pods],
        ..Objects::default()
    };
    let found = find(
        &objects,
        Some(Subject::group("dev")),
        EscalationTarget::ClusterAdmin,
    );
    assert_eq!(found.paths, []);
    let [refuted] = &found.refuted[..] else {
        panic!("{found:?}");
    };
    assert_eq!(refuted.steps[0].refuted_by[0].name, "no-pods");
}

#[test]
fn a_deny_of_a_service_account_holds_up_only_groups_in_which_it_is() {
    let mut no_pods = policy(Effect::Deny, "no-pods");
    no_pods.subjects = vec![Subject::service_account("b", "default")];
    no_pods.resource_rules = vec![rule(&["create"], &["pods"])];
    let groups = ["dev", "system:serviceaccounts:a", "system:serviceaccounts:b"].map(Subject::group);
    let objects = Objects {
        roles: vec![role("", "all", vec![grants(&["*"], &["*"])])],
        bindings: vec![binding("", "all", "all", groups.into())],
        policies: vec![no_pods],
        ..Objects::default()
    };
    let found = find(&objects, None, EscalationTarget::ClusterAdmin);
    // The other groups may do everything: they need no step.
    let from: Vec<&str> = found.paths.iter().map(|path| path.from.name.as_str()).collect();
    assert!(from.contains(&"system:serviceaccounts:b"), "{from:?}");
    assert!(
        !from.contains(&"dev") && !from.contains(&"system:serviceaccounts:a"),
        "{from:?}"
    );
}
