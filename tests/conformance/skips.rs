//! Checks of the vectors that have no counterpart here, and why.
//!
//! A change that gives a check its counterpart takes its row away. A row for some
//! cases of a check says which by its `when`.

use crate::agnhost;
use crate::authorizers;
use crate::conditions;
use crate::decisions;
use crate::expressions;
use crate::harness::{Case, Skip};
use crate::matching::selector;
use crate::upstreams;
use crate::validation;
use crate::webhooks;

const NO_UPDATES: &str = "manifests are judged as they are: there is no older object to be lenient about";
const NO_ABAC: &str = "policies are RBAC and AuthorizationPolicies; ABAC files are not read";
const SELECTORS_ARE_ON: &str = "the feature gate AuthorizeWithSelectors is always on since 1.34";
const EVALUATOR: &str =
    "the evaluator fails as a whole for its budget alone, never with an error of another kind";
const CALLER: &str = "the API server does this before it asks a webhook";

/// Whole checks, then parts of some.
pub(crate) const SKIPS: &[Skip] = &[
    Skip::all("abac.json", "authorize", NO_ABAC),
    Skip::all("abac.json", "policyMatches", NO_ABAC),
    Skip::all("abac.json", "subjectMatches", NO_ABAC),
    Skip {
        file: "agnhost.json",
        check: "agnhost",
        when: agnhost::is_wire,
        reason: "that program's content types and probes are its own",
    },
    Skip {
        file: "agnhost.json",
        check: "agnhost",
        when: agnhost::is_delay_or_abort,
        reason: "delays, hangs and broken connections are for test servers",
    },
    Skip {
        file: "kubeconfig_auth.json",
        check: "credentialKinds",
        when: upstreams::is_refused_at_load,
        reason: "a fault when the file is read: no program is started, nobody is called in another's \
                 name, and client-go too fails to show a token and a password at once",
    },
    Skip {
        file: "dispatch.json",
        check: "dispatch",
        when: webhooks::has_no_client,
        reason: "a webhook with neither url nor service is refused with its manifest",
    },
    Skip::all(
        "policy_validation.json",
        "validateMutatingAdmissionPolicyBindingUpdate",
        NO_UPDATES,
    ),
    Skip::all(
        "policy_validation.json",
        "validateMutatingAdmissionPolicyUpdate",
        NO_UPDATES,
    ),
    Skip::all(
        "policy_validation.json",
        "validateValidatingAdmissionPolicyBindingUpdate",
        NO_UPDATES,
    ),
    Skip::all(
        "policy_validation.json",
        "validateValidatingAdmissionPolicyUpdate",
        NO_UPDATES,
    ),
    Skip::all("requestinfo.json", "isResourceRequest", CALLER),
    Skip::all("requestinfo.json", "requestInfo", CALLER),
    Skip {
        file: "review_response.json",
        check: "dispatchResponse",
        when: webhooks::is_yaml,
        reason: "a reply is JSON; one in YAML is no reply",
    },
    Skip::all(
        "sar_v1beta1_v1.json",
        "sarRedirect",
        "a redirect is a failed call: what it leads to was never vouched for",
    ),
    Skip {
        file: "sar_v1beta1_v1.json",
        check: "sarResponse",
        when: authorizers::is_yaml,
        reason: "a reply is JSON",
    },
    Skip::all("selectors.json", "attributesFromHTTP", CALLER),
    Skip::all(
        "selectors.json",
        "nodeAuthorizer",
        "the node authorizer is the API server's own, beside Portcullis",
    ),
    Skip::all(
        "selectors.json",
        "parseFieldRawSelector",
        "a webhook never parses a raw selector",
    ),
    Skip::all(
        "selectors.json",
        "parseLabelRawSelector",
        "a webhook never parses a raw selector",
    ),
    Skip::all("selectors.json", "requestInfoSelectors", CALLER),
    Skip::all("selectors.json", "wireSelectorsFromAttributes", CALLER),
    Skip {
        file: "webhook_validation.json",
        check: "validateMutatingWebhookConfigurationUpdate",
        when: validation::follows_a_bad_one,
        reason: NO_UPDATES,
    },
    Skip {
        file: "webhook_validation.json",
        check: "validateValidatingWebhookConfigurationUpdate",
        when: validation::follows_a_bad_one,
        reason: NO_UPDATES,
    },
    Skip {
        file: "cel_evaluation.json",
        check: "evaluate",
        when: expressions::without_selectors,
        reason: SELECTORS_ARE_ON,
    },
    Skip {
        file: "cel_evaluation.json",
        check: "evaluate",
        when: expressions::is_of_old_version,
        reason: "compatibility versions older than 1.28 are not told apart: no supported API server asks for them",
    },
    Skip {
        file: "match_conditions.json",
        check: "combine",
        when: decisions::has_broken_evaluator,
        reason: EVALUATOR,
    },
    Skip {
        file: "vap_validator.json",
        check: "vapDecision",
        when: decisions::has_broken_evaluator,
        reason: EVALUATOR,
    },
    Skip {
        file: "policy_match.json",
        check: "matchResources",
        when: |case| {
            let written = &case.input()["matchResources"];
            ["namespaceSelector", "objectSelector"]
                .iter()
                .any(|name| selector(&written[name]).is_none())
        },
        reason: "a selector that Kubernetes cannot read is refused with the manifest",
    },
    Skip {
        file: "object_selector.json",
        check: "matchObjectSelector",
        when: |case| case.input()["selector"].is_null(),
        reason: "a selector that is absent gets the default of its field, before it is matched",
    },
    Skip {
        file: "namespace_selector.json",
        check: "matchNamespaceSelector",
        when: |case| case.input()["selector"].is_null(),
        reason: "a selector that is absent gets the default of its field, before it is matched",
    },
    Skip {
        file: "namespace_selector.json",
        check: "matchNamespaceSelector",
        when: |case| selector(&case.input()["selector"]).is_none(),
        reason: "a selector that Kubernetes cannot read is refused with the manifest",
    },
    Skip {
        file: "namespace_selector.json",
        check: "matchNamespaceSelector",
        when: asks_for_the_name_of_an_unknown_namespace,
        reason: "the label kubernetes.io/metadata.name is known of every namespace: a selector that asks for no \
                 other needs no manifest",
    },
    Skip {
        file: "match_conditions.json",
        check: "authzCompile",
        when: conditions::without_selectors,
        reason: SELECTORS_ARE_ON,
    },
    Skip {
        file: "match_conditions.json",
        check: "authzMatchConditions",
        when: conditions::without_selectors,
        reason: SELECTORS_ARE_ON,
    },
    Skip {
        file: "selectors.json",
        check: "labelSelectorMatches",
        when: |case| case.input()["selector"].is_null(),
        reason: "a selector that is absent gets the default of its field, before it is matched",
    },
    Skip {
        file: "selectors.json",
        check: "attributesFromSAR",
        when: selectors_disabled,
        reason: SELECTORS_ARE_ON,
    },
    Skip {
        file: "selectors.json",
        check: "attributesFromSAR",
        when: raw_selector,
        reason: "a webhook never parses a raw selector",
    },
    Skip {
        file: "selectors.json",
        check: "attributesFromSAR",
        when: field_with_several_values,
        reason: "a webhook honours several values of a field; the API server's own authorizers drop them",
    },
];

fn asks_for_the_name_of_an_unknown_namespace(case: &Case<'_>) -> bool {
    let attributes = &case.input()["attributes"];
    let name = attributes["namespace"].as_str().unwrap_or_default();
    let is_known = ["storedNamespaces", "liveOnlyNamespaces"]
        .iter()
        .any(|known| case.file[*known].get(name).is_some());
    let asks_for_the_name_alone = selector(&case.input()["selector"]).is_some_and(|selector| {
        let mut keys = selector.keys().peekable();
        keys.peek().is_some() && keys.all(|key| key == "kubernetes.io/metadata.name")
    });
    attributes["resource"] != "namespaces" && !name.is_empty() && !is_known && asks_for_the_name_alone
}

fn selectors<'a>(case: &Case<'a>) -> impl Iterator<Item = (&'static str, &'a serde_json::Value)> + use<'a> {
    let resource = &case.input()["spec"]["resourceAttributes"];
    ["fieldSelector", "labelSelector"]
        .map(|name| (name, &resource[name]))
        .into_iter()
}

fn selectors_disabled(case: &Case<'_>) -> bool {
    case.input()["selectorsEnabled"] == false && selectors(case).any(|(_, selector)| selector.is_object())
}

fn raw_selector(case: &Case<'_>) -> bool {
    selectors(case).any(|(_, selector)| {
        selector["rawSelector"]
            .as_str()
            .is_some_and(|raw| !raw.is_empty())
    })
}

fn field_with_several_values(case: &Case<'_>) -> bool {
    let field = selectors(case).find(|(name, _)| *name == "fieldSelector");
    field
        .and_then(|(_, selector)| selector["requirements"].as_array())
        .into_iter()
        .flatten()
        .any(|requirement| {
            requirement["values"]
                .as_array()
                .is_some_and(|values| values.len() > 1)
        })
}
