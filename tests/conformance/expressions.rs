//! Expressions of admission: as match conditions and validations of policies,
//! and what they cost.

use portcullis::engine::Time;
use std::sync::Arc;

use portcullis::cel::{
    self, AccessAnswer, AccessQuestion, Activation, AdmissionVariables, AuthorizeAccess, Budget, Type,
    Version,
};
use portcullis::engine::Attributes;
use portcullis::engine::admission::webhook::nobody;
use portcullis::engine::admission::{
    AccessChecker, AdmissionSet, AdmissionSettings, Chain, GroupVersionKind, GroupVersionResource, Operation,
    Outcome, Phase, Request, Run,
};
use portcullis::json::Document;
use portcullis::manifest::{Manifests, Options, Source, load};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::sar;

pub(crate) const CONDITIONS: Table = &[
    ("admissionExpressions", admission_expressions),
    ("endToEndCreatePods", create_pods),
    ("configAccepted", accepted),
];
pub(crate) const EVALUATION: Table = &[
    ("evaluate", evaluate),
    ("costBudget", cost_budget),
    ("variables", variables),
];

/// What the policy of a case says when its validation fails.
const CALLED: &str = "called";

// === match conditions ===

/// What comes of match conditions.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Called,
    NotCalled,
    Refused,
}

fn admission_expressions(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = &case.file["attributeSets"][case.input()["attributes"].as_str().unwrap()];
    let policies = case.expect()["byFailurePolicy"].as_object().unwrap();
    for (failure_policy, expected) in policies {
        let asked = with_request(input, |request| {
            ask(&case.input()["expressions"], failure_policy, request)
        })?;
        let expected = match (expected["error"] == true, expected["call"] == true) {
            (true, _) => Asked::Refused,
            (false, true) => Asked::Called,
            (false, false) => Asked::NotCalled,
        };
        case.same(failure_policy, &asked, &expected)?;
    }
    Ok(())
}

fn create_pods(case: &Case<'_>) -> Result<(), Mismatch> {
    let failure_policy = case.input()["failurePolicy"].as_str().unwrap_or("Fail");
    let (mut called, mut rejected) = (Vec::new(), false);
    for pod in case.input()["pods"].as_array().into_iter().flatten() {
        let input = json!({
            "attributes": {
                "group": "", "version": "v1", "resource": "pods", "subresource": "",
                "namespace": pod["namespace"], "name": pod["name"], "operation": "CREATE",
            },
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"containers": []}},
        });
        let asked = with_request(&input, |request| {
            ask(&case.input()["expressions"], failure_policy, request)
        })?;
        match asked {
            Asked::Called => called.push(pod.clone()),
            Asked::Refused => rejected = true,
            Asked::NotCalled => {}
        }
    }
    let outcome = json!({"webhookCalledFor": called, "requestsRejected": rejected});
    case.same("outcome", &outcome, case.expect())
}

fn accepted(case: &Case<'_>) -> Result<(), Mismatch> {
    let written = &case.input()["matchConditions"];
    let conditions = match written["repeat"].as_u64() {
        Some(times) => (0..times)
            .map(|number| json!({"name": format!("c{number}"), "expression": "true"}))
            .collect(),
        None => written.clone(),
    };
    let spec = json!({"matchConditions": conditions, "validations": [{"expression": "true"}]});
    let is_sound = manifests(&spec, None).is_ok();
    case.same(
        "accepted",
        &is_sound,
        &case.expect()["accepted"].as_bool().unwrap(),
    )
}

/// Asks a policy that refuses whatever it applies to. One with an expression
/// that does not compile is refused itself; Kubernetes fails with every request.
fn ask(expressions: &Value, failure_policy: &str, request: &Request<'_>) -> Result<Asked, Mismatch> {
    let conditions: Vec<Value> = expressions
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, one)| json!({"name": format!("c{index}"), "expression": one}))
        .collect();
    let spec = json!({
        "failurePolicy": failure_policy,
        "matchConditions": conditions,
        "validations": [{"expression": "false", "message": CALLED}],
    });
    let manifests = match manifests(&spec, None) {
        Ok(manifests) => manifests,
        Err(faults) if !faults.contains("spec.matchConditions[") => return Err(Mismatch::new(faults)),
        Err(_) if failure_policy == "Fail" => return Ok(Asked::Refused),
        Err(_) => return Ok(Asked::NotCalled),
    };
    let outcome = validated(&manifests, &ByVerb, request);
    Ok(match outcome.denial {
        None => Asked::NotCalled,
        Some(denial) if denial.message.ends_with(CALLED) => Asked::Called,
        Some(_) => Asked::Refused,
    })
}

/// Answers by the verb alone.
#[derive(Debug)]
struct ByVerb;

impl AccessChecker for ByVerb {
    fn answer(&self, attributes: &Attributes<'_>, _: Time) -> AccessAnswer {
        let asked = sar::verb(&attributes.target);
        AccessAnswer {
            allowed: asked == "allowme",
            reason: if asked == "allowme" { "because" } else { "" }.to_owned(),
            error: (asked == "errme").then(|| "the authorizer failed".to_owned()),
        }
    }
}

// === evaluation ===

/// Whether a case is about a version that is not told from the next one.
pub(crate) fn is_of_old_version(case: &Case<'_>) -> bool {
    minor(case).is_some_and(|minor| Version::new(minor) < Version::OLDEST)
}

/// Whether selectors are switched off.
pub(crate) fn without_selectors(case: &Case<'_>) -> bool {
    case.input()["selectorsEnabled"] == false
}

fn minor(case: &Case<'_>) -> Option<u32> {
    let (_, minor) = case.input()["compatibilityVersion"].as_str()?.split_once('.')?;
    minor.parse().ok()
}

/// Each expression as the validation of a policy of its own.
fn evaluate(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    if input["perCallLimit"].is_u64() || minor(case).is_some() {
        return evaluate_alone(case);
    }
    let expressions = input["expressions"].as_array().unwrap();
    let results = case.expect()["results"].as_array().unwrap();
    for (expression, expected) in expressions.iter().zip(results) {
        let spec = json!({"validations": [{"expression": expression, "message": CALLED}]});
        let actual = match manifests(&spec, Some(input)) {
            Err(faults) => json!({"errorContains": faults}),
            Ok(manifests) => with_request(input, |request| {
                let outcome = validated(&manifests, &ByTable(input["authorizer"].clone()), request);
                match outcome.denial {
                    None => json!({"value": true}),
                    Some(denial) if denial.message.ends_with(CALLED) => json!({"value": false}),
                    Some(denial) => json!({"errorContains": denial.message}),
                }
            }),
        };
        same_result(case, &actual, expected)?;
    }
    Ok(())
}

/// With a version or a limit that policies do not let one choose.
fn evaluate_alone(case: &Case<'_>) -> Result<(), Mismatch> {
    let mut budget = Budget::new(cel::cost::PER_BINDING);
    if let Some(limit) = case.input()["perCallLimit"].as_u64() {
        budget = budget.per_expression(limit);
    }
    let expressions = case.input()["expressions"].as_array().unwrap();
    let results = case.expect()["results"].as_array().unwrap();
    for (expression, expected) in expressions.iter().zip(results) {
        let actual = match run(case, &[], &[expression.as_str().unwrap()], &mut budget) {
            Ok(values) => json!({"value": values.first()}),
            Err(message) => json!({"errorContains": message}),
        };
        same_result(case, &actual, expected)?;
    }
    Ok(())
}

/// The same value, or an error that tells what is expected. That an expression
/// does not compile is told in words of our own.
fn same_result(case: &Case<'_>, actual: &Value, expected: &Value) -> Result<(), Mismatch> {
    let Some(wanted) = expected["errorContains"].as_str() else {
        return case.same("result", actual, expected);
    };
    let told = actual["errorContains"].as_str();
    let is_told = told.is_some_and(|told| {
        told.contains(wanted) || (wanted == "compilation error" && told.contains("compilation failed"))
    });
    if is_told {
        Ok(())
    } else {
        Err(Mismatch::new(format!("{actual}")))
    }
}

fn cost_budget(case: &Case<'_>) -> Result<(), Mismatch> {
    let units = case.input()["budget"].as_i64().unwrap();
    let mut budget = Budget::new(u64::try_from(units).unwrap_or(cel::cost::PER_BINDING));
    let expressions: Vec<&str> = case.input()["expressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap())
        .collect();
    let done = run(case, &[], &expressions, &mut budget);
    let is_over = done
        .as_ref()
        .is_err_and(|message| message.contains("running out of cost budget"));
    case.same(
        "whether the budget is exceeded",
        &is_over,
        &case.expect()["exceedsBudget"].as_bool().unwrap(),
    )?;
    match case.expect()["remaining"].as_u64() {
        Some(remaining) => case.same("remaining", &budget.remaining(), &remaining),
        None => Ok(()),
    }
}

fn variables(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let units = input["budget"].as_u64().unwrap_or(cel::cost::PER_BINDING);
    let variables: Vec<(&str, &str)> = input["variables"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["name"].as_str().unwrap(), one["expression"].as_str().unwrap()))
        .collect();
    let expression = input["expression"].as_str().unwrap();
    let actual = match run(case, &variables, &[expression], &mut Budget::new(units)) {
        Ok(values) => json!({"value": values.first()}),
        Err(message) => json!({"errorContains": message}),
    };
    same_result(case, &actual, case.expect())
}

/// The values of expressions that share variables and a budget, or the first error.
fn run(
    case: &Case<'_>,
    variables: &[(&str, &str)],
    expressions: &[&str],
    budget: &mut Budget<'_>,
) -> Result<Vec<bool>, String> {
    let input = case.input();
    let version = minor(case).map_or(Version::DEFAULT, Version::new);
    let declared = AdmissionVariables {
        params: input["hasParamKind"] == true,
        authorizer: true,
    };
    let mut environment = cel::Environment::admission(version, declared);
    let mut compiled = Vec::new();
    for (name, expression) in variables {
        let program = environment
            .compile(expression, &[])
            .map_err(|error| error.to_string())?
            .named(name);
        environment = environment.lazy_variable(name, program.output().clone());
        compiled.push((environment.slot(&format!("variables.{name}")).unwrap(), program));
    }
    let programs: Vec<cel::Program> = expressions
        .iter()
        .map(|text| {
            environment
                .compile(text, &[Type::Bool])
                .map_err(|error| error.to_string())
        })
        .collect::<Result<_, _>>()?;
    let authorizer = ByTable(input["authorizer"].clone());
    let documents = ["object", "oldObject", "params"].map(|name| (name, document(&input[name])));
    let mut activation = Activation::new(&environment);
    for (name, document) in &documents {
        if let Some(slot) = environment.slot(name) {
            activation.set(slot, cel::Value::json(document.root()));
        }
    }
    activation.set(
        environment.slot("authorizer").unwrap(),
        cel::Value::authorizer(&authorizer),
    );
    for (slot, program) in &compiled {
        activation.set_lazy(*slot, program);
    }
    programs
        .iter()
        .map(|program| match program.evaluate(&mut activation, budget) {
            Ok(value) => Ok(value.as_bool().unwrap()),
            Err(error) => Err(error.to_string()),
        })
        .collect()
}

/// Answers as a case says: one way for the attributes it names, another for all others.
#[derive(Debug)]
struct ByTable(Value);

impl ByTable {
    fn answer_to(&self, is_match: impl Fn(&Value) -> bool) -> AccessAnswer {
        let named = &self.0["match"];
        let answer = if named.is_object() && is_match(named) {
            &self.0["matchResult"]
        } else {
            &self.0["default"]
        };
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        AccessAnswer {
            allowed: answer["decision"] == "Allow",
            reason: text("reason"),
            error: Some(text("error")).filter(|error| !error.is_empty()),
        }
    }
}

impl AccessChecker for ByTable {
    fn answer(&self, attributes: &Attributes<'_>, _: Time) -> AccessAnswer {
        self.answer_to(|named| {
            let is_user = named["user"]
                .as_str()
                .is_none_or(|name| name == attributes.user.name)
                && (named["groups"].is_null() || named["groups"] == json!(attributes.user.groups));
            is_user && sar::is_target(named, &attributes.target)
        })
    }
}

impl AuthorizeAccess for ByTable {
    fn authorize(&self, question: AccessQuestion) -> Arc<AccessAnswer> {
        Arc::new(self.answer_to(|named| {
            ["group", "resource", "subresource", "namespace", "name", "verb"]
                .into_iter()
                .zip([
                    &question.group,
                    &question.resource,
                    &question.subresource,
                    &question.namespace,
                    &question.name,
                    &question.verb,
                ])
                .all(|(field, asked)| named[field] == asked.as_str())
        }))
    }
}

// === policies and requests ===

/// A policy with `spec`, bound; beside it what a case says of parameters and namespaces.
fn manifests(spec: &Value, case: Option<&Value>) -> Result<Manifests, String> {
    let meta = |kind: &str, name: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    let mut policy = meta("ValidatingAdmissionPolicy", "p");
    policy["spec"] = spec.clone();
    policy["spec"]["matchConstraints"] = json!({"resourceRules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]});
    let mut binding = meta("ValidatingAdmissionPolicyBinding", "b");
    binding["spec"] = json!({"policyName": "p", "validationActions": ["Deny"]});
    let mut objects = Vec::new();
    if let Some(case) = case {
        if case["hasParamKind"] == true {
            policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Parameter"});
        }
        if case["params"].is_object() {
            let mut params = case["params"].clone();
            params["apiVersion"] = json!("example.com/v1");
            params["kind"] = json!("Parameter");
            params["metadata"]["name"] = json!("own");
            objects.push(params);
            binding["spec"]["paramRef"] = json!({"name": "own", "parameterNotFoundAction": "Deny"});
        }
        if case["namespaceObject"].is_object() {
            let mut namespace = case["namespaceObject"].clone();
            namespace["apiVersion"] = json!("v1");
            namespace["kind"] = json!("Namespace");
            objects.push(namespace);
        }
    }
    objects.extend([policy, binding]);
    let source = Source {
        file: "case.json".into(),
        text: json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    manifests.ok_or_else(|| faults.to_string())
}

fn validated(manifests: &Manifests, authority: &dyn AccessChecker, request: &Request<'_>) -> Outcome {
    let objects = manifests.shared.admission.clone();
    let set = AdmissionSet::new(objects, &AdmissionSettings::default());
    Chain::run(
        Phase::Validate,
        &set,
        request,
        Run::new(authority, Time::UNIX_EPOCH),
        &mut nobody,
    )
}

fn document(value: &Value) -> Document<'static> {
    Document::parse(value.to_string()).unwrap()
}

fn with_request<T>(input: &Value, run: impl Fn(&Request<'_>) -> T) -> T {
    let documents = ["object", "oldObject", "options"].map(|name| document(&input[name]));
    let [object, old_object, options] = documents.each_ref().map(|document| {
        let root = document.root();
        (!root.is_null()).then_some(root)
    });
    let (attributes, kind) = (&input["attributes"], &input["kind"]);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let kind = GroupVersionKind {
        group: text(kind, "group").into(),
        version: text(kind, "version").into(),
        kind: text(kind, "kind").into(),
    };
    let resource = GroupVersionResource {
        group: text(attributes, "group").into(),
        version: text(attributes, "version").into(),
        resource: text(attributes, "resource").into(),
    };
    // The object's namespace is the one that the case gives.
    let namespace = input["namespaceObject"]["metadata"]["name"].as_str();
    let namespace = namespace.map_or_else(|| text(attributes, "namespace"), str::to_owned);
    run(&Request {
        uid: "u".into(),
        kind: kind.clone(),
        resource: resource.clone(),
        subresource: text(attributes, "subresource").into(),
        request_kind: kind,
        request_resource: resource,
        name: text(attributes, "name").into(),
        namespace: namespace.into(),
        operation: Operation::parse(&text(attributes, "operation")).unwrap(),
        user: sar::user(&input["user"]),
        object,
        old_object,
        options,
        dry_run: input["dryRun"] == true,
        written: documents[0].root(),
    })
}
