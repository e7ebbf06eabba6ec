//! Files of manifests: while they are read, and as long as they hold.

use portcullis_cel::Version;
use portcullis_policy::manifest::{Source, SourceObjects};

use crate::{ALLOCATOR, turn, worst};

/// Each of the worst texts as a parameter, as JSON and as YAML.
fn parameters() -> Vec<(&'static str, Source)> {
    let before = r#"{"apiVersion": "example.com/v1", "kind": "Limits", "metadata": {"name": "l"}, "x": "#;
    let texts = worst().into_iter().flat_map(|(name, text)| {
        // YAML knows anchors and tags besides.
        let yaml = format!("# YAML\n{before}{text}}}\n");
        [(name, format!("{before}{text}}}")), (name, yaml)]
    });
    let source = |(name, text)| {
        let source = Source {
            file: "f.yaml".to_owned(),
            text,
            cluster: None,
        };
        (name, source)
    };
    texts.map(source).collect()
}

#[test]
fn a_parameter_takes_a_multiple_of_its_text_and_is_kept_in_few_bytes_a_byte() {
    let _turn = turn();
    for (name, source) in parameters() {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let objects = SourceObjects::read(&source, Version::NEWEST, None);
        let a_byte = |bytes: usize| (bytes - before) as f64 / source.text.len() as f64;
        let (taken, kept) = (a_byte(ALLOCATOR.peak_usage()), a_byte(ALLOCATOR.current_usage()));
        println!("manifest, {name}: {taken:.1} bytes a byte, kept {kept:.1}");
        assert!(
            taken <= 150.0 && kept <= 15.0,
            "{name}: {taken:.1}, kept {kept:.1}"
        );
        drop(objects);
    }
}

/// So many objects of a kind, each as `object` has it.
fn many(count: usize, object: impl Fn(usize) -> String) -> String {
    (0..count)
        .map(|number| format!("---\n{}\n", object(number)))
        .collect()
}

#[test]
fn what_is_counted_of_manifests_is_no_less_than_what_they_take() {
    let _turn = turn();
    let rbac = |kind: &str, name: usize, rest: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: n{name}, namespace: shop}}\n{rest}"
        )
    };
    let role_ref = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: edit}\n";
    let subjects = |count: usize| {
        let subject =
            |number| format!("{{kind: User, apiGroup: rbac.authorization.k8s.io, name: u{number}}}");
        (0..count).map(subject).collect::<Vec<_>>().join(", ")
    };
    let rules = |count: usize| "{apiGroups: [a], resources: [b], verbs: [get, list]}, ".repeat(count);
    let values = |count: usize| {
        let validation = |number| format!("{{expression: \"object.metadata.name != 'x{number}'\"}}");
        (0..count).map(validation).collect::<Vec<_>>().join(", ")
    };
    let policy = |name: usize, count: usize| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: n{name}}}\n\
             spec: {{matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}]}}, validations: [{}]}}",
            values(count)
        )
    };
    let deny = |name: usize, count: usize| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: n{name}}}\nspec: {{effect: Deny, \
             subjects: [{{kind: User, name: joe}}], resourceRules: [{}]}}",
            "{apiGroups: [''], resources: [pods], verbs: [get], namespaces: [a, b]}, ".repeat(count)
        )
    };
    let map = |name: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: n{name}, namespace: shop}}\ndata: {{a: b, c: d}}"
        )
    };
    let namespace = |name: usize| {
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: n{name}, labels: {{a: b}}}}")
    };
    let mut beyond = Vec::new();
    for (what, text) in [
        (
            "bindings",
            many(500, |n| {
                rbac(
                    "RoleBinding",
                    n,
                    &format!("{role_ref}subjects: [{}]", subjects(1)),
                )
            }),
        ),
        (
            "a binding",
            many(1, |n| {
                rbac(
                    "RoleBinding",
                    n,
                    &format!("{role_ref}subjects: [{}]", subjects(5_000)),
                )
            }),
        ),
        (
            "roles",
            many(500, |n| rbac("Role", n, &format!("rules: [{}]", rules(2)))),
        ),
        (
            "a role",
            many(1, |n| rbac("Role", n, &format!("rules: [{}]", rules(2_000)))),
        ),
        ("policies", many(100, |n| policy(n, 1))),
        ("a policy", many(1, |n| policy(n, 500))),
        ("denies", many(300, |n| deny(n, 1))),
        ("a deny", many(1, |n| deny(n, 1_000))),
        ("parameters", many(500, map)),
        ("namespaces", many(500, namespace)),
    ] {
        let source = Source {
            file: "f.yaml".to_owned(),
            text,
            cluster: None,
        };
        let before = ALLOCATOR.current_usage();
        let objects = SourceObjects::read(&source, Version::NEWEST, None);
        let kept = ALLOCATOR.current_usage() - before;
        let (count, counted) = (objects.valid().count(), objects.bytes());
        println!(
            "{what}: {kept} bytes for {count} objects of {} bytes, {counted} are counted",
            source.text.len()
        );
        assert!(count > 0, "{what}");
        if kept > counted {
            beyond.push(what);
        }
    }
    assert_eq!(beyond, [] as [&str; 0]);
}
