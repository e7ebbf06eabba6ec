//! Random `ApplyConfiguration` expressions: what they write is merged by the
//! schema of each kind, and some of it refused.

use super::policies::{PROBE, fill};
use crate::differential::random::Random;
use serde_json::{Value, json};

/// Of an object of any kind.
const METADATA: &[&str] = &[
    "Object{}",
    "Object{metadata: Object.metadata{annotations: {'new': object.metadata.name}}}",
    "Object{metadata: Object.metadata{labels: {'color': variables.color}}}",
    "Object{metadata: Object.metadata{annotations: {'color': '{C}', 'count': string({N})}}}",
    "Object{metadata: Object.metadata{annotations: object.metadata.annotations}}",
    "Object{metadata: Object.metadata{finalizers: ['example.com/{C}', 'example.com/red']}}",
    "Object{metadata: Object.metadata{annotation: {'a': 'b'}}}",
    "Object{metadata: Object.meta{annotations: {'a': '{C}'}}}",
    "Object{spec: Object.spec{unknown: {N}}}",
    "Object{kind: 'Other', apiVersion: 'v{N}'}",
];

/// Of the spec of a pod, whose type is `{O}`.
const POD: &[&str] = &[
    "{containers: [{O}.containers{name: 'a', env: [{O}.containers.env{name: 'E{N}', value: '{C}'}]}]}",
    "{containers: [{O}.containers{name: 'new', image: 'new:{N}'}, {O}.containers{name: 'a'}]}",
    "{containers: [{O}.containers{name: 'bc', image: 'a:{N}'}, {O}.containers{name: 'a', image: 'b:{N}'}]}",
    "{containers: [{O}.containers{name: 'a', ports: [\
      {O}.containers.ports{containerPort: 80, name: '{C}'}, \
      {O}.containers.ports{containerPort: 8{N}, protocol: 'UDP'}]}]}",
    "{containers: [{O}.containers{name: 'a', ports: [\
      {O}.containers.ports{containerPort: 80}, \
      {O}.containers.ports{containerPort: 80, protocol: 'TCP'}]}]}",
    "{containers: [{O}.containers{name: 'a', args: ['{C}']}]}",
    "{containers: [{O}.containers{name: 'a', image: 'a:1'}, {O}.containers{name: 'a', image: 'a:2'}]}",
    "{containers: [{O}.containers{name: 'a', resources: {O}.containers.resources{\
      limits: {'cpu': '1{N}0m'}, requests: {'memory': '{N}Mi'}}}]}",
    "{containers: object{P}.spec.containers.map(c, {O}.containers{name: c.name, imagePullPolicy: 'Never'})}",
    "{nodeSelector: {'color': '{C}'}}",
    "{volumes: [{O}.volumes{name: 'v{N}', emptyDir: {O}.volumes.emptyDir{}}]}",
    "{securityContext: {O}.securityContext{runAsNonRoot: true, runAsUser: 100{N}}}",
    "{terminationGracePeriodSeconds: '{N}'}",
    "{terminationGracePeriodSeconds: {N}}",
    "{tolerations: []}",
    "{hostAliases: [{O}.hostAliases{ip: '10.0.0.{N}', hostnames: ['{C}']}]}",
];

/// Of the spec of a service.
const SERVICE: &[&str] = &[
    "{ports: [Object.spec.ports{port: 80, name: 'p{N}'}]}",
    "{ports: [Object.spec.ports{port: 8{N}, protocol: 'UDP', name: 'u'}, \
      Object.spec.ports{port: 81, name: 'q', targetPort: '{C}'}]}",
    "{ports: [Object.spec.ports{port: 81, targetPort: 1{N}}, Object.spec.ports{port: 80}]}",
    "{selector: {'app': '{C}'}}",
    "{sessionAffinity: 'ClientIP', sessionAffinityConfig: Object.spec.sessionAffinityConfig{\
      clientIP: Object.spec.sessionAffinityConfig.clientIP{timeoutSeconds: 1{N}}}}",
    "{publishNotReadyAddresses: true, port: {N}}",
];

/// What a policy applies to: kinds that are built in.
pub(super) fn rules() -> Value {
    json!([{
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": ["", "apps"],
        "apiVersions": ["v1"],
        "resources": ["configmaps", "pods", "deployments", "services"],
    }])
}

/// A mutation that merges what its expression writes.
pub(super) fn mutation(random: &mut Random) -> Value {
    let probing = "Object{metadata: Object.metadata{annotations: {'probed': 'yes'}}}";
    let metadata = fill(random, METADATA);
    let pod = pod(random, "Object.spec", "");
    let template = pod_of_deployment(random);
    let service = fill(random, SERVICE);
    let expression = format!(
        "request.name == '{PROBE}' ? {probing} : \
         {} ? {metadata} : \
         object.kind == 'Pod' ? Object{{spec: {pod}}} : \
         object.kind == 'Deployment' ? {template} : \
         object.kind == 'Service' ? Object{{spec: Object.spec{service}}} : {metadata}",
        random.one_in(3),
    );
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn pod(random: &mut Random, of: &str, path: &str) -> String {
    format!("{{O}}{}", fill(random, POD))
        .replace("{O}", of)
        .replace("{P}", path)
}

fn pod_of_deployment(random: &mut Random) -> String {
    let spec = pod(random, "Object.spec.template.spec", ".spec.template");
    let replicas = random.below(9);
    format!(
        "Object{{spec: Object.spec{{replicas: {replicas}, template: Object.spec.template{{spec: {spec}}}}}}}"
    )
}
