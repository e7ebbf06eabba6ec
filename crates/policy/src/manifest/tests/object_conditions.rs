//! objectConditions: what they may stand beside, what they grant at `/authorize`, and what `/validate`
//! refuses once the object is known.

mod reference;
mod replicas;

use std::collections::BTreeSet;

use super::*;
use crate::admission::{
    AdmissionSet, AdmissionSettings, Chain, GrantReview, GroupVersionKind, GroupVersionResource, Operation,
    Outcome, Phase, Request, RunOptions,
};
use crate::authorization::{PolicySet, ReviewedResources};
use crate::model::Deadline;
use portcullis_cel::json::Document as JsonDocument;

const HEAD: &str = "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\n";

/// A policy for everybody with the given fields of its spec.
fn policy(name: &str, effect: &str, rule: &str, more: &str) -> String {
    format!(
        "{HEAD}metadata: {{name: {name}}}\nspec:\n  effect: {effect}\n  subjects: [{{kind: Group, name: dev}}]\n  \
         resourceRules: [{{{rule}}}]\n  {more}\n"
    )
}

const PODS: &str =
    r#"verbs: [create, update, patch, delete, deletecollection], apiGroups: [""], resources: [pods]"#;
const GOOD: &str = r#"objectConditions: [{name: good, expression: "object.metadata.labels.is == 'good'"}]"#;

/// The policies of `text`, for a cluster of which `/validate` is known to see everything.
fn policies_of(text: &str) -> PolicySet {
    policies_reviewed(text, ReviewedResources::default())
}

fn policies_reviewed(text: &str, reviewed: ReviewedResources) -> PolicySet {
    let mut faults = Faults::new();
    let objects = objects(
        &[Source {
            cluster: Some("c".into()),
            ..source(text)
        }],
        &mut faults,
    );
    assert!(!faults.has_errors(), "{faults}");
    let options = Options {
        clusters: BTreeSet::from(["c".to_owned()]),
        reviewed: [("c".to_owned(), reviewed)].into(),
        ..Options::default()
    };
    let manifests = assemble(&objects, &options);
    (**manifests.policies.for_cluster("c")).clone()
}

fn user(name: &str, groups: &[&str]) -> User<'static> {
    User {
        name: name.to_owned().into(),
        groups: groups.iter().map(|group| (*group).to_owned().into()).collect(),
        ..User::default()
    }
}

/// `create pods/exec NAME`, in the namespace `ns`.
fn review(user: User<'static>, text: &str) -> Attributes<'static> {
    let mut words = text.split(' ');
    let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        user,
        target: Target::Resource(Box::new(ResourceAttributes {
            verb: verb.to_owned().into(),
            resource: resource.to_owned().into(),
            subresource: subresource.to_owned().into(),
            namespace: "ns".into(),
            name: words.next().unwrap_or_default().to_owned().into(),
            ..ResourceAttributes::default()
        })),
    }
}

fn at(seconds: i64) -> Time {
    Time::UNIX_EPOCH.plus_seconds(seconds)
}

fn authorizes(set: &PolicySet, text: &str) -> Decision {
    set.authorize(&review(user("ann", &["dev"]), text), Time::UNIX_EPOCH)
        .decision
}

/// What admission shows of a request.
struct Shown<'s> {
    operation: Operation,
    resource: &'s str,
    name: &'s str,
    /// The label `is` of the object.
    is: &'s str,
    user: User<'static>,
    now: Time,
}

fn shown<'s>(operation: Operation, resource: &'s str, name: &'s str, is: &'s str) -> Shown<'s> {
    Shown {
        operation,
        resource,
        name,
        is,
        user: user("ann", &["dev"]),
        now: Time::UNIX_EPOCH,
    }
}

fn validate_with(set: &PolicySet, shown: &Shown<'_>, is_allowed_elsewhere: bool) -> Outcome {
    let name = if shown.name.is_empty() { "old" } else { shown.name };
    let text = format!(
        r#"{{"metadata": {{"name": "{name}", "labels": {{"is": "{}"}}}}}}"#,
        shown.is
    );
    let object = JsonDocument::parse(text).unwrap();
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
    };
    let (resource, subresource) = shown.resource.split_once('/').unwrap_or((shown.resource, ""));
    let resource = GroupVersionResource {
        group: "".into(),
        version: "v1".into(),
        resource: resource.to_owned().into(),
    };
    let is_deleted = shown.operation == Operation::Delete;
    let request = Request {
        uid: "u".into(),
        kind: kind.clone(),
        resource: resource.clone(),
        subresource: subresource.to_owned().into(),
        request_kind: kind,
        request_resource: resource,
        name: shown.name.to_owned().into(),
        namespace: "ns".into(),
        operation: shown.operation,
        user: shown.user.clone(),
        object: (!is_deleted).then(|| object.root()),
        old_object: matches!(shown.operation, Operation::Update | Operation::Delete).then(|| object.root()),
        options: None,
        dry_run: false,
        written: object.root(),
    };
    let run = RunOptions {
        reauthorization: Some(GrantReview {
            policies: set,
            is_allowed_elsewhere,
        }),
        ..RunOptions::new(set, shown.now)
    };
    let admission = AdmissionSet::new(<_>::default(), &AdmissionSettings::default());
    Chain::run(Phase::Validate, &admission, &request, run, &mut |_| {
        unreachable!("no webhook")
    })
}

/// Why `/validate` refuses it; empty where it does not.
fn refusal(set: &PolicySet, shown: &Shown<'_>) -> String {
    let outcome = validate_with(set, shown, false);
    outcome.denial.map(|denial| denial.message).unwrap_or_default()
}

fn passes(set: &PolicySet, operation: Operation, resource: &str, name: &str, is: &str) -> bool {
    refusal(set, &shown(operation, resource, name, is)).is_empty()
}

#[test]
fn what_object_conditions_may_not_stand_beside_is_told() {
    let text = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: a}
spec:
  effect: Limit
  subjects: [{kind: Group, name: dev}]
  resourceRules:
  - {verbs: ["*", get, list, create], apiGroups: ["*", authorization.k8s.io], resources: ["*", "pods/*", "*/scale"]}
  - {verbs: [update], apiGroups: [""], resources: [nodes/proxy, pods/finalizers, resourceclaims/driver, pods]}
  - {verbs: [get, deletecollection], apiGroups: [""], resources: [pods/exec]}
  - {verbs: [get], apiGroups: [""], resources: [pods/exec, pods]}
  - {verbs: [create], apiGroups: [""], resources: [pods], selectors: {label: [{key: a, operator: Exists}]}}
  nonResourceRules: [{verbs: [get], paths: [/a]}]
  objectConditions:
  - {name: a, expression: "object.x == "}
  - {name: b, expression: "request.resourceAttributes.verb == 'get'"}
  - {name: b, expression: "variables.x"}
"#;
    assert_eq!(
        paths(text),
        [
            "spec.objectConditions[0].expression: Invalid value",
            "spec.objectConditions[1].expression: Invalid value",
            "spec.objectConditions[2].name: Duplicate value",
            "spec.objectConditions[2].expression: Invalid value",
            "spec.objectConditions: Forbidden",
            "spec.nonResourceRules: Forbidden",
            "spec.resourceRules[0].apiGroups[0]: Forbidden",
            "spec.resourceRules[0].apiGroups[1]: Forbidden",
            "spec.resourceRules[0].resources[0]: Forbidden",
            "spec.resourceRules[0].resources[1]: Forbidden",
            "spec.resourceRules[0].resources[2]: Forbidden",
            "spec.resourceRules[0].verbs[0]: Forbidden",
            "spec.resourceRules[0].verbs[1]: Forbidden",
            "spec.resourceRules[0].verbs[2]: Forbidden",
            "spec.resourceRules[1].resources[0]: Forbidden",
            "spec.resourceRules[1].resources[1]: Forbidden",
            "spec.resourceRules[1].resources[2]: Forbidden",
            "spec.resourceRules[2].verbs[1]: Forbidden",
            "spec.resourceRules[3].verbs[0]: Forbidden",
            "spec.resourceRules[4].selectors: Forbidden",
        ]
    );
}

#[test]
fn an_allow_grants_only_what_validate_is_known_to_see_of_whom_it_refuses() {
    let rule = r#"verbs: [create, update], apiGroups: [""], resources: [pods, pods/status, pods/binding, events, nodes]"#;
    let everybody = policy("a", "Allow", rule, GOOD).replace("name: dev", "name: '*'");
    let set = policies_of(&everybody);
    assert_eq!(authorizes(&set, "create pods"), Decision::Allow);
    for left_out in [
        "update pods/status p",
        "create pods/binding p",
        "create events",
        "create nodes",
    ] {
        assert_eq!(authorizes(&set, left_out), Decision::NoOpinion, "{left_out}");
    }
    // The registrations leave out these namespaces, the second where the gateway is in it.
    for (namespace, expected) in [("ns", Decision::Allow), ("kube-system", Decision::NoOpinion)] {
        let mut asked = review(user("ann", &["dev"]), "create pods");
        if let Target::Resource(resource) = &mut asked.target {
            resource.namespace = namespace.into();
        }
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            expected,
            "{namespace}"
        );
    }
    let inside = policies_reviewed(
        &everybody,
        ReviewedResources {
            own_namespace: Some("ns".to_owned()),
            ..ReviewedResources::default()
        },
    );
    assert_eq!(authorizes(&inside, "create pods"), Decision::NoOpinion);
    for never_refused in [
        user("root", &["system:masters"]),
        user("system:kube-scheduler", &[]),
    ] {
        let asked = review(never_refused, "create pods");
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            Decision::NoOpinion
        );
    }
    // Where nobody says what `/validate` sees.
    let unknown = PolicySet::new(
        crate::authorization::Objects {
            policies: set.authorization_policies().cloned().collect(),
            ..<_>::default()
        },
        set.never_deny(),
    );
    assert_eq!(authorizes(&unknown, "create pods"), Decision::NoOpinion);
    let why = unknown.unmatched(&review(user("ann", &["dev"]), "create pods"), Time::UNIX_EPOCH);
    assert!(why.to_string().contains("set `admission`"), "{why}");
}

#[test]
fn a_custom_resource_is_granted_only_where_a_definition_tells_of_it() {
    let rule = "verbs: [create], apiGroups: [example.com], resources: [widgets, gadgets]";
    let mut faults = Faults::new();
    let read = objects(
        &[Source {
            cluster: Some("c".into()),
            ..source(&policy("a", "Allow", rule, GOOD))
        }],
        &mut faults,
    );
    let options = Options {
        reviewed: [(
            "c".to_owned(),
            ReviewedResources {
                custom: Arc::new([("example.com".to_owned(), "widgets".to_owned())].into()),
                ..ReviewedResources::default()
            },
        )]
        .into(),
        ..Options::default()
    };
    let manifests = assemble(&read, &options);
    for (resource, expected) in [("widgets", Decision::Allow), ("gadgets", Decision::NoOpinion)] {
        let mut asked = review(user("ann", &["dev"]), &format!("create {resource}"));
        if let Target::Resource(resource) = &mut asked.target {
            resource.group = "example.com".into();
        }
        let set = manifests.policies.for_cluster("c");
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            expected,
            "{resource}"
        );
    }
}

#[test]
fn what_only_object_conditions_allow_must_meet_them() {
    let set = policies_of(&policy("images", "Allow", PODS, GOOD));
    for (operation, name) in [
        (Operation::Create, "p"),
        (Operation::Create, ""),
        (Operation::Update, "p"),
    ] {
        assert!(
            passes(&set, operation, "pods", name, "good"),
            "{operation:?} {name}"
        );
        let refused = refusal(&set, &shown(operation, "pods", name, "bad"));
        assert!(
            refused.ends_with(
                "allowed only where objectConditions hold, which do not: AuthorizationPolicy \"images\": `good` is false"
            ),
            "{refused}"
        );
    }
    // Of what is deleted there is no object: the condition errors, and does not hold.
    for name in ["p", ""] {
        assert!(!passes(&set, Operation::Delete, "pods", name, "good"), "{name}");
    }
    let outcome = validate_with(&set, &shown(Operation::Create, "pods", "p", "bad"), false);
    let denial = outcome.denial.unwrap();
    assert_eq!((denial.code, &*denial.reason), (403, "Forbidden"));
    assert_eq!(outcome.cause.unwrap().name, "images");
    // What no conditional rule of the user's is about, or another authorizer allows, is let by.
    assert!(passes(&set, Operation::Create, "secrets", "s", "bad"));
    assert!(passes(&set, Operation::Create, "pods/eviction", "p", "bad"));
    let elsewhere = validate_with(&set, &shown(Operation::Create, "pods", "p", "bad"), true);
    assert!(elsewhere.denial.is_none());
    let others = Shown {
        user: user("bob", &["ops"]),
        ..shown(Operation::Create, "pods", "p", "bad")
    };
    assert_eq!(refusal(&set, &others), "");
}

#[test]
fn whom_nothing_refuses_is_not_refused() {
    let everybody = policy("a", "Allow", PODS, GOOD).replace("name: dev", "name: '*'")
        + &policy("b", "Deny", PODS, GOOD.replace("good'", "bad'").as_str())
            .replace("name: dev", "name: '*'");
    let set = policies_of(&everybody);
    for (user, is_refused) in [
        (user("root", &["system:masters"]), false),
        (user("system:kube-scheduler", &[]), false),
        (user("ann", &["dev"]), true),
    ] {
        let shown = Shown {
            user,
            ..shown(Operation::Create, "pods", "p", "bad")
        };
        assert_eq!(!refusal(&set, &shown).is_empty(), is_refused, "{:?}", shown.user);
    }
}

#[test]
fn an_unconditional_allow_of_any_fitting_verb_passes() {
    let conditional = policy("a", "Allow", PODS, GOOD);
    for (verbs, operation, name, expected) in [
        ("update", Operation::Update, "p", true),
        ("patch", Operation::Update, "p", true),
        ("create", Operation::Update, "p", false),
        ("create", Operation::Create, "p", true),
        ("patch", Operation::Create, "p", false),
        ("patch, create", Operation::Create, "", true),
        ("delete", Operation::Delete, "p", true),
        ("delete", Operation::Delete, "", true),
        ("deletecollection", Operation::Delete, "", true),
        ("deletecollection", Operation::Delete, "p", false),
    ] {
        let rule = format!(r#"verbs: [{verbs}], apiGroups: [""], resources: [pods]"#);
        let set = policies_of(&(conditional.clone() + &policy("b", "Allow", &rule, "")));
        assert_eq!(
            passes(&set, operation, "pods", name, "bad"),
            expected,
            "{verbs} {operation:?} {name}"
        );
    }
}

#[test]
fn a_name_does_not_help_an_apply_that_creates() {
    let rule = r#"verbs: [patch, create], apiGroups: [""], resources: [pods], names: [p]"#;
    let set = policies_of(&policy("a", "Allow", rule, GOOD));
    // Both reviews of an apply name the object.
    assert_eq!(authorizes(&set, "patch pods p"), Decision::Allow);
    assert_eq!(authorizes(&set, "create pods p"), Decision::Allow);
    assert!(passes(&set, Operation::Create, "pods", "p", "good"));
    assert!(!passes(&set, Operation::Create, "pods", "p", "bad"));
    // Another name was allowed by somebody else.
    assert!(passes(&set, Operation::Create, "pods", "q", "bad"));
}

#[test]
fn a_name_in_a_field_selector_does_not_help_a_deletion_of_many() {
    let rule = r#"verbs: [deletecollection], apiGroups: [""], resources: [pods], names: [old]"#;
    let conditions =
        r#"objectConditions: [{name: good, expression: "oldObject.metadata.labels.is == 'good'"}]"#;
    let set = policies_of(&policy("a", "Allow", rule, conditions));
    // As `deletecollection` with `metadata.name=old` is asked about.
    assert_eq!(authorizes(&set, "deletecollection pods old"), Decision::Allow);
    assert!(passes(&set, Operation::Delete, "pods", "", "good"));
    assert!(!passes(&set, Operation::Delete, "pods", "", "bad"));
}

#[test]
fn what_an_aggregated_api_server_serves_is_not_granted() {
    let rule = "verbs: [create], apiGroups: [metrics.k8s.io, apps], resources: [pods, deployments]";
    let set = policies_of(&policy("a", "Allow", rule, GOOD));
    for (group, resource, expected) in [
        ("metrics.k8s.io", "pods", Decision::NoOpinion),
        ("apps", "deployments", Decision::Allow),
    ] {
        let mut asked = review(user("ann", &["dev"]), &format!("create {resource}"));
        if let Target::Resource(resource) = &mut asked.target {
            resource.group = group.into();
        }
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            expected,
            "{group}"
        );
    }
}

#[test]
fn every_verb_by_which_something_may_connect_counts() {
    let connect = |verbs: &str, name: &str, more: &str| {
        let rule = format!(r#"verbs: [{verbs}], apiGroups: [""], resources: [pods/exec]"#);
        policy(name, "Allow", &rule, more)
    };
    let set = policies_of(&(connect("get", "a", "") + &connect("create", "b", GOOD)));
    assert!(passes(&set, Operation::Connect, "pods/exec", "p", "good"));
    assert!(!passes(&set, Operation::Connect, "pods/exec", "p", "bad"));
    assert!(passes(&set, Operation::Connect, "pods/attach", "p", "bad"));
    let set = policies_of(&(connect("get, create", "a", "") + &connect("create", "b", GOOD)));
    assert!(passes(&set, Operation::Connect, "pods/exec", "p", "bad"));
}

#[test]
fn a_deny_refuses_at_validate_alone() {
    let bad = GOOD.replace("== 'good'", "== 'bad'");
    let allow = policy(
        "all",
        "Allow",
        r#"verbs: ["*"], apiGroups: ["*"], resources: ["*"]"#,
        "",
    );
    let set =
        policies_of(&(allow.clone() + &policy("d", "Deny", PODS, &format!("{bad}\n  reason: no bad pods"))));
    assert_eq!(authorizes(&set, "create pods"), Decision::Allow);
    assert!(passes(&set, Operation::Create, "pods", "p", "good"));
    assert_eq!(
        refusal(&set, &shown(Operation::Create, "pods", "p", "bad")),
        "pods \"p\" is forbidden: denied by AuthorizationPolicy \"d\": no bad pods"
    );
    // What errors is refused, or let by where the policy says so.
    assert!(!passes(&set, Operation::Delete, "pods", "p", "good"));
    let lenient = format!("{bad}\n  failurePolicy: NoOpinion");
    let set = policies_of(&(allow.clone() + &policy("d", "Deny", PODS, &lenient)));
    assert!(passes(&set, Operation::Delete, "pods", "p", "good"));
    assert!(!passes(&set, Operation::Update, "pods", "p", "bad"));
    // In Shadow it is reported.
    let shadow = format!("{bad}\n  mode: Shadow");
    let set = policies_of(&(allow + &policy("d", "Deny", PODS, &shadow)));
    let outcome = validate_with(&set, &shown(Operation::Create, "pods", "p", "bad"), false);
    assert!(outcome.denial.is_none());
    assert_eq!(outcome.policy_shadows.len(), 1);
    assert_eq!(outcome.policy_shadows[0].decision, Decision::Deny);
}

#[test]
fn expressions_ask_what_is_allowed_whatever_the_object_is() {
    let set = policies_of(&policy("a", "Allow", PODS, GOOD));
    let asked = review(user("ann", &["dev"]), "create pods");
    let answer = crate::admission::AccessChecker::answer(&set, &asked, Time::UNIX_EPOCH, Deadline::NEVER);
    assert!(!answer.allowed);
}
