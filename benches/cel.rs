//! Expressions alone: compiling and evaluating, on JSON text read in place.
//! `cargo bench --bench cel`.
//!
//! `five policies` are typical ones: registries, privileged containers, an owner's label, limits, host namespaces.
//! Their time includes reading the text of the review.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that cannot be made ends at once"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use portcullis_cel::json::Document;
use portcullis_cel::{
    Activation, AdmissionVariables, Budget, Environment, Program, Type, Value, Version, cost,
};

const ALL: &str =
    "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])";

const REGISTRY: &str = "variables.all.all(c, c.image.startsWith('registry.example.com/') || \
    c.image.startsWith('mirror.example.com/'))";
const PRIVILEGED: &str = "variables.all.all(c, !has(c.securityContext) || \
    !has(c.securityContext.privileged) || c.securityContext.privileged == false)";
const OWNER: &str = "has(object.metadata.labels) && 'owner' in object.metadata.labels";
const LIMITS: &str = "variables.all.all(c, has(c.resources) && has(c.resources.limits) && \
    'cpu' in c.resources.limits && 'memory' in c.resources.limits)";
const HOST: &str = "(!has(object.spec.hostNetwork) || !object.spec.hostNetwork) && \
    (!has(object.spec.hostPID) || !object.spec.hostPID) && (!has(object.spec.hostIPC) || !object.spec.hostIPC)";

/// A pod with so many containers, of about 2 KB each.
fn pod(containers: usize) -> String {
    let container = |number: usize| {
        let variables: Vec<String> = (0..16)
            .map(|variable| {
                format!(r#"{{"name":"SETTING_{variable}","value":"a value of container {number}, as long as they are"}}"#)
            })
            .collect();
        format!(
            r#"{{"name":"c{number}","image":"registry.example.com/team/app-{number}:1.2.3","env":[{}],
            "ports":[{{"containerPort":8080}}],"resources":{{"limits":{{"cpu":"500m","memory":"128Mi"}}}},
            "securityContext":{{"allowPrivilegeEscalation":false,"privileged":false,"runAsNonRoot":true}}}}"#,
            variables.join(",")
        )
    };
    let containers: Vec<String> = (0..containers).map(container).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web","namespace":"team-a",
        "labels":{{"app":"web","owner":"team-a"}}}},"spec":{{"replicas":3,"containers":[{}]}}}}"#,
        containers.join(",")
    )
}

struct Bench {
    environment: Environment,
    object: usize,
    all: usize,
    all_program: Program,
}

impl Bench {
    fn new() -> Self {
        let variables = AdmissionVariables::default();
        let mut environment = Environment::admission(Version::NEWEST, variables);
        let all_program = environment.compile(ALL, &[]).unwrap();
        environment.add_lazy_variable("all", Type::list(Type::Dyn), all_program.depth());
        let slot = |name| environment.slot(name).unwrap();
        Self {
            object: slot("object"),
            all: slot("variables.all"),
            all_program,
            environment,
        }
    }

    fn compile(&self, expression: &str) -> Program {
        self.environment.compile(expression, &[Type::Bool]).unwrap()
    }

    fn activation<'a>(&'a self, document: &'a Document<'_>) -> Activation<'a> {
        let mut activation = Activation::new(&self.environment);
        activation.set(self.object, Value::json(document.root()));
        activation.set_lazy(self.all, &self.all_program);
        activation
    }
}

fn holds<'a>(program: &'a Program, activation: &mut Activation<'a>) -> bool {
    let mut budget = Budget::new(cost::PER_BINDING);
    program
        .evaluate(activation, &mut budget)
        .unwrap()
        .as_bool()
        .unwrap()
}

fn one(criterion: &mut Criterion, bench: &Bench, name: &str, expression: &str) {
    let text = pod(20);
    let document = Document::parse(text.as_str()).unwrap();
    let program = bench.compile(expression);
    let mut activation = bench.activation(&document);
    assert!(holds(&program, &mut activation), "{expression}");
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| black_box(holds(&program, &mut activation)))
    });
}

fn cel(criterion: &mut Criterion) {
    let bench = Bench::new();
    one(criterion, &bench, "field comparison", "object.spec.replicas <= 5");
    one(criterion, &bench, "all of 20 containers", REGISTRY);
    one(
        criterion,
        &bench,
        "regex",
        "object.metadata.name.matches('^[a-z0-9-]+$')",
    );

    let text = pod(5);
    let policies = [REGISTRY, PRIVILEGED, OWNER, LIMITS, HOST].map(|expression| bench.compile(expression));
    criterion.bench_function(&format!("index {} bytes", text.len()), |bencher| {
        bencher.iter(|| black_box(Document::parse(text.as_str()).unwrap()));
    });
    criterion.bench_function(&format!("five policies, {} bytes", text.len()), |bencher| {
        bencher.iter(|| {
            let document = Document::parse(text.as_str()).unwrap();
            let all = policies
                .iter()
                .all(|policy| holds(policy, &mut bench.activation(&document)));
            assert!(black_box(all));
        });
    });
    criterion.bench_function("compile", |bencher| {
        bencher.iter(|| black_box(bench.compile(PRIVILEGED)))
    });
}

criterion_group!(benches, cel);
criterion_main!(benches);
