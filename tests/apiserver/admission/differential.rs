//! The API server's own admission policies and Portcullis, side by side.
//!
//! ```text
//!  seed ─> random policies ─┬─> API server of RBAC, which evaluates them itself
//!     │                     └─> gateway <─ webhooks ─ API server of these tests
//!     └──> random requests ─────> to both: same code, message, warnings, object
//! ```
//!
//! The policies of the other tests are in force on both sides too.

pub(crate) mod configurations;
pub(crate) mod policies;
pub(crate) mod requests;
pub(crate) mod values;

use super::servers::{self, Servers};
use super::{custom_resources, pods};
use crate::cluster::Cluster;
use crate::differential;
use crate::differential::random::Random;
use crate::harness::client::Response;
use crate::harness::eventually;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How many objects are created; about half of them live on to be updated.
const OBJECTS: usize = 320;
const NAMESPACE: &str = "compared";
const COLORS: &[&str] = &["red", "green", "blue", "mauve"];

const SEED: &str = "PORTCULLIS_SEED";
const USUAL_SEED: u64 = 20_261_121;

fn seed() -> u64 {
    std::env::var(SEED).map_or(USUAL_SEED, |seed| seed.parse().unwrap())
}

fn namespace() -> Value {
    let labels = json!({"tier": "red", "kubernetes.io/metadata.name": NAMESPACE});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

/// The manifest for the gateway: the random policies, and the namespace.
pub(super) fn manifest() -> String {
    let mut objects = policies::generate(&mut Random::new(seed()));
    objects.extend(values::policies());
    objects.push(namespace());
    documents(&objects)
}

fn documents(objects: &[Value]) -> String {
    objects.iter().fold(String::new(), |mut text, object| {
        writeln!(text, "---\n{object}").unwrap();
        text
    })
}

/// Makes the namespace in which both are compared.
pub(super) fn prepare(cluster: &Cluster) {
    cluster.create("/api/v1/namespaces", &namespace());
}

pub(crate) fn random_requests_come_out_as_by_the_policies_of_the_api_server() {
    let Some(ours) = servers::shared() else { return };
    let theirs = differential::cluster().unwrap();
    println!("{SEED}={}", seed());
    load(theirs);
    let mut comparison = Comparison::new(theirs, &ours);
    let mut random = Random::new(seed() + 1);
    for number in 0..OBJECTS {
        comparison.live(&mut random, number);
    }
    values::compare(&mut comparison);
    comparison.conclude();
}

/// Loads everything into the API server that evaluates by itself, and waits
/// until each policy is in force.
fn load(cluster: &Cluster) {
    prepare(cluster);
    custom_resources::define(cluster);
    let mut random = policies::generate(&mut Random::new(seed()));
    random.extend(values::policies());
    let random = documents(&random);
    let file = cluster.folder().join("admission-policies.yaml");
    let all = [pods::POLICIES, custom_resources::POLICIES, &random].join("\n---\n");
    std::fs::write(&file, all).unwrap();
    let created = cluster.kubectl(
        "admin",
        &["create", "--validate=false", "--filename", file.to_str().unwrap()],
    );
    assert!(
        created.status.success(),
        "{}",
        String::from_utf8_lossy(&created.stderr)
    );

    // Admission hears of a definition later than the API itself.
    let mut any = Random::new(0);
    let widget = requests::of_kind(&mut any, "Widget", "admitted", json!({}));
    let target = format!("{}?dryRun=All", widget.collection);
    let admitted = || cluster.admin().post(&target, &widget.object).unwrap().status == 201;
    assert!(eventually(admitted), "no widget is admitted");
    let judging = (0..policies::COUNT).map(policies::validating);
    let changing = (0..policies::COUNT)
        .map(policies::mutating)
        .chain(values::names());
    let judging = judging.map(|name| {
        (
            policies::VALIDATING,
            name,
            needs_validation as fn(&Response) -> bool,
        )
    });
    let changing = changing.map(|name| (policies::MUTATING, name, is_changed as fn(&Response) -> bool));
    for (label, name, is_in_force) in judging.chain(changing) {
        let labels = json!({label: name});
        let probe = requests::of_kind(&mut any, "ConfigMap", policies::PROBE, labels);
        let target = format!("{}?dryRun=All", probe.collection);
        let heard = || is_in_force(&cluster.admin().post(&target, &probe.object).unwrap());
        assert!(eventually(heard), "{name} is not in force");
    }
}

fn needs_validation(response: &Response) -> bool {
    response.status == 422 || !response.header_values("Warning").is_empty()
}

fn is_changed(response: &Response) -> bool {
    response.json()["metadata"]["annotations"]["probed"] == "yes"
}

/// Both servers, and what was seen of them.
struct Comparison<'s> {
    theirs: &'s Cluster,
    ours: &'s Cluster,
    requests: usize,
    denied: usize,
    warned: usize,
    differences: Vec<String>,
}

impl<'s> Comparison<'s> {
    fn new(theirs: &'s Cluster, ours: &'s Servers) -> Self {
        Self {
            theirs,
            ours: &ours.cluster,
            requests: 0,
            denied: 0,
            warned: 0,
            differences: Vec::new(),
        }
    }

    /// Creates an object, and perhaps changes and deletes it.
    fn live(&mut self, random: &mut Random, number: usize) {
        let created = requests::create(random, number);
        let stored = self.send("POST", &created.collection, &[&created.object, &created.object]);
        let Some(mut stored) = stored else { return };
        let name = created.object["metadata"]["name"].as_str().unwrap();
        let target = format!("{}/{name}", created.collection);
        let mut change = random.fork();
        for stored in &mut stored {
            requests::change(&mut change.clone(), stored);
        }
        if change.one_in(2) {
            self.send("PUT", &target, &[&stored[0], &stored[1]]);
        }
        if change.one_in(6) {
            self.send("DELETE", &target, &[&Value::Null, &Value::Null]);
        }
    }

    /// Sends a request to either server and compares; both objects as stored
    /// if there are any.
    fn send(&mut self, method: &str, target: &str, bodies: &[&Value; 2]) -> Option<[Value; 2]> {
        let send = |cluster: &Cluster, body: &Value| {
            let body = (!body.is_null()).then(|| body.to_string());
            let body = body.as_ref().map(String::as_bytes);
            cluster.admin().send(method, target, body).unwrap()
        };
        let answers = [send(self.theirs, bodies[0]), send(self.ours, bodies[1])];
        let [theirs, ours] = answers.each_ref().map(|answer| Told::of(answer, method));
        self.requests += 1;
        self.denied += usize::from(theirs.code >= 400);
        self.warned += usize::from(!theirs.warnings.is_empty());
        if theirs != ours {
            let body = bodies[0];
            self.differences.push(format!(
                "{method} {target}\n  body   {body}\n  theirs {theirs:?}\n  ours   {ours:?}"
            ));
        }
        let are_stored = answers.iter().all(|answer| answer.status < 300);
        are_stored.then(|| answers.map(|answer| answer.json()))
    }

    /// Creates an object, but for storing it, and compares code and object. `what` happens is
    /// admitted where it `is_fine`.
    fn dry_run(&mut self, created: &requests::Created, what: &str, is_fine: bool) {
        let target = format!("{}?dryRun=All", created.collection);
        let [theirs, ours] = [self.theirs, self.ours].map(|cluster| {
            let answer = cluster.admin().post(&target, &created.object).unwrap();
            // A service that is not stored has an address all the same, another each time.
            let mut told = Told::of(&answer, "POST");
            for field in ["clusterIP", "clusterIPs"] {
                told.object["spec"].as_object_mut().map(|spec| spec.remove(field));
            }
            told
        });
        let is_expected = (theirs.code < 400) == is_fine;
        if !is_expected || theirs.code != ours.code || theirs.object != ours.object {
            self.differences
                .push(format!("{what}\n  theirs {theirs:?}\n  ours   {ours:?}"));
        }
    }

    fn conclude(self) {
        let Self {
            requests,
            denied,
            warned,
            differences,
            ..
        } = self;
        let seed = seed();
        println!("{requests} requests, {denied} denied, {warned} warned of");
        let shown: Vec<_> = differences.iter().take(20).map(String::as_str).collect();
        assert!(
            differences.is_empty(),
            "{SEED}={seed}: {} of {requests} differ\n{}",
            differences.len(),
            shown.join("\n")
        );
        assert!(
            requests >= 300 && denied > requests / 10 && denied < requests * 9 / 10,
            "{denied} of {requests}"
        );
        assert!(warned > 0, "the requests say too little");
    }
}

/// What a user hears of a request.
#[derive(Debug, PartialEq)]
struct Told {
    code: u16,
    reason: Value,
    message: String,
    warnings: Vec<String>,
    object: Value,
}

impl Told {
    fn of(response: &Response, method: &str) -> Self {
        let mut object = response.json();
        let is_refused = response.status >= 400;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
                "generation",
                "deletionTimestamp",
            ] {
                metadata.remove(field);
            }
        }
        Self {
            code: response.status,
            reason: object["reason"].clone(),
            message: message(object["message"].as_str().unwrap_or_default()),
            warnings: response
                .header_values("Warning")
                .into_iter()
                .map(str::to_owned)
                .collect(),
            object: if is_refused || method == "DELETE" {
                Value::Null
            } else {
                object
            },
        }
    }
}

/// A message without what precedes it: of webhooks, or of policies.
fn message(reported: &str) -> String {
    let of_webhook = reported.split_once(" denied the request: ").map(|(_, rest)| rest);
    let of_policy = reported.split_once(" is forbidden: ").map(|(_, rest)| rest);
    of_webhook.or(of_policy).unwrap_or(reported).to_owned()
}
