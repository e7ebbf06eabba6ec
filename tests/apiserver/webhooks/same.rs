//! The outcome is the same, no matter who asks the webhooks.

use super::objects::{self, Object};
use super::servers::{self, BEHIND, DIRECT, Servers};
use crate::differential::random::Random;
use crate::harness::client::Response;
use crate::harness::webhooks::Called;
use serde_json::{Value, json};

/// How many objects are created; those that are stored may be changed and deleted.
const OBJECTS: usize = 200;

const SEED: &str = "PORTCULLIS_SEED";
const USUAL_SEED: u64 = 20_260_904;

/// What precedes the webhook's own words behind the gateway.
const PREFIX: &str = "admission webhook \"gateway.portcullis.dev\" denied the request: ";
/// How the API server tells of a webhook that it could not call; what follows is told by each caller in its own words.
const FAILED: &str = "failed calling webhook \"";

pub(crate) fn webhooks_behind_the_gateway_decide_as_those_of_the_api_server() {
    let Some(servers) = servers::shared() else { return };
    let seed = std::env::var(SEED).map_or(USUAL_SEED, |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut random = Random::new(seed);
    let mut comparison = Comparison::new(&servers);
    for number in 0..OBJECTS {
        comparison.live(&mut random, number);
    }
    comparison.conclude();
}

/// Both ways, and what was seen on them.
struct Comparison<'s> {
    servers: &'s Servers,
    requests: usize,
    denied: usize,
    warned: usize,
    reinvoked: usize,
    differences: Vec<String>,
}

impl<'s> Comparison<'s> {
    fn new(servers: &'s Servers) -> Self {
        Self {
            servers,
            requests: 0,
            denied: 0,
            warned: 0,
            reinvoked: 0,
            differences: Vec::new(),
        }
    }

    /// Creates an object, and perhaps replaces, patches and deletes it.
    fn live(&mut self, random: &mut Random, number: usize) {
        let created = objects::create(random, number);
        let mut random = random.fork();
        let query = if random.one_in(8) { "?dryRun=All" } else { "" };
        let stored = self.send("POST", &created, query, [&created.object; 2]);
        let Some(mut stored) = stored.filter(|_| query.is_empty()) else {
            return;
        };
        if random.one_in(3) {
            let orders = objects::orders(&mut random);
            for stored in &mut stored {
                stored["metadata"]["annotations"] = orders.clone();
            }
            self.send("PUT", &created, "", stored.each_ref());
        }
        if random.one_in(3) {
            let patch = json!({"metadata": {"annotations": objects::orders(&mut random)}});
            self.send("PATCH", &created, "", [&patch; 2]);
        }
        if random.one_in(3) {
            self.send("DELETE", &created, "", [&Value::Null; 2]);
        }
    }

    /// Sends a request on either way and compares; both objects as stored.
    fn send(&mut self, method: &str, to: &Object, query: &str, bodies: [&Value; 2]) -> Option<[Value; 2]> {
        let send = |namespace: &str, body: &Value| {
            let target = match method {
                "POST" => to.collection(namespace) + query,
                _ => format!("{}/{}", to.collection(namespace), to.name()),
            };
            let content = match method {
                "PATCH" => "application/merge-patch+json",
                _ => "application/json",
            };
            let body = (!body.is_null()).then(|| body.to_string());
            let admin = self.servers.cluster.admin().with_header("Content-Type", content);
            admin
                .send(method, &target, body.as_ref().map(String::as_bytes))
                .unwrap()
        };
        let answers = [send(DIRECT, bodies[0]), send(BEHIND, bodies[1])];
        let [direct, behind] = answers.each_ref().map(|answer| Told::of(answer, method));
        let calls = self
            .servers
            .webhooks
            .take(|call| call.request()["name"] == to.name());
        let [asked, asked_behind] = [DIRECT, BEHIND].map(|way| asked(&calls, way));
        self.requests += 1;
        self.denied += usize::from(direct.code >= 400);
        self.warned += usize::from(!direct.warnings.is_empty());
        self.reinvoked += usize::from(asked.iter().filter(|name| *name == "m1").count() > 1);
        if direct != behind || asked != asked_behind {
            self.differences.push(format!(
                "{method} {}\n  body   {}\n  direct {direct:?} {asked:?}\n  behind {behind:?} {asked_behind:?}",
                to.name(),
                bodies[0],
            ));
        }
        let are_stored = answers.iter().all(|answer| answer.status < 300);
        are_stored.then(|| answers.map(|answer| answer.json()))
    }

    fn conclude(self) {
        let Self {
            requests,
            denied,
            warned,
            reinvoked,
            differences,
            ..
        } = self;
        println!("{requests} requests, {denied} denied, {warned} warned of, {reinvoked} with reinvocation");
        let shown: Vec<_> = differences.iter().take(10).map(String::as_str).collect();
        assert!(
            differences.is_empty(),
            "{} of {requests} differ\n{}",
            differences.len(),
            shown.join("\n")
        );
        assert!(requests >= 200, "{requests} are too few");
        for seen in [denied, warned, reinvoked] {
            assert!(
                seen > requests / 20 && seen < requests * 9 / 10,
                "the requests say too little"
            );
        }
    }
}

/// The webhooks that were asked on a way: those that mutate in the order asked,
/// the others by name. The API server may begin again when it finds that it knew
/// an older object: told once.
fn asked(calls: &[Called], way: &str) -> Vec<String> {
    let start = format!("/{way}/");
    let names = calls
        .iter()
        .filter_map(|call| Some(call.path.strip_prefix(&start)?.to_owned()));
    let (mut asked, mut validating): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('m'));
    validating.sort();
    validating.dedup();
    let period = (1..=asked.len()).find(|&length| asked.chunks(length).all(|part| part == &asked[..length]));
    asked.truncate(period.unwrap_or_default());
    asked.extend(validating);
    asked
}

/// What a user hears of a request.
#[derive(Debug, PartialEq)]
struct Told {
    code: u16,
    warnings: Vec<String>,
    /// The object as stored, or the Status of a refusal.
    body: Value,
}

impl Told {
    fn of(response: &Response, method: &str) -> Self {
        let mut body = response.json();
        if let Some(metadata) = body["metadata"].as_object_mut() {
            for field in [
                "namespace",
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
        if response.status >= 400 {
            let message = body["message"].as_str().unwrap_or_default();
            body["message"] = json!(words(message));
            if let Some(message) = body.pointer_mut("/details/causes/0/message") {
                *message = json!(words(message.as_str().unwrap()));
            }
        } else if method == "DELETE" {
            body = Value::Null;
        }
        let mut warnings: Vec<String> = response
            .header_values("Warning")
            .into_iter()
            .map(str::to_owned)
            .collect();
        // Those that validate are asked at once: their warnings come as they come.
        warnings.sort();
        Self {
            code: response.status,
            warnings,
            body,
        }
    }
}

/// The words of the webhook, or of who could not call it.
fn words(message: &str) -> String {
    let message = message.strip_prefix(PREFIX).unwrap_or(message);
    let failed = message.find(FAILED).map(|start| start + FAILED.len());
    let named = failed.and_then(|start| Some(start + message[start..].find('"')?));
    message[..named.unwrap_or(message.len())].to_owned()
}
