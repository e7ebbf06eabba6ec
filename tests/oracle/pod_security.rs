//! The Pod Security Standards of `config/policies/pod-security`, and those of Kubernetes' own code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSet, AdmissionSettings, Chain, Phase, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::manifest::Manifests;
use portcullis_policy::model::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::inner::manifests;
use crate::program::{NEWEST, Oracle};
use crate::random::{Random, cases};
use crate::reviews::creation_of_pod;

/// The checks of Kubernetes, and the policies that have them.
const CHECKS: [(&str, &str); 19] = [
    ("allowPrivilegeEscalation", "restricted-privilege-escalation"),
    ("appArmorProfile", "baseline-app-armor"),
    ("capabilities_baseline", "baseline-capabilities"),
    ("capabilities_restricted", "restricted-capabilities"),
    ("hostNamespaces", "baseline-host-namespaces"),
    ("hostPathVolumes", "baseline-host-path-volumes"),
    ("hostPorts", "baseline-host-ports"),
    ("hostProbesAndHostLifecycle", "baseline-host-probes-and-lifecycle"),
    ("privileged", "baseline-privileged"),
    ("procMount", "baseline-proc-mount"),
    ("procMount_restricted", "restricted-proc-mount"),
    ("restrictedVolumes", "restricted-volumes"),
    ("runAsNonRoot", "restricted-run-as-non-root"),
    ("runAsUser", "restricted-run-as-user"),
    ("seLinuxOptions", "baseline-selinux"),
    ("seccompProfile_baseline", "baseline-seccomp"),
    ("seccompProfile_restricted", "restricted-seccomp"),
    ("sysctls", "baseline-sysctls"),
    ("windowsHostProcess", "baseline-windows-host-process"),
];

const CLUSTER: &str = "default";
const LEVELS: [&str; 2] = ["baseline", "restricted"];

#[derive(Serialize)]
struct Question {
    level: &'static str,
    pod: Value,
}

#[derive(Deserialize)]
struct Answer {
    checks: BTreeSet<String>,
    refused: BTreeSet<String>,
}

/// The shipped policies, and a namespace of each level.
fn text() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies/pod-security");
    let mut text = String::new();
    for level in LEVELS {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {level}, labels: {{pod-security.kubernetes.io/enforce: {level}}}}}\n"
        ));
        for file in std::fs::read_dir(folder.join(level)).unwrap() {
            text.push_str("---\n");
            text.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
    }
    text
}

/// The policies that refuse the pod.
fn refusals(manifests: &Manifests, set: &AdmissionSet, question: &Question) -> BTreeSet<String> {
    let review = creation_of_pod(question.level, &question.pod);
    let document = Document::parse(review.to_string()).unwrap();
    let request = AdmissionReview::decode(&document).unwrap().request;
    let access = manifests.policies.for_cluster(CLUSTER);
    let refuses = |policy: &&str| {
        let run = RunOptions {
            only: Some(policy),
            ..RunOptions::new(&**access, Time::UNIX_EPOCH)
        };
        let denial = Chain::run(Phase::Validate, set, &request, run, &mut fail_every_call).denial;
        denial.is_some_and(|denial| {
            assert_eq!(denial.reason, "Forbidden", "{policy}: {}", denial.message);
            true
        })
    };
    set.validating_policies()
        .filter(refuses)
        .map(|policy| policy.strip_prefix("pod-security-").unwrap().to_owned())
        .collect()
}

// === pods ===

/// A pod of some of the fields that the checks read, with values that they take and others.
fn pod(random: &mut Random) -> Value {
    let mut spec = json!({});
    for sort in ["containers", "initContainers", "ephemeralContainers"] {
        if sort == "containers" || random.below(3) == 0 {
            let count = 1 + random.below(2);
            spec[sort] = (0..count).map(|place| container(random, place)).collect();
        }
    }
    set_some(
        random,
        &mut spec,
        &["hostNetwork", "hostPID", "hostIPC", "hostUsers"],
        &[json!(true), json!(false)],
        8,
    );
    set_some(
        random,
        &mut spec,
        &["os"],
        &[json!({"name": "windows"}), json!({"name": "linux"})],
        6,
    );
    if random.below(3) == 0 {
        let count = random.below(3);
        spec["volumes"] = (0..count).map(|place| volume(random, place)).collect();
    }
    if random.below(3) > 0 {
        let mut context = security_context(random);
        if random.below(3) == 0 {
            let count = random.below(3);
            context["sysctls"] = (0..count)
                .map(|_| json!({"name": random.pick(&SYSCTLS), "value": "1"}))
                .collect();
        }
        spec["securityContext"] = context;
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    if random.below(6) == 0 {
        let profile = *random.pick(&[
            &"runtime/default",
            &"localhost/a",
            &"unconfined",
            &"",
            &"Unconfined",
        ]);
        let key = random.pick(&[
            "container.apparmor.security.beta.kubernetes.io/c0",
            "container.apparmor.security.beta.kubernetes.io",
            "example.com/a",
        ]);
        pod["metadata"]["annotations"] = json!({ key: profile });
    }
    pod
}

/// Some that are of a namespace, or whose names begin as theirs do; many that Kubernetes allows
/// nobody yet.
const SYSCTLS: [&str; 42] = [
    "kernel.shm_rmid_forced",
    "kernel.shmmax",
    "kernel.shmall",
    "kernel.shmmni",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.sem",
    "fs.mqueue.msg_max",
    "net.core.somaxconn",
    "net.core.rmem_max",
    "net.ipv4.icmp_echo_ignore_all",
    "net.ipv4.ip_default_ttl",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_nonlocal_bind",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_retries2",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.vs.conntrack",
    "net.ipv6.conf.all.forwarding",
];

fn container(random: &mut Random, place: usize) -> Value {
    let mut container = json!({"name": format!("c{place}"), "image": "i"});
    if random.below(4) > 0 {
        let mut context = security_context(random);
        set_some(
            random,
            &mut context,
            &["privileged", "allowPrivilegeEscalation"],
            &[json!(true), json!(false), json!(false)],
            2,
        );
        set_some(
            random,
            &mut context,
            &["procMount"],
            &["Default", "Unmasked", ""].map(|one| json!(one)),
            4,
        );
        let capabilities = [
            json!({"drop": ["ALL"]}),
            json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
            json!({"drop": ["all"]}),
            json!({"drop": ["ALL"], "add": ["CHOWN", "SYS_CHROOT"]}),
            json!({"add": ["SYS_ADMIN"]}),
            json!({}),
        ];
        set_some(random, &mut context, &["capabilities"], &capabilities, 2);
        container["securityContext"] = context;
    }
    if random.below(6) == 0 {
        let host_port = random.below(2) * 80;
        container["ports"] = json!([{"containerPort": 80, "hostPort": host_port}]);
    }
    let host = ["", "127.0.0.1", "example.com"].map(|host| json!({ "host": host }));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let handlers = ["httpGet", "tcpSocket"];
        let mut value = json!({});
        set_some(random, &mut value, &handlers, &host, 2);
        set_some(random, &mut container, &[probe], &[value], 10);
    }
    for hook in ["preStop", "postStart"] {
        let mut value = json!({});
        set_some(random, &mut value, &["httpGet", "tcpSocket"], &host, 2);
        set_some(
            random,
            &mut container,
            &["lifecycle"],
            &[json!({ hook: value })],
            12,
        );
    }
    container
}

/// What pods and containers both have.
fn security_context(random: &mut Random) -> Value {
    let mut context = json!({});
    set_some(
        random,
        &mut context,
        &["runAsNonRoot"],
        &[json!(true), json!(true), json!(false)],
        2,
    );
    set_some(random, &mut context, &["runAsUser"], &[json!(0), json!(1000)], 4);
    let profiles =
        ["RuntimeDefault", "RuntimeDefault", "Localhost", "Unconfined"].map(|kind| json!({"type": kind}));
    set_some(random, &mut context, &["seccompProfile"], &profiles, 2);
    set_some(random, &mut context, &["appArmorProfile"], &profiles, 6);
    let labels = [
        json!({"type": "container_t"}),
        json!({"type": "container_engine_t"}),
        json!({"type": "unconfined_t"}),
        json!({"type": ""}),
        json!({"user": "u"}),
        json!({"role": "r"}),
        json!({"level": "s0"}),
    ];
    set_some(random, &mut context, &["seLinuxOptions"], &labels, 5);
    let windows = [true, false].map(|is| json!({ "hostProcess": is }));
    set_some(random, &mut context, &["windowsOptions"], &windows, 10);
    context
}

fn volume(random: &mut Random, place: usize) -> Value {
    let source = random.pick(&[
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "hostPath",
        "nfs",
        "iscsi",
        "gcePersistentDisk",
        "flexVolume",
        "rbd",
    ]);
    json!({"name": format!("v{place}"), source: {}})
}

/// Sets each of `fields`, one time of `rarity`, to one of `values`.
fn set_some(random: &mut Random, object: &mut Value, fields: &[&str], values: &[Value], rarity: usize) {
    for field in fields {
        if random.below(rarity) == 0 {
            object[*field] = values[random.below(values.len())].clone();
        }
    }
}

// === tests ===

pub(crate) fn generated_pods_are_refused_by_the_controls_that_refuse_them_in_kubernetes() {
    let Some(mut oracle) = Oracle::start("pod-security") else {
        return;
    };
    let manifests = manifests(&text());
    let policies = manifests.admission(&AdmissionSettings::default());
    let set = policies.for_cluster(CLUSTER);
    let mut random = Random::of(13);
    let questions: Vec<Question> = (0..cases(3_000))
        .map(|place| Question {
            level: LEVELS[place % LEVELS.len()],
            pod: pod(&mut random),
        })
        .collect();
    let answers: Vec<Answer> = oracle.ask(&questions);
    let policy_of = BTreeMap::from(CHECKS);
    let mut tally: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (question, answer) in questions.iter().zip(&answers) {
        for check in &answer.checks {
            let policy = policy_of.get(check.as_str());
            let policy = policy.unwrap_or_else(|| panic!("no policy here is Kubernetes' check {check}"));
            tally.entry(policy).or_default()[usize::from(answer.refused.contains(check))] += 1;
        }
        let expected: BTreeSet<String> = answer
            .refused
            .iter()
            .map(|check| policy_of[check.as_str()].to_owned())
            .collect();
        assert_eq!(
            refusals(&manifests, set, question),
            expected,
            "{}: {}",
            question.level,
            question.pod
        );
    }
    assert_eq!(tally.len(), CHECKS.len());
    let few = tally.iter().filter(|(_, of)| of.iter().any(|count| *count < 10));
    assert_eq!(few.count(), 0, "too few pods are taken or refused: {tally:?}");
}

pub(crate) fn every_control_says_of_which_version_it_is() {
    let text = text();
    let label = format!("labels: {{app.kubernetes.io/version: \"{NEWEST}\"}}");
    assert_eq!(text.matches(&label).count(), CHECKS.len());
    assert_eq!(
        text.matches("kind: ValidatingAdmissionPolicy\n").count(),
        CHECKS.len()
    );
}
