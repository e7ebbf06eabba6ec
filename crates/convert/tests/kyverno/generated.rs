//! Generated rules, and requests about objects that they may be about.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// A policy of one rule, and requests.
pub(crate) struct Case {
    pub(crate) policy: Value,
    pub(crate) requests: Vec<Value>,
}

/// Generates a case with so many requests.
pub(crate) type Construct = fn(&mut Random, usize) -> Case;

/// Whether something happens that does so in `percent` of 100 cases.
pub(crate) fn chance(random: &mut Random, percent: usize) -> bool {
    random.below(100) < percent
}

pub(crate) fn one_of(random: &mut Random, values: &Value) -> Value {
    let values = values.as_array().unwrap();
    values[random.below(values.len())].clone()
}

/// One to `most` of the values.
fn some_of(random: &mut Random, values: &Value, most: usize) -> Value {
    let count = 1 + random.below(most);
    (0..count).map(|_| one_of(random, values)).collect()
}

pub(crate) fn case(
    random: &mut Random,
    count: usize,
    kinds: &Value,
    mut rule: Value,
    object: fn(&mut Random) -> Value,
) -> Case {
    rule["name"] = "r".into();
    rule["match"] = json!({"any": [{"resources": {"kinds": kinds}}]});
    let requests = (0..count).map(|_| request(random, object)).collect();
    let policy = json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [rule]}});
    Case { policy, requests }
}

fn request(random: &mut Random, object: fn(&mut Random) -> Value) -> Value {
    let operation = one_of(random, &json!(["CREATE", "CREATE", "UPDATE", "DELETE"]));
    let (new, old) = (object(random), object(random));
    let api_version = new["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = json!({"group": group, "version": version, "kind": new["kind"]});
    let resource = format!("{}s", new["kind"].as_str().unwrap().to_lowercase());
    let resource = json!({"group": group, "version": version, "resource": resource});
    json!({
        "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "operation": operation, "name": "n", "namespace": "web",
        "userInfo": {"username": "jane", "groups": ["dev"]},
        "object": if operation == "DELETE" { Value::Null } else { new },
        "oldObject": if operation == "CREATE" { Value::Null } else { old },
    })
}

fn action(random: &mut Random, mut validate: Value) -> Value {
    validate["failureAction"] = one_of(random, &json!(["Enforce", "Audit"]));
    if chance(random, 70) {
        validate["allowExistingViolations"] = false.into();
    }
    json!({"validate": validate})
}

// Objects of a custom resource.

const KEYS: [&str; 3] = ["a", "b", "c-d"];

fn scalars() -> Value {
    json!([
        null, true, false, 0, 1, 5, -3, 1.5, "", "a", "ab", "abc", "true", "0", "5", "1.5", "10s", "1h",
        "60m", "5m", "100m", "1Gi", "1024Mi", "512Mi", "*", "a*", "x:latest", "1.2.3", "ALL", "a-b", "1-10"
    ])
}

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(10) {
        _ if depth == 0 => one_of(random, &scalars()),
        0..=3 => one_of(random, &scalars()),
        4 | 5 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect(),
        _ => map(random, depth - 1),
    }
}

fn map(random: &mut Random, depth: usize) -> Value {
    let mut entries = Map::new();
    for key in KEYS {
        if chance(random, 60) {
            entries.insert(key.to_owned(), value(random, depth));
        }
    }
    Value::Object(entries)
}

fn thing(random: &mut Random) -> Value {
    let mut thing = map(random, 3);
    thing["apiVersion"] = "example.com/v1".into();
    thing["kind"] = "Thing".into();
    thing["metadata"] = json!({"name": "n", "namespace": "web"});
    if chance(random, 50) {
        thing["metadata"]["labels"] =
            json!({"a": one_of(random, &json!(["a", "*", "", "b", "5", "it's", "a\\b"]))});
    }
    thing
}

// Conditions over queries.

fn key(random: &mut Random) -> &'static str {
    ["a", "b", "\"c-d\""][random.below(3)]
}

fn path(random: &mut Random) -> String {
    let steps = 1 + random.below(3);
    (0..steps).fold("request.object".to_owned(), |path, _| {
        format!("{path}.{}", key(random))
    })
}

fn query(random: &mut Random, depth: usize) -> String {
    let literals = [
        "''",
        "'a'",
        "'5'",
        "`[]`",
        "`{}`",
        "`5`",
        "`true`",
        "`null`",
        "`[\"a\"]`",
        "'*'",
    ];
    let path = path(random);
    let literal = literals[random.below(literals.len())];
    let key = key(random);
    match random.below(27) {
        0..=5 => path,
        6..=8 => format!("{path} || {literal}"),
        9 => format!("{path}[].{key}"),
        10 => format!("{path}[]"),
        11 => format!("{path}[?@ == {literal}].{key}"),
        12 => format!("{path}[?{key} != {literal}]"),
        13 if depth > 0 => format!("length({})", query(random, depth - 1)),
        14 => format!("{path}[] || `[]` | length(@)"),
        15 => format!("contains({path}, {literal})"),
        16 => format!("to_upper({path})"),
        17 => format!("{path}.keys(@)"),
        18 => format!("{path}[0]"),
        19 => format!("{path}[-1].{key}"),
        20 => format!("to_number({path})"),
        21 => format!("{path}.split(@, ':')[0]"),
        22 => format!("{path}.{{x: {key}}}.x"),
        // A variable in the quotes of a query.
        23 if depth == 2 => format!("regex_match('^[a-z0-9]+$', '{{{{ {} }}}}')", text(random)),
        24 if depth == 2 => format!("{path}[?@ == '{{{{ {} }}}}'] || `[]` | length(@)", text(random)),
        25 if depth == 2 => format!(
            "'{{{{ {} }}}}-{{{{ {} }}}}' || {path}",
            text(random),
            text(random)
        ),
        _ => format!("join('-', {path}[])"),
    }
}

/// A query whose value is a text, if it has one.
fn text(random: &mut Random) -> String {
    let path = path(random);
    match random.below(5) {
        0 => "request.object.metadata.labels.a".to_owned(),
        1 => "request.object.metadata.labels.a || 'a'".to_owned(),
        2 => format!("to_upper({path})"),
        3 => format!("join('-', {path}[])"),
        _ => "request.operation".to_owned(),
    }
}

fn condition(random: &mut Random) -> Value {
    let operators = json!([
        "Equals",
        "NotEquals",
        "AnyIn",
        "AllIn",
        "AnyNotIn",
        "AllNotIn",
        "In",
        "NotIn",
        "GreaterThan",
        "GreaterThanOrEquals",
        "LessThan",
        "LessThanOrEquals",
        "DurationGreaterThan",
        "DurationLessThanOrEquals"
    ]);
    let values = json!([
        "a",
        "ab",
        "a*",
        "*",
        "?",
        "5",
        "1.5",
        "10s",
        "1h",
        "5m",
        "100m",
        "1Gi",
        "512Mi",
        "true",
        "",
        "ALL",
        "0",
        "x:*",
        "1.2.3",
        5,
        1,
        0,
        1.5,
        true,
        false,
        ["a", "b"],
        ["a*", "b"],
        [5, "a"],
        ["*"],
        [],
        "[\"a\"]",
        "a-b",
        3600,
        ["a", 1.5]
    ]);
    let mut key = Value::from(format!("{{{{ {} }}}}", query(random, 2)));
    let mut value = one_of(random, &values);
    if chance(random, 15) {
        value = format!("{{{{ {} }}}}", query(random, 1)).into();
    }
    if chance(random, 10) {
        key = one_of(
            random,
            &json!([
                "{{ request.operation }}",
                "{{ request.userInfo.groups }}",
                "{{ request.object.metadata.labels.a || '' }}",
                "{{ request.oldObject.a || '' }}"
            ]),
        );
        value = one_of(
            random,
            &json!(["CREATE", ["CREATE", "UPDATE"], "dev", "a", "*", ""]),
        );
    }
    json!({"key": key, "operator": one_of(random, &operators), "value": value})
}

fn condition_lists(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"any": [condition(random)], "all": [condition(random)]}),
        1 => json!({"any": [condition(random), condition(random)]}),
        2 => json!({"all": [condition(random), condition(random)]}),
        _ => json!({"all": [condition(random)]}),
    }
}

pub(crate) fn conditions(random: &mut Random, count: usize) -> Case {
    let conditions = condition_lists(random);
    let mut rule = action(random, json!({"deny": {"conditions": conditions}}));
    if chance(random, 30) {
        rule["preconditions"] = condition_lists(random);
    }
    case(random, count, &json!(["example.com/v1/Thing"]), rule, thing)
}

// Patterns.

fn pattern(random: &mut Random, depth: usize) -> Value {
    let texts = json!([
        "a",
        "a*",
        "*b",
        "a?c",
        "?*",
        "*",
        ">5",
        ">= 5",
        "<5",
        "<=5",
        "!5",
        "!a",
        "!*:latest",
        "<=1Gi",
        ">512Mi",
        "!1Gi",
        "10s",
        ">10s",
        "a | b*",
        ">1 & <10",
        "true",
        "0",
        "1-10",
        "1!-10",
        null,
        5,
        0,
        true,
        false
    ]);
    if depth == 0 || chance(random, 30) {
        return one_of(random, &texts);
    }
    if chance(random, 20) {
        return json!([pattern_map(random, depth - 1)]);
    }
    pattern_map(random, depth - 1)
}

fn pattern_map(random: &mut Random, depth: usize) -> Value {
    let mut entries = Map::new();
    for key in KEYS {
        if !chance(random, 45) {
            continue;
        }
        let (written, pattern) = match random.below(10) {
            0 => (format!("({key})"), pattern(random, depth)),
            1 => (format!("=({key})"), pattern(random, depth)),
            2 => (format!("X({key})"), "null".into()),
            3 => (
                format!("^({key})"),
                json!([pattern_map(random, depth.saturating_sub(1))]),
            ),
            4 => (format!("<({key})"), pattern(random, 0)),
            _ => (key.to_owned(), pattern(random, depth)),
        };
        entries.insert(written, pattern);
    }
    Value::Object(entries)
}

pub(crate) fn patterns(random: &mut Random, count: usize) -> Case {
    let validate = match chance(random, 80) {
        true => json!({"pattern": pattern_map(random, 2)}),
        false => json!({"anyPattern": [pattern_map(random, 2), pattern_map(random, 1)]}),
    };
    let rule = action(random, validate);
    case(random, count, &json!(["example.com/v1/Thing"]), rule, thing)
}

// Pods.

const PROFILES: [&str; 3] = ["RuntimeDefault", "Localhost", "Unconfined"];

fn security_context(random: &mut Random, of_container: bool) -> Value {
    let mut context = json!({});
    let fields = [
        ("runAsNonRoot", 55, json!([true, true, true, false])),
        ("runAsUser", 20, json!([0, 1000])),
        (
            "seccompProfile",
            60,
            PROFILES.iter().map(|profile| json!({"type": profile})).collect(),
        ),
        (
            "appArmorProfile",
            10,
            PROFILES.iter().map(|profile| json!({"type": profile})).collect(),
        ),
        (
            "seLinuxOptions",
            10,
            json!([{"type": "container_t"}, {"type": "spc_t"}, {"user": "me"}, {"role": "r"}]),
        ),
        (
            "windowsOptions",
            5,
            json!([{"hostProcess": true}, {"hostProcess": false}]),
        ),
    ];
    let of_containers = [
        ("allowPrivilegeEscalation", 80, json!([false, false, false, true])),
        (
            "capabilities",
            85,
            json!([{"drop": ["ALL"]}, {"drop": ["ALL", "KILL"], "add": ["NET_BIND_SERVICE"]},
            {"drop": ["KILL"]}, {"drop": ["ALL"], "add": ["SYS_TIME", "CHOWN"]}, {"add": ["NET_ADMIN"]}]),
        ),
        ("privileged", 8, json!([true, false])),
        ("procMount", 8, json!(["Default", "Unmasked"])),
    ];
    let of_pods = [(
        "sysctls",
        12,
        json!([[{"name": "kernel.msgmax", "value": "1"}],
        [{"name": "net.ipv4.tcp_rmem", "value": "1"}, {"name": "net.x", "value": "1"}]]),
    )];
    let more = if of_container {
        &of_containers[..]
    } else {
        &of_pods[..]
    };
    for (field, percent, values) in fields.iter().chain(more) {
        if chance(random, *percent) {
            context[*field] = one_of(random, values);
        }
    }
    context
}

fn container(random: &mut Random, name: &str) -> Value {
    let images = json!(["nginx:1", "redis:7", "ghcr.io/a/b", "busybox"]);
    let mut container = json!({"name": name, "image": one_of(random, &images)});
    if chance(random, 85) {
        container["securityContext"] = security_context(random, true);
    }
    if chance(random, 20) {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 80}, {"containerPort": 82, "hostPort": 443}]);
        // Kyverno leaves out ports that stand there twice, wherever it patches.
        let from = usize::from(chance(random, 50));
        container["ports"] = json!([ports[from], ports[from + 1]]);
    }
    if chance(random, 6) {
        container["livenessProbe"] =
            json!({"httpGet": {"port": 80, "host": one_of(random, &json!(["", "h"]))}});
    }
    container
}

pub(crate) fn pod(random: &mut Random) -> Value {
    let mut spec = json!({"containers": [container(random, "c0")]});
    if chance(random, 40) {
        let another = container(random, "c1");
        spec["containers"].as_array_mut().unwrap().push(another);
    }
    for (field, percent) in [("initContainers", 30), ("ephemeralContainers", 10)] {
        if chance(random, percent) {
            spec[field] = json!([container(random, field)]);
        }
    }
    if chance(random, 60) {
        spec["securityContext"] = security_context(random, false);
    }
    let fields = [
        ("hostNetwork", 6, json!([true, false])),
        ("hostPID", 6, json!([true, false])),
        ("os", 6, json!([{"name": "windows"}, {"name": "linux"}])),
        ("hostUsers", 10, json!([true, false])),
        ("dnsPolicy", 40, json!(["Default", "ClusterFirst"])),
        (
            "volumes",
            25,
            json!([[{"name": "v", "hostPath": {"path": "/etc/x"}}],
            [{"name": "v", "emptyDir": {}}, {"name": "w", "nfs": {"server": "a", "path": "/"}}],
            [{"name": "v", "hostPath": {"path": "/var"}}, {"name": "w", "hostPath": {"path": "/etc"}}]]),
        ),
    ];
    for (field, percent, values) in fields {
        if chance(random, percent) {
            spec[field] = one_of(random, &values);
        }
    }
    let mut metadata = json!({"name": "n", "namespace": "web"});
    if chance(random, 30) {
        metadata["annotations"] = json!({"container.apparmor.security.beta.kubernetes.io/c0":
            one_of(random, &json!(["runtime/default", "unconfined", "", "localhost/x"]))});
    }
    if chance(random, 50) {
        metadata["labels"] = json!({"a": one_of(random, &json!(["a", "b"]))});
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// Each control, whether it is excluded for images (1), Pods (2) or both (3), and one of its fields.
const CONTROLS: [(&str, usize, &str); 15] = [
    ("Capabilities", 1, "securityContext.capabilities.add"),
    ("Privileged Containers", 1, "securityContext.privileged"),
    ("Host Ports", 1, "ports[*].hostPort"),
    ("/proc Mount Type", 1, "securityContext.procMount"),
    (
        "Privilege Escalation",
        1,
        "securityContext.allowPrivilegeEscalation",
    ),
    ("Host Namespaces", 2, "hostNetwork"),
    ("HostPath Volumes", 2, "volumes[*].hostPath"),
    ("Sysctls", 2, "securityContext.sysctls[*].name"),
    ("Volume Types", 2, "volumes[*].nfs"),
    ("Seccomp", 3, "securityContext.seccompProfile.type"),
    ("HostProcess", 3, "securityContext.windowsOptions.hostProcess"),
    ("SELinux", 3, "securityContext.seLinuxOptions.type"),
    ("AppArmor", 3, "securityContext.appArmorProfile.type"),
    ("Running as Non-root", 3, "securityContext.runAsNonRoot"),
    ("Running as Non-root user", 3, "securityContext.runAsUser"),
];

fn exclusion(random: &mut Random) -> Value {
    let (control, of, field) = CONTROLS[random.below(CONTROLS.len())];
    let mut exclusion = json!({"controlName": control});
    let has_images = of == 1 || of == 3 && chance(random, 60);
    if has_images {
        exclusion["images"] = some_of(
            random,
            &json!(["*", "nginx*", "redis:7", "ghcr.io/*", "busybox"]),
            2,
        );
    }
    if chance(random, 45) {
        let lists = json!([
            "containers[*].",
            "containers[*].",
            "initContainers[*].",
            "ephemeralContainers[*]."
        ]);
        let list = one_of(random, &lists);
        let list = if has_images { list.as_str().unwrap() } else { "" };
        exclusion["restrictedField"] = format!("spec.{list}{field}").into();
        exclusion["values"] = some_of(
            random,
            &json!([
                "*",
                "true",
                "false",
                "0",
                "Unconfined",
                "SYS_*",
                "NET_ADMIN",
                "80",
                "4*",
                "Unmasked",
                "spc_t",
                "kernel.*",
                "/etc*",
                "nil"
            ]),
            3,
        );
    }
    exclusion
}

pub(crate) fn pod_security(random: &mut Random, count: usize) -> Case {
    let level = one_of(random, &json!(["restricted", "baseline"]));
    let mut exclude: Vec<Value> = (0..random.below(5)).map(|_| exclusion(random)).collect();
    for control in [
        "Capabilities",
        "Privilege Escalation",
        "Seccomp",
        "Running as Non-root",
    ] {
        if chance(random, 40) {
            exclude.push(json!({"controlName": control, "images": ["*"]}));
        }
    }
    let checks = json!({"level": level, "version": "latest", "exclude": exclude});
    let rule = action(random, json!({"podSecurity": checks}));
    case(random, count, &json!(["Pod"]), rule, pod)
}
