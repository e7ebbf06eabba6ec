//! Converts Gatekeeper's ConstraintTemplates with CEL, and their constraints.
//!
//! The result is what Gatekeeper itself generates (`pkg/drivers/k8scel/transform` of Gatekeeper): a
//! template becomes a policy whose parameters are the constraints, and each constraint becomes a
//! binding. The constraint itself remains as the parameter.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// The API group of constraints.
pub(crate) const CONSTRAINTS: &str = "constraints.gatekeeper.sh";

/// The templates of all files, by the kind of their constraints.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// Whether each template is converted.
    converted: BTreeMap<String, bool>,
}

// === impl Templates ===

impl Templates {
    /// Converts a template, and records whether it succeeded.
    pub(crate) fn convert(&mut self, document: &Document) -> Conversion {
        let made = convert_template(document);
        if let Some(kind) = kind(document) {
            self.converted.insert(kind, made.refusals.is_empty());
        }
        made
    }

    /// Records that the template of `document` is not converted after all.
    pub(crate) fn refused(&mut self, document: &Document) {
        if let Some(kind) = kind(document) {
            self.converted.insert(kind, false);
        }
    }

    /// Converts a constraint if its template is converted.
    pub(crate) fn constraint(&self, document: &Document, kind: &str) -> Conversion {
        let reason = match self.converted.get(kind) {
            Some(true) => return convert_constraint(document, kind),
            Some(false) => "its ConstraintTemplate is not converted",
            None => "its ConstraintTemplate is not among the files",
        };
        let mut made = Conversion::default();
        made.refuse(document, &FieldPath::root().field("kind"), reason);
        made
    }
}

/// The name of the policy, as in Gatekeeper.
fn policy_name(kind: &str) -> String {
    format!("gatekeeper-{}", kind.to_lowercase())
}

// Converts a constraint to a ValidatingAdmissionPolicyBinding, with the constraint as its
// parameter.

/// The fields of a constraint's `spec`, and how each is converted.
const SPEC: [(&str, &str); 4] = [
    ("match", "see `spec.match`"),
    (
        "parameters",
        "the constraint is the parameter of the binding: `params.spec.parameters`, and `variables.params`",
    ),
    (
        "enforcementAction",
        "`validationActions`: `[Deny]`, `[Warn]` and `[Audit]` of `deny`, `warn` and `dryrun`; others are refused",
    ),
    (
        "scopedEnforcementActions",
        "`validationActions` of those for `*`, `vap.k8s.io` or `validation.gatekeeper.sh`, where `enforcementAction` is `scoped`; `Deny` takes the place of `Warn`; refused if none is for admission",
    ),
];

/// The fields of `match`, and how each is converted. Others are refused.
const MATCH: [(&str, &str); 8] = [
    ("kinds", "a match condition"),
    ("namespaces", "a match condition"),
    ("excludedNamespaces", "a match condition"),
    ("name", "a match condition"),
    ("labelSelector", "`matchResources.objectSelector` of the binding"),
    (
        "namespaceSelector",
        "`matchResources.namespaceSelector` of the binding",
    ),
    ("scope", "`scope` of a resource rule of the binding"),
    (
        "source",
        "nothing with `All` and `Original`; `Generated` is refused",
    ),
];

/// The fields of a template's code, and how each is converted. Others are refused.
const SOURCE: [(&str, &str); 6] = [
    ("validations", "`validations`"),
    ("variables", "`variables`, after `anyObject` and `params`"),
    ("matchCondition", "`matchConditions`"),
    ("matchConditions", "`matchConditions`"),
    ("failurePolicy", "`failurePolicy`"),
    ("generateVAP", "nothing: a policy is always made"),
];

/// The other fields of a template, and how each is converted.
const TEMPLATE: [(&str, &str); 4] = [
    (
        "spec.crd.spec.names.kind",
        "`paramKind`, and the name of the policy: `gatekeeper-KIND` in lower case",
    ),
    (
        "spec.targets[].operations",
        "`operations` of the resource rule; `CREATE` and `UPDATE` without it",
    ),
    (
        "spec.targets[].code[]",
        "that of the engine `K8sNativeValidation`; without it the template is refused",
    ),
    (
        "spec.targets[].rego",
        "refused, unless there is CEL beside it: the reason names the template of Gatekeeper's library that has it in CEL, and the shipped policy that does the same",
    ),
];

/// Each field with its path, and how it is converted, in Markdown.
pub(crate) fn reference() -> impl Iterator<Item = (String, String)> {
    let parts: [(&str, &[(&str, &str)]); 4] = [
        ("ConstraintTemplate: ", &TEMPLATE),
        ("ConstraintTemplate: spec.targets[].code[].source.", &SOURCE),
        ("constraint: spec.", &SPEC),
        ("constraint: spec.match.", &MATCH),
    ];
    parts.into_iter().flat_map(|(place, fields)| {
        let row = move |(name, becomes): &(&str, &str)| (format!("{place}{name}"), (*becomes).to_owned());
        fields.iter().map(row)
    })
}

/// Whether `name` is one of these fields.
fn is_one_of(fields: &[(&str, &str)], name: &str) -> bool {
    fields.iter().any(|(own, _)| *own == name)
}

pub(crate) fn convert_constraint(document: &Document, kind: &str) -> Conversion {
    let mut made = Conversion::default();
    let path = FieldPath::root().field("spec");
    let mut object = document.root().to_json();
    let spec = object["spec"].clone();
    for (field, _) in spec.as_object().into_iter().flatten() {
        if !is_one_of(&SPEC, field) {
            made.refuse(document, &path.field(field), "this field has no counterpart");
        }
    }
    for (field, value) in spec["match"].as_object().into_iter().flatten() {
        let is_known = match field.as_str() {
            "scope" => scope(value).is_some(),
            // With `Generated`, the constraint applies only to objects that Gatekeeper expands from
            // templates, which are in no request.
            "source" => value == "All" || value == "Original",
            field => is_one_of(&MATCH, field),
        };
        if !is_known {
            let reason = "Gatekeeper's own ValidatingAdmissionPolicies do not look at it";
            made.refuse(document, &path.field("match").field(field), reason);
        }
    }
    let actions = match actions(&spec) {
        Ok(actions) => actions,
        Err((field, reason)) => {
            made.refuse(document, &path.field(field), reason);
            return made;
        }
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut resources = json!({});
    for (field, from) in [
        ("objectSelector", "labelSelector"),
        ("namespaceSelector", "namespaceSelector"),
    ] {
        if !spec["match"][from].is_null() {
            resources[field] = spec["match"][from].clone();
        }
    }
    if let Some(scope @ ("Cluster" | "Namespaced")) = scope(&spec["match"]["scope"]) {
        resources["resourceRules"] = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
            "resources": ["*"], "scope": scope}]);
    }
    let mut binding = json!({
        "policyName": policy_name(kind),
        "paramRef": {"name": name, "parameterNotFoundAction": "Allow"},
        "validationActions": actions,
    });
    if resources != json!({}) {
        binding["matchResources"] = resources;
    }
    object["apiVersion"] = Value::from(format!("{CONSTRAINTS}/v1beta1"));
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    made.objects.push(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{}-{name}", policy_name(kind))},
        "spec": binding,
    }));
    made.objects.push(object);
    made
}

/// The scope of resource rules; `None` if it is invalid.
fn scope(written: &Value) -> Option<&str> {
    match written.as_str() {
        None => Some("*"),
        scope => scope.filter(|scope| matches!(*scope, "*" | "Cluster" | "Namespaced")),
    }
}

/// The enforcement points at admission.
const ADMISSION: [&str; 3] = ["*", "vap.k8s.io", "validation.gatekeeper.sh"];

/// Returns `validationActions`, or the field that cannot be converted and the reason.
fn actions(spec: &Value) -> Result<Vec<&'static str>, (&'static str, &'static str)> {
    let of = |action: &str| match action {
        "deny" => Some("Deny"),
        "warn" => Some("Warn"),
        "dryrun" => Some("Audit"),
        _ => None,
    };
    let written = spec["enforcementAction"].as_str().unwrap_or("deny");
    if written != "scoped" {
        let reason = "only `deny`, `warn`, `dryrun` and `scoped` have a counterpart";
        return Ok(vec![of(written).ok_or(("enforcementAction", reason))?]);
    }
    let field = "scopedEnforcementActions";
    let mut actions = Vec::new();
    for scoped in spec[field].as_array().into_iter().flatten() {
        let points = scoped["enforcementPoints"].as_array().into_iter().flatten();
        let mut names = points.filter_map(|point| point["name"].as_str());
        if !names.any(|name| ADMISSION.contains(&name)) {
            continue;
        }
        let action = of(scoped["action"].as_str().unwrap_or_default());
        actions.push(action.ok_or((field, "only `deny`, `warn` and `dryrun` have a counterpart"))?);
    }
    actions.sort_unstable();
    actions.dedup();
    // Kubernetes does not allow `Warn` together with `Deny`.
    if actions.contains(&"Deny") {
        actions.retain(|action| *action != "Warn");
    }
    match actions.is_empty() {
        true => Err((field, "none of them is for admission")),
        false => Ok(actions),
    }
}

// Converts a ConstraintTemplate to a ValidatingAdmissionPolicy.

/// Templates of Gatekeeper's library: whether they have CEL, and the shipped policy that does the
/// same.
const LIBRARY: [(&str, bool, Option<&str>); 20] = [
    ("K8sRequiredLabels", true, None),
    (
        "K8sPSPAllowPrivilegeEscalationContainer",
        true,
        Some("restricted/privilege-escalation"),
    ),
    ("K8sPSPAppArmor", true, Some("baseline/app-armor")),
    ("K8sPSPCapabilities", true, Some("restricted/capabilities")),
    ("K8sPSPForbiddenSysctls", true, Some("baseline/sysctls")),
    ("K8sPSPFSGroup", true, None),
    ("K8sPSPHostFilesystem", true, Some("baseline/host-path-volumes")),
    ("K8sPSPHostNamespace", true, Some("baseline/host-namespaces")),
    ("K8sPSPHostNetworkingPorts", true, Some("baseline/host-ports")),
    (
        "K8sPSPHostProbesLifecycle",
        true,
        Some("baseline/host-probes-and-lifecycle"),
    ),
    ("K8sPSPHostProcess", true, Some("baseline/windows-host-process")),
    ("K8sPSPPrivilegedContainer", true, Some("baseline/privileged")),
    ("K8sPSPProcMount", true, Some("baseline/proc-mount")),
    ("K8sPSPReadOnlyRootFilesystem", true, None),
    ("K8sPSPSeccomp", true, Some("restricted/seccomp")),
    ("K8sPSPSeccompV2", true, Some("restricted/seccomp")),
    ("K8sPSPSELinuxV2", false, Some("baseline/selinux")),
    ("K8sPSPVolumeTypes", false, Some("restricted/volumes")),
    ("K8sPSPAllowedUsers", false, Some("restricted/run-as-user")),
    ("K8sAllowedRepos", false, None),
];

/// Why a template in Rego is refused, and what to use instead.
fn without_rego(kind: Option<&str>) -> String {
    let mut reason = "its code is Rego, and admission policies know CEL alone".to_owned();
    let Some((kind, has_cel, ours)) = LIBRARY.iter().find(|(own, ..)| Some(*own) == kind) else {
        return reason;
    };
    if *has_cel {
        reason.push_str(": take `");
        reason.push_str(kind);
        reason.push_str("` of the current gatekeeper-library, which has it in CEL, too");
    }
    let ours = match (*kind, ours) {
        ("K8sAllowedRepos", _) => Some("docs/recipes/images-from-registries".to_owned()),
        (_, Some(ours)) => Some(format!("config/policies/pod-security/{ours}.yaml")),
        (_, None) => None,
    };
    if let Some(ours) = ours {
        reason.push_str(if *has_cel { ", or `" } else { ": take `" });
        reason.push_str(&ours);
        reason.push('`');
    }
    reason
}

/// The name of the engine for CEL.
const ENGINE: &str = "K8sNativeValidation";

/// The variables that Gatekeeper adds.
const VARIABLES: [(&str, &str); 2] = [
    (
        "anyObject",
        "request.operation == 'DELETE' && object == null ? oldObject : object",
    ),
    (
        "params",
        "has(params.spec) && has(params.spec.parameters) ? params.spec.parameters : null",
    ),
];

/// Conditions that the constraint's `match` applies to the request, one for each field. An absent
/// field matches every request.
const MATCHES: [(&str, &str); 4] = [
    (
        "gatekeeper-excluded-namespaces",
        "!params.?spec.?match.?excludedNamespaces.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?namespace.orValue('') == '' || !params.spec.match.excludedNamespaces.exists(pattern, \
         string(one.metadata.namespace).matches('^' + string(pattern).replace('*', '.*') + '$'))))",
    ),
    (
        "gatekeeper-namespaces",
        "!params.?spec.?match.?namespaces.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?namespace.orValue('') == '' || params.spec.match.namespaces.exists(pattern, \
         string(one.metadata.namespace).matches('^' + string(pattern).replace('*', '.*') + '$'))))",
    ),
    (
        "gatekeeper-name",
        "!params.?spec.?match.?name.hasValue() || [object, oldObject].exists(one, one != null && \
         (one.metadata.?generateName.orValue('') != '' && string(params.spec.match.name).endsWith('*') && \
         string(one.metadata.generateName).matches('^' + string(params.spec.match.name).replace('*', '.*') + '$') || \
         has(one.metadata.name) && \
         string(one.metadata.name).matches('^' + string(params.spec.match.name).replace('*', '.*') + '$')))",
    ),
    (
        "gatekeeper-kinds",
        "!params.?spec.?match.?kinds.hasValue() || params.spec.match.kinds.exists(one, \
         (size(one.?kinds.orValue([])) == 0 || '*' in one.kinds || request.kind.kind in one.kinds) && \
         (size(one.?apiGroups.orValue([])) == 0 || '*' in one.apiGroups || request.kind.group in one.apiGroups))",
    ),
];

/// The kind of the template's constraints.
pub(crate) fn kind(document: &Document) -> Option<String> {
    let steps = ["spec", "crd", "spec", "names", "kind"];
    let node = steps
        .iter()
        .try_fold(document.root(), |node, step| node.get(step))?;
    node.as_str().map(str::to_owned)
}

pub(crate) fn convert_template(document: &Document) -> Conversion {
    let mut made = Conversion::default();
    let path = FieldPath::root().field("spec").field("targets");
    let targets = document.nearest(&path).to_json();
    let Some([target]) = targets.as_array().map(Vec::as_slice) else {
        made.refuse(document, &path, "a template has one target");
        return made;
    };
    let path = path.index(0);
    let code = target["code"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(index) = code.iter().position(|code| code["engine"] == ENGINE) else {
        made.refuse(document, &path, without_rego(self::kind(document).as_deref()));
        return made;
    };
    let path = path.field("code").index(index).field("source");
    let source = &code[index]["source"];
    for field in source.as_object().into_iter().flatten().map(|(field, _)| field) {
        if !is_one_of(&SOURCE, field) {
            made.refuse(document, &path.field(field), "this field has no counterpart");
        }
    }
    let Some(kind) = kind(document) else {
        let reason = "it does not name the kind of its constraints";
        made.refuse(document, &FieldPath::root().field("spec"), reason);
        return made;
    };
    made.objects.push(policy(&kind, target, source));
    made.base = Some(path);
    made
}

fn policy(kind: &str, target: &Value, source: &Value) -> Value {
    let named = |(name, expression): &(&str, &str)| json!({"name": name, "expression": expression});
    let own = |field: &str| source[field].as_array().cloned().unwrap_or_default();
    // The conditions of the template come first, so that faults in them have the right index.
    let mut conditions = own("matchCondition");
    conditions.extend(own("matchConditions"));
    conditions.extend(MATCHES.iter().map(named));
    let mut variables: Vec<Value> = VARIABLES.iter().map(named).collect();
    variables.extend(own("variables"));
    let operations = match &target["operations"] {
        Value::Array(operations) if !operations.is_empty() => Value::Array(operations.clone()),
        _ => json!(["CREATE", "UPDATE"]),
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy_name(kind)},
        "spec": {
            "failurePolicy": source["failurePolicy"].as_str().unwrap_or("Fail"),
            "paramKind": {"apiVersion": format!("{CONSTRAINTS}/v1beta1"), "kind": kind},
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": ["*"]},
            ]},
            "matchConditions": conditions,
            "variables": variables,
            "validations": source["validations"],
        },
    })
}

#[cfg(test)]
mod tests;
