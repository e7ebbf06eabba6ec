//! Authorizers behind the gateway, and the same ones known to the API server
//! itself.
//!
//! ```text
//!            kube-apiserver                group `behind`: ask the gateway
//!     behind ╱            ╲ direct         group `direct`: ask the authorizers
//!   gateway ──▶ first, second ◀──
//!          same questions, same decisions
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::differential::random::Random;
use crate::harness::api_server;
use crate::harness::authorizer::{Act, Asked, Authorizer, says};
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::ports;

/// How many questions are compared.
const QUESTIONS: usize = 300;

const USERS: [User; 2] = [
    User {
        name: "dora",
        groups: &["direct"],
    },
    User {
        name: "bert",
        groups: &["behind"],
    },
];

/// The conditions of the second: the last has no result for paths.
const CONDITIONS: [&str; 3] = [
    "request.user != 'u0'",
    "!has(request.resourceAttributes) || request.resourceAttributes.namespace != 'kube-system'",
    "request.resourceAttributes.verb != 'delete'",
];

/// The API server, the gateway, and both authorizers at one address.
struct Servers {
    cluster: Cluster,
    _gateway: Gateway,
    authorizer: Authorizer,
}

pub(crate) fn they_are_asked_and_decide_as_if_the_api_server_asked_them_itself() {
    let Some(servers) = Servers::start() else { return };
    let mut random = Random::new(20_261_121);
    let (mut asked, mut tally) = (0, [0_usize; 3]);
    for _ in 0..QUESTIONS {
        let question = question(&mut random);
        let (direct, questions) = servers.ask(&question, "direct");
        let (behind, same_questions) = servers.ask(&question, "behind");
        assert_eq!(
            behind["allowed"], direct["allowed"],
            "{question}: {behind}, not {direct}"
        );
        assert_eq!(
            behind.get("denied"),
            direct.get("denied"),
            "{question}: {behind}, not {direct}"
        );
        assert_eq!(same_questions, questions, "{question}");
        asked += questions.len();
        let decision = usize::from(direct["allowed"] == true) + 2 * usize::from(direct["denied"] == true);
        tally[decision] += 1;
    }
    assert!(
        tally.iter().all(|count| *count > QUESTIONS / 20),
        "they say too little: {tally:?}"
    );
    assert!(asked > QUESTIONS, "too little was asked: {asked}");
}

pub(crate) fn a_user_of_the_api_server_is_let_in_by_one_behind_the_gateway() {
    let Some(servers) = Servers::start() else { return };
    for path in [
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/nodes",
        "/version",
    ] {
        let (direct, behind) = (
            servers.cluster.status("dora", path),
            servers.cluster.status("bert", path),
        );
        assert_eq!(behind, direct, "{path}");
    }
}

/// A review's spec, without groups.
fn question(random: &mut Random) -> Value {
    let user = format!("u{}", random.below(8));
    let verb = *random.pick(&["get", "list", "delete", "create"]);
    if random.one_in(5) {
        let path = *random.pick(&["/a", "/b", "/c"]);
        return json!({"user": user, "nonResourceAttributes": {"path": path, "verb": verb}});
    }
    let mut attributes = json!({
        "verb": verb,
        "resource": random.pick(&["pods", "secrets"]),
        "version": "v1",
        "namespace": random.pick(&["", "default", "kube-system"]),
        "name": random.pick(&["", "n"]),
    });
    if verb == "list" {
        let requirement = json!({"key": "a", "operator": "In", "values": ["b", "c"]});
        attributes["labelSelector"] = json!({"requirements": [requirement]});
    }
    json!({"user": user, "uid": "1", "extra": {"example.com/k": ["v", "w"]}, "resourceAttributes": attributes})
}

/// What the authorizer at a path says: chosen by the question, not by how it came.
fn decide(asked: &Asked) -> Act {
    let mut spec = asked.review["spec"].clone();
    let user = spec["user"].take();
    let named = user.as_str().unwrap_or_default();
    let path = asked.line.split('?').next().unwrap_or_default();
    let about = [&spec["resourceAttributes"], &spec["nonResourceAttributes"]].map(Value::to_string);
    let mut hasher = DefaultHasher::new();
    (path, about, &named[..named.len().min(2)]).hash(&mut hasher);
    // Users of the API server's own are told apart by their groups alone.
    let chosen = if named.starts_with('u') {
        hasher.finish() % 4
    } else {
        1
    };
    match chosen {
        0 => says(
            asked,
            json!({"allowed": false, "denied": true, "reason": "refused"}),
        ),
        1 => says(asked, json!({"allowed": true, "reason": "let in"})),
        2 => says(asked, json!({"allowed": false, "reason": "not mine"})),
        _ => says(
            asked,
            json!({"allowed": false, "evaluationError": "of no account"}),
        ),
    }
}

// === impl Servers ===

impl Servers {
    fn start() -> Option<Self> {
        let binaries = binaries::find()?;
        let folder = Folder::new("authorizers");
        let (keys, authority) = (Keys::new(), Authority::new("authorizers"));
        let authorizer = Authorizer::start(&authority, decide);
        for name in ["first", "second"] {
            folder.write(
                &format!("{name}.kubeconfig"),
                authorizer.kubeconfig(&format!("/{name}")),
            );
        }
        let address = ports::free();
        let gateway = Gateway::start(&Setup {
            folder: &folder.path().join("gateway"),
            address,
            keys: &keys,
            callers: Vec::new(),
            manifests: &[],
            more: json!({"authorization": {"webhooks": authorizers(&folder, None)}}),
        });
        let credential = Credential::Certificate(keys.caller.clone());
        let url = format!("https://{address}/authorize");
        folder.write(
            "gateway.kubeconfig",
            kubeconfig::render(&url, &keys.servers.pem(), &credential),
        );
        let mut all = authorizers(&folder, Some("'direct' in request.groups"));
        all.push(entry(&folder, "gateway", &["'behind' in request.groups"]));
        let configuration = api_server::authorization_configuration(&all);
        let configuration = folder.write("authorization.yaml", configuration.to_string());
        let flag = format!("--authorization-config={}", configuration.display());
        Some(Self {
            cluster: Cluster::start(&binaries, folder, &USERS, &[flag]),
            _gateway: gateway,
            authorizer,
        })
    }

    /// What the API server answers when it asks this way, and what the
    /// authorizers were asked meanwhile: the path and the question, without groups.
    fn ask(&self, question: &Value, way: &str) -> (Value, Vec<(String, Value)>) {
        let before = self.authorizer.asked().len();
        let mut spec = question.clone();
        spec["groups"] = json!([way]);
        let answer = self.cluster.review(&spec);
        let asked = self.authorizer.asked().split_off(before);
        // The API server asks about its own doings, too.
        let own = asked
            .into_iter()
            .filter(|asked| asked.review["spec"]["user"] == question["user"]);
        let without_groups = own.map(|mut asked| {
            assert_eq!(asked.review["spec"]["groups"], json!([way]));
            asked.review["spec"]["groups"] = Value::Null;
            (asked.line, asked.review)
        });
        (answer, without_groups.collect())
    }
}

/// The entries of both authorizers, with a condition more.
fn authorizers(folder: &Folder, condition: Option<&str>) -> Vec<Value> {
    let more: Vec<&str> = condition.into_iter().collect();
    let conditions: Vec<&str> = more.iter().copied().chain(CONDITIONS).collect();
    vec![
        entry(folder, "first", &more),
        entry(folder, "second", &conditions),
    ]
}

fn entry(folder: &Folder, name: &str, conditions: &[&str]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|expression| json!({"expression": expression}))
        .collect();
    let kubeconfig = folder.path().join(format!("{name}.kubeconfig"));
    let mut entry = api_server::webhook(name, &kubeconfig);
    entry["webhook"]["matchConditions"] = json!(conditions);
    entry
}
