//! What is doubted, and what is so near to it that it must not be.

use super::*;

fn groups(groups: &[&str]) -> Vec<String> {
    groups.iter().map(|group| (*group).to_owned()).collect()
}

#[test]
fn verbs_that_no_request_has_are_odd() {
    for verb in [
        "get",
        "*",
        "bind",
        "impersonate:user-info",
        "impersonate:associated-node",
        "impersonate-on:user-info:get",
        "impersonate-on:arbitrary-node:knit",
        "knit",
    ] {
        assert_eq!(odd_verb(verb), None, "{verb}");
    }
    for (verb, words) in [
        ("gett", "did you mean `get`?"),
        ("GET", "`get`"),
        ("post", "HTTP method"),
        ("impersonate:userinfo", "did you mean `user-info`?"),
        ("impersonate:*", "the modes are `associated-node`, "),
        ("impersonate-on:node:get", "`node` is not a mode"),
        (
            "impersonate-on:user-info",
            "does not end in the verb of a request",
        ),
        ("impersonate-on:user-info:*", "wildcards are not supported"),
        ("impersonate-on:serviceaccount:lsit", "did you mean `list`?"),
    ] {
        assert!(
            odd_verb(verb).is_some_and(|odd| odd.contains(words)),
            "{verb}: {:?}",
            odd_verb(verb)
        );
    }
    assert_eq!(odd_method("post"), None);
    assert_eq!(odd_method("impersonate-on:user-info:post"), None);
    assert!(odd_method("impersonate-on:user-info:list").is_some_and(|odd| odd.contains("HTTP methods")));
    assert!(odd_method("list").is_some_and(|odd| odd.contains("HTTP methods")));
}

#[test]
fn groups_that_no_api_has_are_odd() {
    for group in ["", "*", "apps", "example.com", "metrics.k8s.io"] {
        assert_eq!(odd_group(group), None, "{group}");
    }
    for (group, words) in [
        ("core", "the core group is `\"\"`"),
        ("apps/v1", "write `apps` without `/v1`"),
        ("app", "did you mean `apps`?"),
        ("rbac.authorization.k8s.oi", "`rbac.authorization.k8s.io`"),
        ("widgets", "no group `widgets`"),
    ] {
        assert!(
            odd_group(group).is_some_and(|odd| odd.contains(words)),
            "{group}: {:?}",
            odd_group(group)
        );
    }
}

#[test]
fn resources_that_their_groups_do_not_have_are_odd() {
    for (of, resource) in [
        (&["", "apps"][..], "deployments"),
        (&[""], "pods/log"),
        (&[""], "pods/*"),
        (&[""], "nodes/metrics"),
        (&["apps"], "*/scale"),
        (&["example.com"], "anything"),
        (&["*"], "anything"),
        (&["", "example.com"], "anything"),
        (&[""], "users"),
    ] {
        assert_eq!(odd_resource(&groups(of), resource), None, "{of:?} {resource}");
    }
    for (of, resource, words) in [
        (&[""][..], "pod", "did you mean `pods`?"),
        (&[""], "deployments", "but in `\"apps\"`"),
        (&[""], "pods/logs", "did you mean `pods/log`?"),
        (&["apps"], "widgets", "no resource `widgets`"),
        (&[""], "Pods", "`pods`"),
    ] {
        let odd = odd_resource(&groups(of), resource);
        assert!(
            odd.as_ref().is_some_and(|odd| odd.contains(words)),
            "{of:?} {resource}: {odd:?}"
        );
    }
}

#[test]
fn kinds_are_found_by_resource_and_version() {
    assert_eq!(kind_of("apps", "v1", "deployments"), Some("Deployment"));
    assert_eq!(kind_of("apps", "v1", "deployments/scale"), Some("Scale"));
    assert_eq!(kind_of("", "v1", "pods"), Some("Pod"));
    assert_eq!(kind_of("apps", "v2", "deployments"), None);
}

#[test]
fn every_role_of_the_files_is_read() {
    for (version, roles) in [(Version::new(36), &OF_1_36), (Version::NEWEST, &OF_NEWEST)] {
        let text = bootstrap_policy(version);
        let written: usize = ["\nkind: ClusterRole\n", "\nkind: Role\n"]
            .map(|kind| text.matches(kind).count())
            .iter()
            .sum();
        assert_eq!(roles.len(), written, "{version}");
        for name in ["view", "edit", "admin", "cluster-admin", "system:node"] {
            assert!(has_cluster_role(version, name), "{version}: {name}");
        }
        assert!(!has_cluster_role(version, "viewer"));
    }
    assert_ne!(OF_1_36.len(), OF_NEWEST.len());
}

#[test]
fn a_role_that_says_something_else_is_another() {
    let mut role = OF_NEWEST[&(String::new(), "cluster-admin".to_owned())].clone();
    assert!(is_builtin(&role));
    role.rules = OF_NEWEST[&(String::new(), "system:node".to_owned())]
        .rules
        .clone();
    assert!(!is_builtin(&role));
}
