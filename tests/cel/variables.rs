//! The variables of expressions in tests, as the program that answers for
//! Kubernetes has them too (`tests/oracle/cel.go`).

use std::path::Path;
use std::sync::Arc;

use portcullis_cel::json::Document;
use portcullis_cel::{
    AccessCheckAttributes, AccessCheckDecision, Activation, AdmissionVariables, AuthorizeAccess, Entries,
    Environment, Key, Text, Type, Value, Version,
};

/// Allows `get`, and errs for `fail`.
struct Host;

impl AuthorizeAccess for Host {
    fn authorize(&self, question: AccessCheckAttributes, _: &dyn Fn() -> bool) -> Arc<AccessCheckDecision> {
        let AccessCheckAttributes {
            verb,
            path,
            group,
            resource,
            subresource,
            namespace,
            name,
            service_account,
            ..
        } = question;
        let user = service_account.map_or("user".into(), |(namespace, name)| {
            format!("system:serviceaccount:{namespace}:{name}")
        });
        let path = path.as_deref().unwrap_or_default();
        Arc::new(AccessCheckDecision {
            allowed: verb == "get",
            reason: format!("{user} {verb} {path} {group}/{resource}/{subresource} {namespace}/{name}  "),
            error: (verb == "fail").then(|| "boom".into()),
        })
    }
}

/// What expressions may name in this version.
pub(crate) fn environment_of(version: Version) -> Environment {
    let variables = AdmissionVariables {
        params: true,
        authorizer: true,
    };
    Environment::admission(version, variables)
        .variable("i", Type::Int)
        .variable("u", Type::Uint)
        .variable("d", Type::Double)
        .variable("s", Type::String)
        .variable("t", Type::Bool)
        .variable("li", Type::list(Type::Int))
        .variable("ls", Type::list(Type::String))
        .variable("msi", Type::map(Type::String, Type::Int))
}

/// The text of `variables.json`: the variables whose type is not known.
pub(crate) fn untyped() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel/variables.json");
    std::fs::read_to_string(file).unwrap()
}

/// The values: those of [`untyped`], read to `variables`, and of the typed ones.
pub(crate) fn activation<'a>(environment: &Environment, variables: &'a Document<'_>) -> Activation<'a> {
    let mut activation = Activation::new(environment);
    let mut set = |name: &str, value| activation.set(environment.slot(name).unwrap(), value);
    for (name, value) in variables.root().entries() {
        set(&name, Value::json(value));
    }
    let deployment = AccessCheckAttributes {
        group: "apps".into(),
        resource: "deployments".into(),
        namespace: "default".into(),
        name: "web".into(),
        ..AccessCheckAttributes::default()
    };
    let numbers =
        [("x", 1), ("y", 2)].map(|(key, value)| (Key::String(Text::Borrowed(key)), Value::Int(value)));
    set("authorizer", Value::authorizer(&Host));
    set(
        "authorizer.requestResource",
        Value::resource_check(&Host, deployment),
    );
    set("i", Value::Int(5));
    set("u", Value::Uint(7));
    set("d", Value::Double(2.5));
    set("s", Value::str("hello"));
    set("t", Value::Bool(true));
    set("li", Value::list([3, 1, 2].map(Value::Int).to_vec()));
    set("ls", Value::list(["b", "a", "c"].map(Value::str).to_vec()));
    set("msi", Value::map(numbers.into_iter().collect::<Entries<'_>>()));
    activation
}
