//! How the expressions of an object are compiled: for a version, and within a deadline.

use std::cell::Cell;

use super::*;
use crate::manifest::report::MAX_ERRORS;
use crate::manifest::{Source, SourceObjects};

fn read(text: String, deadline: Deadline<'_>) -> SourceObjects {
    let source = Source {
        file: "policy.yaml".into(),
        text,
        cluster: None,
    };
    let compilation = Compilation {
        version: Version::NEWEST,
        deadline,
    };
    SourceObjects::read(&source, compilation, None)
}

/// A policy with `count` of such validations.
fn mk_policy(count: usize, expression: impl Fn(usize) -> String) -> String {
    let validations: String = (0..count)
        .map(|number| format!("  - expression: {}\n", expression(number)))
        .collect();
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
        metadata: {{name: p}}\nspec:\n  matchConstraints:\n    resourceRules:\n    \
        - {{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [\"*\"]}}\n  \
        validations:\n{validations}"
    )
}

#[test]
fn the_expressions_of_an_object_share_what_compiling_may_take() {
    let pattern = |number: usize| format!("object.a.matches('\\\\pL{{{}}}')", 700 + number);
    let one = read(mk_policy(1, pattern), Deadline::NEVER);
    assert!(!one.faults().has_errors(), "{}", one.faults());
    let bytes = one.valid().next().unwrap().compiled_bytes();
    assert!(bytes > 1 << 20, "{bytes} bytes");
    let many = read(mk_policy(300, pattern), Deadline::NEVER);
    assert_eq!(many.valid().count(), 0);
    let text = many.faults().to_string();
    assert!(text.contains("compiling takes too long"), "{text}");
    assert_eq!(
        many.faults().iter().count(),
        MAX_ERRORS,
        "no more of them are told"
    );
    assert!(
        text.ends_with("more than 100 errors: only the first are listed"),
        "{text}"
    );
}

#[test]
fn what_is_not_compiled_by_the_deadline_is_at_fault() {
    let text = |_| "object.a == 'b'".to_owned();
    let asked = Cell::new(0);
    let expired = || {
        asked.set(asked.get() + 1);
        true
    };
    let late = read(mk_policy(3, text), Deadline::new(&expired));
    assert_eq!(late.valid().count(), 0);
    assert!(late.faults().to_string().contains("interrupted by the deadline"));
    assert_eq!(asked.get(), 3, "each expression ends at its first look");
}
