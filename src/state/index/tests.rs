//! What is indexed after changes is what is indexed from nothing.

use std::path::Path;

use openssl::sha::sha256;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::state::watched::WatchedPart;
use portcullis_cel::{Version, json};
use portcullis_policy::admission::matching::CustomResource;
use portcullis_policy::admission::{ParamKind, UnknownObjects};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::document;
use portcullis_policy::manifest::{Source, SourceObjects};
use portcullis_policy::model::{Attributes, ResourceAttributes, Target, Time, User};

const CLUSTERS: [&str; 3] = ["east", "north", "west"];

const DEFINITION: &str = r#"{"spec": {"group": "example.com", "scope": "Cluster",
    "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1"}]}}"#;

/// Objects of every sort, some in two versions.
const OBJECTS: [&str; 15] = [
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view}, \
     rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view}, \
     rules: [{apiGroups: [''], resources: [pods], verbs: [delete]}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: one, namespace: team}, \
     roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, \
     subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: one, namespace: team}, \
     roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, \
     subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: two}, \
     roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, \
     subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: joe}]}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: p}, spec: {effect: Deny, \
     subjects: [{kind: User, name: 'j*'}], resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods], \
     namespaceSelector: {matchLabels: {tier: prod}}}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: p}, spec: {effect: Allow, \
     subjects: [{kind: User, name: 'j*'}], resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: q}, spec: {effect: Deny, \
     subjects: [{kind: Group, name: devs}], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], \
     namespaces: [other]}]}}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: prod}}}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: test}}}",
    "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: v}, spec: \
     {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{apiGroups: [apps], \
     apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}, validations: [{expression: 'true'}]}}",
    "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: v}, \
     spec: {policyName: v, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}}",
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: team}, data: {most: '3'}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {name: x}, spec: {policies: [v], \
     reason: because, notAfter: '2027-01-01T00:00:00Z', match: {namespaceSelector: {matchLabels: {tier: test}}, \
     resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}}}",
    "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: w}, \
     webhooks: [{name: w.example.com, admissionReviewVersions: [v1], sideEffects: None, \
     clientConfig: {url: 'https://example.com/w'}, rules: [{apiGroups: [''], apiVersions: [v1], \
     operations: [CREATE], resources: [pods]}]}]}",
];

/// What becomes of a cluster, or of the files.
#[derive(Debug, Clone)]
enum Step {
    /// The file for every cluster, or for one, has these objects.
    File(Option<usize>, Vec<usize>),
    /// The cluster of this number is watched, and has these objects; whether every ConfigMap is
    /// known, and a resource without namespace.
    Watched(usize, Vec<usize>, bool, bool),
    /// It is watched no more.
    Gone(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let objects = || vec(0..OBJECTS.len(), 0..5);
    prop_oneof![
        1 => (prop::option::of(0..CLUSTERS.len()), objects()).prop_map(|(cluster, objects)| Step::File(cluster, objects)),
        4 => (0..CLUSTERS.len(), objects(), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(cluster, objects, complete, scoped)| Step::Watched(cluster, objects, complete, scoped)),
        1 => (0..CLUSTERS.len()).prop_map(Step::Gone),
    ]
}

/// What the files say, and what is watched.
#[derive(Default)]
struct IndexWorld {
    files: BTreeMap<Option<usize>, Vec<usize>>,
    sources: BTreeMap<Option<usize>, Arc<SourceObjects>>,
    watched: BTreeMap<usize, Arc<WatchedObjects>>,
    objects: HashMap<(usize, usize), Arc<ValidatedObject>>,
}

impl IndexWorld {
    fn take(&mut self, step: &Step) {
        match step {
            Step::File(cluster, objects) => {
                let text: String = of_one_name(objects)
                    .into_iter()
                    .map(|object| format!("---\n{}\n", OBJECTS[object]))
                    .collect();
                let source = Source {
                    file: format!("{cluster:?}.yaml"),
                    text,
                    cluster: cluster.map(|cluster| CLUSTERS[cluster].to_owned()),
                };
                let earlier = self.sources.get(cluster);
                let read = SourceObjects::read(&source, Version::NEWEST, earlier.map(|earlier| &**earlier));
                self.sources.insert(*cluster, Arc::new(read));
                self.files.insert(*cluster, objects.clone());
            }
            Step::Watched(cluster, objects, complete, scoped) => {
                let watched = self.watched(*cluster, &of_one_name(objects), *complete, *scoped);
                self.watched.insert(*cluster, Arc::new(watched));
            }
            Step::Gone(cluster) => {
                self.watched.remove(cluster);
            }
        }
    }

    fn watched(&mut self, cluster: usize, objects: &[usize], complete: bool, scoped: bool) -> WatchedObjects {
        let digest = sha256(format!("{objects:?} {complete} {scoped}").as_bytes());
        let objects = objects
            .iter()
            .map(|object| self.object(cluster, *object))
            .collect();
        let config_maps = ParamKind {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        };
        let mut cluster_scoped = ClusterScoped::default();
        let mut custom_resources = CustomResources::default();
        if scoped {
            cluster_scoped.add("example.com", "widgets");
            let definition = json::Document::parse(DEFINITION).unwrap();
            let resource = CustomResource::of(definition.root()).unwrap();
            custom_resources = std::iter::once(Arc::new(resource)).collect();
        }
        WatchedObjects {
            registrations: None,
            token_keys: None,
            cluster: CLUSTERS[cluster].to_owned(),
            parts: vec![Arc::new(WatchedPart {
                objects,
                digest,
                ..WatchedPart::default()
            })],
            unknown: UnknownObjects {
                unknown_of_known_kinds: complete
                    .then(|| (config_maps, BTreeSet::new()))
                    .into_iter()
                    .collect(),
                ..UnknownObjects::default()
            },
            cluster_scoped,
            custom_resources,
            digest,
            unsynced: None,
        }
    }

    /// The very one as long as it says the same.
    fn object(&mut self, cluster: usize, object: usize) -> Arc<ValidatedObject> {
        let read = || {
            let document = document::parse(None, OBJECTS[object]).unwrap().remove(0);
            let read = ValidatedObject::read(document, CLUSTERS[cluster].into(), Version::NEWEST);
            Arc::new(read.unwrap_or_else(|faults| panic!("{faults}")))
        };
        Arc::clone(self.objects.entry((cluster, object)).or_insert_with(read))
    }

    fn own(&self, options: &manifest::Options) -> Option<ObjectSet> {
        let sources = self.sources.values().cloned().collect();
        ObjectSet::new(sources, options, None).0
    }

    /// The same, without what is said of other clusters and watched in them.
    fn of_one_cluster(&self, cluster: usize) -> Self {
        let sources = self.sources.iter();
        let watched = self.watched.get(&cluster);
        Self {
            sources: sources
                .filter(|(of, _)| of.is_none_or(|of| of == cluster))
                .map(|(of, source)| (*of, Arc::clone(source)))
                .collect(),
            watched: watched
                .map(|watched| (cluster, Arc::clone(watched)))
                .into_iter()
                .collect(),
            ..Self::default()
        }
    }
}

/// The first of those that are versions of one object.
fn of_one_name(objects: &[usize]) -> Vec<usize> {
    let first = |object: &usize| match object {
        1 => 0,
        3 => 2,
        6 => 5,
        9 => 8,
        object => *object,
    };
    let mut seen = BTreeSet::new();
    objects
        .iter()
        .copied()
        .filter(|object| seen.insert(first(object)))
        .collect()
}

fn configuration() -> Config {
    let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
        server: {address: '127.0.0.1:0', tls: {certificate: a, privateKey: b}}\n";
    let (config, faults) = crate::config::parse(Path::new("portcullis.yaml"), text, Path::new("/"));
    config.unwrap_or_else(|| panic!("{faults}"))
}

/// Every cluster may be watched.
fn test_options(config: &Config) -> manifest::Options {
    manifest::Options {
        watched: CLUSTERS.into_iter().map(str::to_owned).collect(),
        ..options(config, None)
    }
}

fn told(indexed: &SnapshotIndex) -> Vec<String> {
    let mut told = Vec::new();
    for cluster in CLUSTERS.into_iter().chain(["other"]) {
        told.extend(told_for(indexed, cluster));
    }
    told.extend(asked(indexed));
    told
}

/// The webhooks, in their order.
fn asked(indexed: &SnapshotIndex) -> Vec<String> {
    let webhooks = indexed.index_inputs.webhooks();
    webhooks.map(|registered| registered.webhook.id()).collect()
}

#[test]
fn webhooks_of_files_come_first_and_then_mutating_ones_by_name() {
    let configuration = |kind: &str, name: &str| {
        format!(
            "---\n{{apiVersion: admissionregistration.k8s.io/v1, kind: {kind}WebhookConfiguration, metadata: {{name: \
             {name}}}, webhooks: [{{name: w.example.com, admissionReviewVersions: [v1], sideEffects: None, \
             clientConfig: {{url: 'https://example.com/w'}}}}]}}\n"
        )
    };
    let file = Source {
        file: "east.yaml".to_owned(),
        text: configuration("Validating", "z"),
        cluster: Some("east".to_owned()),
    };
    let config = self::configuration();
    let own = ObjectSet::new(
        vec![Arc::new(SourceObjects::read(&file, Version::NEWEST, None))],
        &test_options(&config),
        None,
    );
    let watched = [("Validating", "a"), ("Mutating", "c"), ("Mutating", "b")];
    let watched = watched.map(|(kind, name)| {
        let document = document::parse(None, &configuration(kind, name))
            .unwrap()
            .remove(0);
        Arc::new(ValidatedObject::read(document, "east".into(), Version::NEWEST).unwrap())
    });
    let mut world = IndexWorld::default().watched(0, &[], true, false);
    let digest = world.digest;
    world.parts = vec![Arc::new(WatchedPart {
        objects: watched.into(),
        digest,
        ..WatchedPart::default()
    })];
    let indexed = SnapshotIndex::new(&config, &own.0.unwrap(), vec![Arc::new(world)], None, None);
    assert_eq!(
        asked(&indexed),
        [
            "z/w.example.com",
            "b/w.example.com",
            "c/w.example.com",
            "a/w.example.com"
        ]
    );
}

/// What decides requests from a cluster.
fn told_for(indexed: &SnapshotIndex, cluster: &str) -> Vec<String> {
    let mut told = vec![cluster.to_owned()];
    told.extend(told_of(indexed.policies.for_cluster(cluster)));
    told.extend(indexed.admission.for_cluster(cluster).contents(&["team"]));
    told
}

fn told_of(set: &PolicySet) -> Vec<String> {
    let mut told: Vec<String> = set.bindings().map(|binding| format!("{binding:?}")).collect();
    told.extend(set.roles().iter().map(|role| format!("{role:?}")));
    told.extend(set.policies().map(|(_, name)| name.to_string()));
    told.push(format!(
        "{} {}",
        set.knows_namespaces(),
        set.cluster_scoped().contains("example.com", "widgets")
    ));
    for (user, group) in [("jane", "devs"), ("joe", "others")] {
        for (verb, namespace) in [
            ("get", "team"),
            ("delete", "team"),
            ("get", "other"),
            ("delete", ""),
        ] {
            let target = ResourceAttributes {
                verb: verb.into(),
                resource: "pods".into(),
                namespace: namespace.into(),
                ..ResourceAttributes::default()
            };
            let user = User {
                name: user.into(),
                groups: vec![group.into()],
                ..User::default()
            };
            let target = Target::Resource(Box::new(target));
            let (answer, trace) = set.explain(&Attributes { user, target }, Time::UNIX_EPOCH);
            told.push(format!("{answer:?} {trace:?}"));
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_beside_a_shared_base_give_the_set_of_a_load_from_nothing(steps in vec(step(), 1..10)) {
        let config = configuration();
        let options = test_options(&config);
        let (mut world, mut before) = (IndexWorld::default(), None::<(SnapshotIndex, ObjectSet)>);
        for step in &steps {
            world.take(step);
            let Some(own) = world.own(&options) else { continue };
            let watched = || world.watched.values().cloned().collect();
            let earlier = before.as_ref().map(|(indexed, own)| EarlierIndex {
                policies: &indexed.policies,
                admission: &indexed.admission,
                index_inputs: &indexed.index_inputs,
                file_objects: own,
            });
            let indexed = SnapshotIndex::new(&config, &own, watched(), None, earlier);
            let rebuilt = SnapshotIndex::new(&config, &own, watched(), None, None);
            prop_assert_eq!(told(&indexed), told(&rebuilt));
            before = Some((indexed, own));
        }
    }

    #[test]
    fn what_one_cluster_has_decides_for_no_other(steps in vec(step(), 1..10)) {
        let config = configuration();
        let options = test_options(&config);
        let mut world = IndexWorld::default();
        let mut before = None::<(SnapshotIndex, ObjectSet)>;
        for step in &steps {
            world.take(step);
            let Some(own) = world.own(&options) else { continue };
            let earlier = before.as_ref().map(|(indexed, own)| EarlierIndex {
                policies: &indexed.policies,
                admission: &indexed.admission,
                index_inputs: &indexed.index_inputs,
                file_objects: own,
            });
            let indexed = SnapshotIndex::new(&config, &own, world.watched.values().cloned().collect(), None, earlier);
            before = Some((indexed, own));
        }
        // Faulty files are as if nothing had been said.
        let Some((indexed, _)) = before.filter(|_| world.own(&options).is_some()) else { return Ok(()) };
        for (number, cluster) in CLUSTERS.into_iter().enumerate() {
            let alone = world.of_one_cluster(number);
            let Some(own) = alone.own(&options) else { continue };
            let alone = SnapshotIndex::new(&config, &own, alone.watched.values().cloned().collect(), None, None);
            prop_assert_eq!(told_for(&indexed, cluster), told_for(&alone, cluster));
        }
    }

    #[test]
    fn a_change_in_one_cluster_leaves_the_sets_of_others_alone(objects in vec(0..OBJECTS.len(), 0..5)) {
        let config = configuration();
        let options = test_options(&config);
        let mut world = IndexWorld::default();
        world.take(&Step::File(None, vec![0, 2, 6, 10]));
        for cluster in 0..CLUSTERS.len() {
            world.take(&Step::Watched(cluster, vec![4, 8, 12], true, false));
        }
        let own = world.own(&options).unwrap();
        let first = SnapshotIndex::new(&config, &own, world.watched.values().cloned().collect(), None, None);
        world.take(&Step::Watched(0, objects, true, false));
        let earlier = EarlierIndex {
            policies: &first.policies,
            admission: &first.admission,
            index_inputs: &first.index_inputs,
            file_objects: &own,
        };
        let then = SnapshotIndex::new(&config, &own, world.watched.values().cloned().collect(), None, Some(earlier));
        for cluster in &CLUSTERS[1..] {
            let sets = [&first, &then].map(|indexed| indexed.policies.for_cluster(cluster));
            prop_assert!(Arc::ptr_eq(sets[0], sets[1]));
            prop_assert!(sets[0].shares_policies(&first.policies.shared));
            let sets = [&first, &then].map(|indexed| indexed.admission.for_cluster(cluster));
            prop_assert!(Arc::ptr_eq(sets[0], sets[1]));
        }
    }
}
