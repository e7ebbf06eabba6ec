use super::*;
use crate::document;
use crate::manifest::ValidatedObject;
use crate::model::User;

/// A webhook that is called about everything, where `more` says nothing else.
const ALL: &str = r#"{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: ["*"]}"#;

fn since() -> Time {
    Time::UNIX_EPOCH
}

/// Long enough after it was written.
fn later() -> Time {
    since().plus_seconds(TAKES_EFFECT_SECONDS)
}

fn webhook(kind: &str, rules: &str, more: &str) -> Arc<Webhook> {
    let text = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: portcullis}}\nwebhooks:\n\
         - name: a.example.com\n  clientConfig: {{url: 'https://gateway/validate'}}\n  rules: [{rules}]\n  \
         sideEffects: None\n  admissionReviewVersions: [v1]\n  {more}\n"
    );
    let document = document::parse(None, &text).unwrap().remove(0);
    let read = ValidatedObject::read(document, "c".into(), Version::NEWEST);
    let object = read.unwrap_or_else(|faults| panic!("{faults}"));
    Arc::clone(&object.webhooks()[0])
}

fn registrations(rules: &str, more: &str) -> GatewayWebhooks {
    let webhook = webhook("ValidatingWebhookConfiguration", rules, more);
    let one = Registration::new(Phase::Validate, webhook, Some(since()), None);
    GatewayWebhooks::new(vec![one], Equivalents::kubernetes(), Version::NEWEST)
}

/// `create pods/exec NAMESPACE/NAME`, by ann; apps for resources of that group.
fn review(text: &str) -> Attributes<'static> {
    let mut words = text.split(' ');
    let (verb, resource) = (words.next().unwrap(), words.next().unwrap());
    let (namespace, name) = words
        .next()
        .and_then(|place| place.split_once('/'))
        .unwrap_or_default();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let group = if resource == "deployments" { "apps" } else { "" };
    let request = ResourceAttributes {
        verb: verb.to_owned().into(),
        group: group.into(),
        version: "v1".into(),
        resource: resource.to_owned().into(),
        subresource: subresource.to_owned().into(),
        namespace: namespace.to_owned().into(),
        name: name.to_owned().into(),
        ..ResourceAttributes::default()
    };
    Attributes {
        user: User {
            name: "ann".into(),
            groups: vec!["dev".into()],
            ..User::default()
        },
        target: Target::Resource(Box::new(request)),
    }
}

fn why_not_at(now: Time, registrations: &GatewayWebhooks, text: &str) -> Option<String> {
    let attributes = review(text);
    let Target::Resource(request) = &attributes.target else {
        panic!()
    };
    let is_cluster_scoped = is_known_cluster_scoped(&request.group, &request.resource);
    registrations.why_not_covered(&attributes, is_cluster_scoped, (now, Deadline::NEVER))
}

/// Whether the request is covered by a webhook with these `rules` and what `more` says.
#[track_caller]
fn assert_covers(rules: &str, more: &str, text: &str, expected: bool) {
    let why = why_not_at(later(), &registrations(rules, more), text);
    assert_eq!(why.is_none(), expected, "{rules} {more} {text}: {why:?}");
}

#[test]
fn what_a_webhook_says_of_itself_must_leave_nothing_open() {
    let condition =
        |expression: &str| format!("matchConditions: [{{name: one, expression: \"{expression}\"}}]");
    for (more, expected) in [
        ("", true),
        ("failurePolicy: Fail", true),
        ("failurePolicy: Ignore", false),
        ("objectSelector: {matchLabels: {a: b}}", false),
        ("objectSelector: {}", true),
        ("namespaceSelector: {matchLabels: {team: a}}", false),
        (
            "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}",
            true,
        ),
        (
            "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}",
            false,
        ),
        (&condition("request.operation == 'CREATE'"), true),
        (&condition("request.userInfo.username != 'ann'"), false),
        (&condition("'dev' in request.userInfo.groups"), true),
        (
            &condition("request.namespace == 'ns' && !has(request.subResource)"),
            true,
        ),
        (
            &condition("request.resource.resource == 'pods' && request.requestResource.group == ''"),
            true,
        ),
        (&condition("request.resource.version == 'v1'"), false),
        (
            &condition("dyn(request.resource) != dyn({'group': '', 'version': 'v1', 'resource': 'pods'})"),
            false,
        ),
        (&condition("dyn(request) != dyn(1)"), false),
        (&condition("request.kind.kind == 'Pod'"), false),
        (&condition("request.name == 'a'"), false),
        (&condition("!has(request.name)"), false),
        (&condition("!request.dryRun"), false),
        (&condition("has(object.metadata)"), false),
        (&condition("object == null"), false),
        (&condition("oldObject == null"), false),
        (
            &condition("object.spec.x == 1 || request.operation == 'CREATE'"),
            true,
        ),
        (
            &condition("authorizer.group('').resource('pods').check('get').allowed()"),
            false,
        ),
    ] {
        assert_covers(ALL, more, "create pods ns/", expected);
    }
}

#[test]
fn a_rule_covers_every_operation_as_which_a_request_may_come() {
    let of = |operations: &str, resources: &str| {
        format!(
            r#"{{apiGroups: [""], apiVersions: [v1], resources: [{resources}], operations: [{operations}]}}"#
        )
    };
    for (operations, resources, text, expected) in [
        ("CREATE", "pods", "create pods ns/", true),
        ("CREATE", "services", "create pods ns/", false),
        ("CREATE", "pods", "create pods/exec ns/a", false),
        ("CREATE", "'*/*'", "create pods/exec ns/a", false),
        ("CONNECT", "'*/*'", "create pods/exec ns/a", true),
        ("CONNECT", "pods", "get pods/exec ns/a", false),
        ("CONNECT", "pods/exec", "get pods/exec ns/a", true),
        ("UPDATE", "pods", "patch pods ns/a", false),
        ("'UPDATE', CREATE", "pods", "patch pods ns/a", true),
        ("'UPDATE', CREATE", "pods", "update pods ns/a", true),
        ("'UPDATE', CREATE", "'*'", "update pods/status ns/a", false),
        ("'UPDATE', CREATE", "pods/*", "update pods/status ns/a", true),
        ("DELETE", "pods", "deletecollection pods ns/", true),
        ("CREATE", "pods", "delete pods ns/a", false),
        ("CREATE, UPDATE, DELETE", "pods", "frob pods ns/a", false),
    ] {
        assert_covers(&of(operations, resources), "", text, expected);
    }
}

#[test]
fn a_request_is_covered_in_whichever_version_it_comes() {
    let of = |group: &str, version: &str| {
        format!(
            "{{apiGroups: [{group}], apiVersions: [{version}], resources: [deployments], operations: [CREATE]}}"
        )
    };
    for (rule, policy, expected) in [
        (of("apps", "v1"), "Equivalent", true),
        (of("apps", "v1"), "Exact", false),
        (of("apps", "'*'"), "Exact", true),
        (of("apps", "v9"), "Equivalent", false),
        (of("extensions", "v1beta1"), "Equivalent", false),
    ] {
        assert_covers(
            &rule,
            &format!("matchPolicy: {policy}"),
            "create deployments ns/",
            expected,
        );
    }
}

#[test]
fn the_namespace_alone_decides() {
    let but = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, \
               values: [kube-system]}]}";
    for (text, expected) in [
        ("create pods ns/", true),
        ("create pods kube-system/", false),
        // Of no namespace that is known.
        ("create pods", false),
        ("create persistentvolumes", true),
        ("update namespaces ns/ns", true),
        ("update namespaces kube-system/kube-system", false),
        ("create namespaces", false),
    ] {
        assert_covers(ALL, but, text, expected);
    }
    assert_covers(ALL, "", "create pods", true);
    assert_covers(ALL, "", "create namespaces", true);
    let scope = ALL.replace('}', ", scope: Namespaced}");
    assert_covers(&scope, "", "create persistentvolumes", false);
}

#[test]
fn a_new_configuration_counts_once_every_api_server_follows_it() {
    let all = registrations(ALL, "");
    let early = why_not_at(since().plus_seconds(9), &all, "create pods ns/").unwrap();
    assert!(early.contains("less than 10 seconds ago"), "{early}");
    assert_eq!(why_not_at(later(), &all, "create pods ns/"), None);
    let webhook = webhook("ValidatingWebhookConfiguration", ALL, "");
    let undated = Registration::new(Phase::Validate, Arc::clone(&webhook), None, None);
    let elsewhere = Registration::new(
        Phase::Validate,
        Arc::clone(&webhook),
        Some(since()),
        Some("no".to_owned()),
    );
    let mutating = Registration::new(Phase::Mutate, webhook, Some(since()), None);
    for one in [undated, elsewhere, mutating] {
        let all = GatewayWebhooks::new(vec![one], Equivalents::kubernetes(), Version::NEWEST);
        assert!(why_not_at(later(), &all, "create pods ns/").is_some(), "{all:?}");
    }
}

#[test]
fn objects_are_covered_since_both_kinds_of_webhook_have_been_called_for_them_and_their_status() {
    let at = |seconds: i64| since().plus_seconds(seconds);
    let registration = |phase, rules: &str, more: &str, since| {
        let kind = match phase {
            Phase::Validate => "ValidatingWebhookConfiguration",
            Phase::Mutate => "MutatingWebhookConfiguration",
        };
        Registration::new(phase, webhook(kind, rules, more), Some(since), None)
    };
    let own = |resources: &str, operations: &str| {
        format!(
            "{{apiGroups: [portcullis.dev], apiVersions: ['*'], resources: [{resources}], operations: [{operations}]}}"
        )
    };
    let covered = |all: Vec<Registration>| {
        let all = GatewayWebhooks::new(all, Equivalents::kubernetes(), Version::NEWEST);
        all.covered_since("portcullis.dev", "authorizationpolicies")
    };
    let whole = own(
        "authorizationpolicies, authorizationpolicies/status",
        "CREATE, UPDATE",
    );
    let both = |mutating: &str, more: &str| {
        vec![
            registration(Phase::Validate, &whole, "", at(100)),
            registration(Phase::Mutate, mutating, more, at(200)),
        ]
    };
    assert_eq!(covered(both(&whole, "")), Some(at(200 + TAKES_EFFECT_SECONDS)));
    let condition = "matchConditions: [{name: one, expression: 'true'}]";
    assert_eq!(covered(both(&whole, condition)), None);
    assert_eq!(
        covered(both(&own("authorizationpolicies", "CREATE, UPDATE"), "")),
        None
    );
    assert_eq!(
        covered(both(&own("authorizationpolicies/status", "CREATE, UPDATE"), "")),
        None
    );
    assert_eq!(covered(both(&own("'*/*'", "UPDATE"), "")), None);
    assert_eq!(covered(both(&whole, "failurePolicy: Ignore")), None);
    assert_eq!(
        covered(both(&whole, "").split_off(1)),
        None,
        "it is validated by nobody"
    );
    // Two of one kind may share it.
    let mut split = both(&own("authorizationpolicies", "CREATE, UPDATE"), "");
    split.push(registration(
        Phase::Mutate,
        &own("authorizationpolicies/status", "UPDATE"),
        "",
        at(300),
    ));
    assert_eq!(covered(split), Some(at(300 + TAKES_EFFECT_SECONDS)));
    // The one that came later adds nothing.
    let mut more = both(&whole, "");
    more.push(registration(Phase::Mutate, &whole, "", at(500)));
    assert_eq!(covered(more), Some(at(200 + TAKES_EFFECT_SECONDS)));
}
