//! The example policies of a set-up, and the suites that try them.
//!
//! They are those of `config/policies`, but in Shadow where they deny: an example
//! is decided, logged and counted, and changes no answer. Their suites expect that.

use super::File;

/// An example, and its suite.
struct Example {
    path: &'static str,
    text: &'static str,
    suite_path: &'static str,
    suite: &'static str,
}

macro_rules! example {
    ($name:literal, $suite:expr) => {
        Example {
            path: concat!("policies/", $name, ".yaml"),
            text: include_str!(concat!("../../../config/policies/", $name, ".yaml")),
            suite_path: concat!("policies/", $name, "_test.yaml"),
            suite: include_str!($suite),
        }
    };
}

const EXAMPLES: [Example; 7] = [
    example!("agents-own-node", "templates/suites/agents-own-node_test.yaml"),
    example!("contractors", "../../../config/policies/contractors_test.yaml"),
    example!("discovery", "../../../config/policies/discovery_test.yaml"),
    example!("exec-trial", "../../../config/policies/exec-trial_test.yaml"),
    example!("own-tokens", "templates/suites/own-tokens_test.yaml"),
    example!("production-guard", "templates/suites/production-guard_test.yaml"),
    example!("team-readers", "../../../config/policies/team-readers_test.yaml"),
];

/// The line that makes a policy deny, and what stands below it in a set-up.
const DENY: &str = "  effect: Deny\n";
const SHADOW: &str =
    "  # Decided, logged and counted, changes no answer: remove this line to enforce it.\n  mode: Shadow\n";

/// Every example with its suite.
pub(crate) fn examples() -> impl Iterator<Item = File> {
    EXAMPLES.iter().flat_map(|example| {
        [
            File::open(example.path, in_shadow(example.text)),
            File::open(example.suite_path, example.suite),
        ]
    })
}

/// `policy` in Shadow, where it denies and is not so already.
fn in_shadow(policy: &str) -> String {
    if policy.contains("  mode: Shadow\n") {
        return policy.to_owned();
    }
    policy.replace(DENY, &format!("{DENY}{SHADOW}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_that_denies_is_in_shadow() {
        for example in &EXAMPLES {
            let text = in_shadow(example.text);
            assert_eq!(
                text.matches("effect: Deny").count(),
                text.matches("mode: Shadow").count(),
                "{}",
                example.path
            );
        }
    }
}
