//! Other authorizers, as an AuthorizationConfiguration names them.

use portcullis_policy::model::Time;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use portcullis::config::{self, AuthorizerTypes, Disk};
use portcullis::telemetry::ReviewTrace;
use portcullis::webhooks::authorizers::{Authorizers, ConsultationStep};
use portcullis_cel::Version;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::authorization::authorizer::Consultation;
use portcullis_policy::model::{Attributes, Deadline, Decision, ResourceAttributes, Target, User};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Case, Mismatch, Table};
use crate::selectors::kind;
use crate::tools::authorizer::{Act, Authorizer, kubeconfig};
use crate::tools::pki::Authority;

pub(crate) const CONFIGURATION: Table = &[("validateAuthorizationConfiguration", validate)];

pub(crate) const CALLS: Table = &[
    ("sarResponse", response),
    ("sarCacheStep", cache_step),
    ("sarTransport", transport),
];

/// A file that is there, in the place of that of the vectors.
const EXISTING: &str = "/tmp/existing-kubeconfig";

/// The faults that the API server finds, at their fields; it leaves `webhook`
/// out of the path of a webhook's field.
fn validate(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = input["config"].to_string().replace(EXISTING, file);
    let types = |name: &str| -> Vec<&str> {
        let types = input[name].as_array().into_iter().flatten();
        types.filter_map(Value::as_str).collect()
    };
    let types = AuthorizerTypes {
        known: &types("knownTypes"),
        repeatable: &types("repeatableTypes"),
        in_cluster: true,
        cel_version: Version::new(35),
    };
    let faults = config::authorizers::check("f.json", &text, Path::new("/"), types);
    let actual: Vec<_> = faults
        .iter()
        .map(|fault| {
            let field = fault.place.path.to_string().replace(".webhook.", ".");
            (kind(fault.kind), field)
        })
        .collect();
    let expected: Vec<_> = case.expect()["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|error| {
            let field = error["field"].as_str().unwrap().to_owned();
            (error["type"].as_str().unwrap(), field)
        })
        .collect();
    case.same("list of faults", &actual, &expected)?;
    case.same(
        "validity",
        &faults.is_empty(),
        &case.expect()["valid"].as_bool().unwrap(),
    )
}

/// How long an answer is waited for, and how long one that does not come.
const PATIENCE: Duration = Duration::from_secs(60);
const IN_VAIN: Duration = Duration::from_millis(400);

/// What the webhook does next.
type Next = Arc<Mutex<Act>>;

/// An authorizer, and Portcullis' side of it.
struct Pair {
    authorizer: Authorizer,
    next: Next,
    folder: TempDir,
}

/// What a consultation came to, and after how many requests.
struct Outcome {
    decision: &'static str,
    reason: String,
    is_error: bool,
    calls: usize,
}

/// An HTTP answer of the webhook: what it decides under each failurePolicy, and
/// whether it is kept. How often is asked is not compared: `Retry-After` is not
/// heeded, and nothing asked again that the caller no longer waits for.
fn response(case: &Case<'_>) -> Result<(), Mismatch> {
    let http = &case.input()["http"];
    let headers = http["headers"].as_object().unwrap().iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    let body = body(case);
    let status = u16::try_from(http["status"].as_u64().unwrap()).unwrap();
    // A reply that repeats another question is an error here, so the question is the one it repeats.
    let repeated = serde_json::from_slice::<Value>(&body).ok();
    let repeated = repeated.as_ref().and_then(|reply| reply["spec"]["user"].as_str());
    let user = repeated.unwrap_or("jane").to_owned();
    let pair = Pair::start(Act::Reply(status, headers.collect(), body));
    let version = case.input()["version"].as_str().unwrap();
    for policy in ["NoOpinion", "Deny"] {
        let expect = &case.expect()["byFailurePolicy"][policy];
        let authorizers = pair.authorizers(version, policy);
        let attributes = attributes(&user, "");
        let wait = time_limit(&expect["error"]);
        let outcome = pair.consult(&authorizers, &attributes, wait);
        case.same(
            "decision",
            &outcome.decision,
            &expect["decision"].as_str().unwrap(),
        )?;
        case.same("error", &outcome.is_error, &expect["error"].as_bool().unwrap())?;
        let cached = pair.consult(&authorizers, &attributes, wait).calls == 0;
        case.same(
            "whether it is kept",
            &cached,
            &expect["cached"].as_bool().unwrap(),
        )?;
        if let Some(reason) = case.expect()["byFailurePolicy"]["reason"].as_str() {
            same_reason(case, &outcome.reason, reason)?;
        }
    }
    Ok(())
}

fn time_limit(is_error: &Value) -> Duration {
    if is_error == true { IN_VAIN } else { PATIENCE }
}

/// Ours names the webhook, and ends in its reason; a very long one is cut.
fn same_reason(case: &Case<'_>, actual: &str, expected: &str) -> Result<(), Mismatch> {
    if expected.ends_with(" bytes)") {
        return case.same("length of the reason", &actual.len(), &1024);
    }
    let reported = actual.ends_with(expected);
    case.same("whether the reason is told", &reported, &true)
}

fn body(case: &Case<'_>) -> Vec<u8> {
    let body = case.input()["http"]["body"].as_str().unwrap();
    if body != "(5 MiB reason)" {
        return body.as_bytes().to_vec();
    }
    let reason = "x".repeat(5 << 20);
    let version = case.input()["version"].as_str().unwrap();
    let review = json!({
        "kind": "SubjectAccessReview",
        "apiVersion": format!("authorization.k8s.io/{version}"),
        "status": {"allowed": true, "reason": reason},
    });
    review.to_string().into_bytes()
}

pub(crate) fn is_yaml(case: &Case<'_>) -> bool {
    let body = case.input()["http"]["body"].as_str().unwrap_or_default();
    body.starts_with("apiVersion:")
}

/// The steps of one authorizer, up to that of the case: upstream asks them in
/// their order, with answers that are kept long.
fn cache_step(case: &Case<'_>) -> Result<(), Mismatch> {
    let version = case.input()["version"].as_str().unwrap();
    let step = case.input()["step"].as_u64().unwrap();
    let mut steps: Vec<&Value> = case.file["cases"].as_array().unwrap().iter().collect();
    steps.retain(|other| {
        other["check"] == case.check()
            && other["input"]["version"] == version
            && other["input"]["step"].as_u64() <= Some(step)
    });
    steps.sort_by_key(|other| other["input"]["step"].as_u64());
    let pair = Pair::start(Act::Close);
    let authorizers = pair.authorizers(version, "NoOpinion");
    let (last, before) = steps.split_last().unwrap();
    for step in before {
        pair.step(&authorizers, &step["input"], version);
    }
    let outcome = pair.step(&authorizers, &last["input"], version);
    let expect = case.expect();
    case.same("error", &outcome.is_error, &expect["error"].as_bool().unwrap())?;
    let authorized = outcome.decision == "Allow";
    case.same(
        "authorized",
        &authorized,
        &expect["authorized"].as_bool().unwrap(),
    )?;
    let is_asked = expect["httpCalls"].as_u64() > Some(0);
    case.same("whether it is asked", &(outcome.calls > 0), &is_asked)
}

/// A connection that fails.
fn transport(case: &Case<'_>) -> Result<(), Mismatch> {
    let act = match case.input()["fault"].as_str().unwrap() {
        "hang" => Act::Hang,
        "half-body" => Act::Half,
        "reset" => Act::Reset,
        _ => Act::Close,
    };
    let pair = Pair::start(act);
    if case.input()["fault"] == "refused" {
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::write(
            pair.kubeconfig(),
            kubeconfig(nowhere, "/", &Authority::new("ca").pem()),
        )
        .unwrap();
    }
    let policy = case.input()["failurePolicy"].as_str().unwrap();
    let authorizers = pair.authorizers("v1", policy);
    let outcome = pair.consult(&authorizers, &attributes("jane", ""), IN_VAIN);
    let expect = case.expect();
    case.same(
        "decision",
        &outcome.decision,
        &expect["decision"].as_str().unwrap(),
    )?;
    case.same("error", &outcome.is_error, &expect["error"].as_bool().unwrap())
}

/// `alice` or another in a namespace; oversized, in far too long a one.
fn attributes(user: &str, namespace: &str) -> Attributes<'static> {
    Attributes {
        user: User {
            name: user.to_owned().into(),
            ..User::default()
        },
        target: Target::Resource(Box::new(ResourceAttributes {
            verb: "get".into(),
            namespace: namespace.to_owned().into(),
            ..ResourceAttributes::default()
        })),
    }
}

// === impl Pair ===

impl Pair {
    /// A webhook that does `act` whenever it is asked.
    fn start(act: Act) -> Self {
        static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("ca"));
        let next: Next = Arc::new(Mutex::new(act));
        let script = Arc::clone(&next);
        let authorizer = Authorizer::start(&AUTHORITY, move |_| script.lock().unwrap().clone());
        let pair = Self {
            authorizer,
            next,
            folder: tempfile::tempdir().unwrap(),
        };
        fs::write(pair.kubeconfig(), pair.authorizer.kubeconfig("/authz")).unwrap();
        pair
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("authorizer.kubeconfig")
    }

    /// The authorizer as a configuration names it.
    fn authorizers(&self, version: &str, policy: &str) -> Authorizers {
        let text = format!(
            "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {{tls: {{certificate: s.crt, privateKey: s.key}}}}
authorization:
  webhooks:
  - type: Webhook
    name: w
    webhook:
      timeout: 2s
      subjectAccessReviewVersion: {version}
      failurePolicy: {policy}
      connectionInfo: {{type: KubeConfigFile, kubeConfigFile: authorizer.kubeconfig}}
"
        );
        let (config, faults) = config::parse(Path::new("c.yaml"), &text, self.folder.path());
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let (authorizers, faults) = Authorizers::build(&config, &Disk, None);
        assert_eq!(faults.to_string(), "");
        authorizers
    }

    fn consult(
        &self,
        authorizers: &Authorizers,
        attributes: &Attributes<'_>,
        time_limit: Duration,
    ) -> Outcome {
        let before = self.authorizer.asked().len();
        let policies = PolicySet::default();
        let own = policies.authorize(attributes, Time::UNIX_EPOCH);
        let consultation = Consultation::new(own, false);
        let end = match authorizers.consult(
            "default",
            attributes,
            consultation,
            Deadline::NEVER,
            Instant::now(),
        ) {
            ConsultationStep::Done(end) => end,
            ConsultationStep::Ask(pending) => {
                let deadline = Instant::now() + time_limit;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let trace = ReviewTrace::default();
                runtime
                    .unwrap()
                    .block_on(pending.ask(deadline, &trace, &|| Some(Box::new(()))))
                    .unwrap()
                    .0
            }
        };
        let (authorization, error) = (end.authorization, end.error);
        Outcome {
            decision: match authorization.decision {
                Decision::Allow => "Allow",
                Decision::Deny => "Deny",
                Decision::NoOpinion => "NoOpinion",
            },
            reason: authorization.reason.to_string(),
            is_error: !error.is_empty(),
            calls: self.authorizer.asked().len() - before,
        }
    }

    fn step(&self, authorizers: &Authorizers, input: &Value, version: &str) -> Outcome {
        let server = &input["server"];
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{version}"),
            "status": {"allowed": server["allow"]},
        });
        let status = u16::try_from(server["status"].as_u64().unwrap()).unwrap();
        *self.next.lock().unwrap() = Act::Reply(status, Vec::new(), review.to_string().into_bytes());
        let namespace = match input["oversizedAttributes"].as_bool() {
            Some(true) => "x".repeat(10_000),
            _ => input["namespace"].as_str().unwrap().to_owned(),
        };
        let attributes = attributes(input["user"].as_str().unwrap(), &namespace);
        self.consult(authorizers, &attributes, time_limit(&(status != 200).into()))
    }
}
