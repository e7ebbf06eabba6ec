//! Whether invariants hold of what is in force, as metrics say.

use crate::support::{Gateway, until};

const INVARIANT: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: secrets}
spec:
  only: [{kind: Group, name: vault}]
  resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [secrets]}]
  enforcement: Refuse
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get], apiGroups: [\"\"], resources: [secrets]}]
";

fn binding(group: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: secrets}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secrets}}\n\
         subjects: [{{kind: Group, apiGroup: rbac.authorization.k8s.io, name: {group}}}]\n"
    )
}

#[test]
fn a_broken_invariant_is_counted_and_stops_nothing() {
    let gateway = Gateway::usual();
    let series = |gateway: &Gateway| {
        let metrics = gateway.metrics();
        let mut lines = metrics.lines();
        let value =
            lines.find_map(|line| line.strip_prefix(r#"portcullis_broken_invariants{name="secrets"} "#));
        value.map(str::to_owned)
    };
    assert_eq!(series(&gateway), None);
    let files = |group: &str| [INVARIANT, &binding(group)].join("---\n");
    for (group, count) in [("vault", "0"), ("dev", "1"), ("vault", "0")] {
        gateway.reload(&[("policies/invariant.yaml", files(group).as_bytes())]);
        until("the invariant is checked", || {
            series(&gateway).as_deref() == Some(count)
        });
    }
    gateway.reload(&[("policies/invariant.yaml", b"# nothing\n")]);
    until("the series has ended", || series(&gateway).is_none());
}
