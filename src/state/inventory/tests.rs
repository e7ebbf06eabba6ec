use super::*;
use portcullis_policy::admission::AdmissionSettings;
use portcullis_policy::manifest::{self, ObjectSet, Options, Source};

fn mk_policy(name: &str, effect: &str, mode: &str) -> String {
    format!(
        "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  effect: {effect}\n  mode: {mode}\n  subjects: [{{kind: User, name: joe}}]\n  nonResourceRules: [{{verbs: [get], paths: [/x]}}]\n"
    )
}

fn mk_source(text: String, cluster: Option<&str>) -> Source {
    Source {
        file: "policies.yaml".into(),
        text,
        cluster: cluster.map(str::to_owned),
    }
}

/// A policy on pods, and its binding with these actions.
fn mk_validating(name: &str, actions: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\nspec:\n  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n  validations: [{{expression: 'true'}}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\nspec: {{policyName: {name}, validationActions: {actions}}}\n"
    )
}

fn mk_set(sources: &[Source]) -> (ObjectSet, (ClusterPolicySets, AdmissionPolicies)) {
    let (objects, faults) = manifest::read(sources, &Options::default());
    let objects = objects.unwrap_or_else(|| panic!("{faults}"));
    let manifests = manifest::assemble(objects.objects(), &Options::default());
    let admission = manifests.admission(&AdmissionSettings::default());
    (objects, (manifests.policies, admission))
}

/// What vanished, as it is written.
fn vanished(
    before: &(ClusterPolicySets, AdmissionPolicies),
    after: &(ClusterPolicySets, AdmissionPolicies),
) -> Vec<String> {
    let found = super::removed_restrictions((&before.0, &before.1), (&after.0, &after.1));
    found.iter().map(ToString::to_string).collect()
}

fn since(after: &ObjectSet, before: &ObjectSet) -> Change {
    Change::of(&after.since(before))
}

#[test]
fn a_change_counts_and_names_objects() {
    let one = mk_policy("stays", "Deny", "Enforce") + &mk_policy("grows", "Allow", "Enforce");
    let two = mk_policy("stays", "Deny", "Enforce")
        + &mk_policy("grows", "Allow", "Shadow")
        + &mk_policy("comes", "Allow", "Enforce");
    let (before, _) = mk_set(&[mk_source(one, None)]);
    let (after, _) = mk_set(&[mk_source(two, None)]);
    let change = since(&after, &before);
    assert_eq!(
        change.describe(true),
        "1 object added (AuthorizationPolicy/comes), 1 object changed (AuthorizationPolicy/grows)"
    );
    assert_eq!(
        since(&before, &after).describe(false),
        "1 object changed, 1 object removed"
    );
}

#[test]
fn comments_and_order_are_no_change() {
    let (one, two) = (
        mk_policy("a", "Deny", "Enforce"),
        mk_policy("b", "Deny", "Enforce"),
    );
    let (before, _) = mk_set(&[mk_source(format!("{one}{two}"), None)]);
    let (after, _) = mk_set(&[mk_source(format!("# a comment\n{two}{one}"), None)]);
    assert_eq!(since(&after, &before), Change::default());
}

#[test]
fn a_deny_or_limit_that_is_gone_in_shadow_or_turned_to_allow_has_vanished() {
    let deny = |name| mk_policy(name, "Deny", "Enforce");
    let limit = mk_policy("unlimited", "Limit", "Enforce");
    let before = ["gone", "kept", "shadowed", "turned"].map(deny).concat() + &limit;
    let after = deny("kept")
        + &mk_policy("shadowed", "Deny", "Shadow")
        + &mk_policy("turned", "Allow", "Enforce")
        + &mk_policy("unlimited", "Limit", "Shadow");
    let (_, before) = mk_set(&[mk_source(before, None)]);
    let (_, after) = mk_set(&[mk_source(after, None)]);
    let expected = ["gone", "shadowed", "turned", "unlimited"];
    let expected = expected.map(|name| format!("AuthorizationPolicy/{name}"));
    assert_eq!(vanished(&before, &after), expected);
    assert!(vanished(&after, &after).is_empty());
}

#[test]
fn a_deny_that_now_holds_for_every_cluster_has_not_vanished() {
    let deny = mk_policy("d", "Deny", "Enforce");
    let (_, one) = mk_set(&[mk_source(deny.clone(), Some("east"))]);
    let (_, all) = mk_set(&[mk_source(deny, None)]);
    assert!(vanished(&one, &all).is_empty());
    assert_eq!(vanished(&all, &one), ["AuthorizationPolicy/d"]);
    let (_, none) = mk_set(&[]);
    assert_eq!(vanished(&one, &none), ["AuthorizationPolicy/east/d"]);
}

/// A configuration of validating webhooks with these names.
fn mk_webhooks(name: &str, webhooks: &[&str]) -> String {
    let webhook = |name: &&str| {
        format!(
            "  - {{name: {name}.example.com, clientConfig: {{url: 'https://127.0.0.1:1'}}, sideEffects: None, admissionReviewVersions: [v1], rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n"
        )
    };
    let webhooks: String = webhooks.iter().map(webhook).collect();
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: {name}}}\nwebhooks:\n{webhooks}"
    )
}

#[test]
fn a_webhook_that_is_called_no_more_has_vanished() {
    let before =
        mk_webhooks("fewer", &["a", "b"]) + &mk_webhooks("gone", &["a"]) + &mk_webhooks("kept", &["a"]);
    let after = mk_webhooks("fewer", &["b", "c"]) + &mk_webhooks("kept", &["b", "a"]);
    let (_, shared) = mk_set(&[mk_source(before.clone(), None)]);
    let (_, without) = mk_set(&[mk_source(after, None)]);
    let expected = ["fewer", "gone"].map(|name| format!("ValidatingWebhookConfiguration/{name}"));
    assert_eq!(vanished(&shared, &without), expected);
    assert!(vanished(&shared, &shared).is_empty());
    let (_, of_east) = mk_set(&[mk_source(before, Some("east"))]);
    let (_, none) = mk_set(&[]);
    let expected =
        ["fewer", "gone", "kept"].map(|name| format!("ValidatingWebhookConfiguration/east/{name}"));
    assert_eq!(vanished(&of_east, &none), expected);
}

#[test]
fn a_validating_policy_that_denies_no_more_has_vanished() {
    let deny = |name: &str| mk_validating(name, "[Deny]");
    let before = deny("gone") + &deny("kept") + &deny("warns") + &mk_validating("audits", "[Audit]");
    let after = deny("kept") + &mk_validating("warns", "[Warn]");
    let (_, shared) = mk_set(&[mk_source(before.clone(), None)]);
    let (_, without) = mk_set(&[mk_source(after, None)]);
    let expected = ["gone", "warns"].map(|name| format!("ValidatingAdmissionPolicy/{name}"));
    assert_eq!(vanished(&shared, &without), expected);
    assert!(vanished(&shared, &shared).is_empty());
    let (_, of_east) = mk_set(&[mk_source(before, Some("east"))]);
    let (_, none) = mk_set(&[]);
    let expected = ["gone", "kept", "warns"].map(|name| format!("ValidatingAdmissionPolicy/east/{name}"));
    assert_eq!(vanished(&of_east, &none), expected);
}

const BEFORE: &str =
    "server: {address: a}\nlimits: {inFlight: 1, bodyBytes: 2}\ncallers:\n- {kubeconfig: a}\n";

#[test]
fn changed_fields_are_named_and_lines_are_no_change() {
    for (after, expected) in [
        (
            "# a comment\ncallers: [{kubeconfig: a}]\nserver: {address: a}\nlimits: {bodyBytes: 2, inFlight: 1}\n",
            "",
        ),
        (
            "server: {address: a}\nlimits: {inFlight: 3, bodyBytes: 2}\ncallers: [{kubeconfig: a}]\n",
            "limits.inFlight",
        ),
        (
            "server: {address: b}\nlimits: {bodyBytes: 2}\ncallers: [{kubeconfig: b}]\n",
            "callers limits.inFlight server.address",
        ),
        (
            "server: {address: a}\nconsole: {address: c}\n",
            "callers console limits",
        ),
    ] {
        assert_eq!(changed_fields(BEFORE, after).join(" "), expected, "{after}");
    }
}

#[test]
fn a_file_that_was_written_anew_with_the_same_content_has_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let [same, other, gone] = ["same", "other", "gone"].map(|name| folder.path().join(name));
    for file in [&same, &other, &gone] {
        std::fs::write(file, "one").unwrap();
    }
    let all = [same.clone(), other.clone(), gone.clone()];
    let before = FileContents::of(all.clone(), None);
    std::fs::write(&same, "one").unwrap();
    std::fs::write(&other, "two").unwrap();
    std::fs::remove_file(&gone).unwrap();
    let changed = ChangedSettings::between(("a: 1", &before), ("a: 1", &FileContents::of(all, None)));
    assert_eq!(changed.files, [gone, other]);
    let text = changed.describe(true);
    assert!(
        text.starts_with("2 files of certificates or credentials changed (/"),
        "{text}"
    );
    assert!(text.ends_with("/other), "), "{text}");
    assert!(
        !changed.describe(false).contains('/'),
        "names are for who may see them"
    );
}

#[test]
fn a_link_of_a_cluster_leads_to_no_file_of_somebody_else() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (folder.path().join("link"), elsewhere.path().join("secret"));
    std::fs::write(&target, "one").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let of = |clusters: Option<&Path>| FileContents::of([link.clone()], clusters);
    assert_eq!(of(Some(folder.path())).0[&link], None);
    assert!(of(None).0[&link].is_some(), "the administrator's own");
}
