//! A set that came about by changes is the very set that a load from nothing gives.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::authorization::authorizer::Authorizer;
use crate::authorization::{Condition, FailurePolicy, NeverDeny};

/// Objects of every sort, some in two versions, some faulty, some that another makes
/// dangerous, redundant or a duplicate.
const OBJECTS: [&str; 27] = [
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view, labels: {to: edit}}, \
     rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view, labels: {to: edit}}, \
     rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit}, aggregationRule: \
     {clusterRoleSelectors: [{matchLabels: {to: edit}}]}, rules: []}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: labels, labels: {to: edit}}, \
     rules: [{apiGroups: [''], resources: [namespaces, pods/*], verbs: [patch]}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: view, namespace: team}, \
     rules: [{apiGroups: [''], resources: [pods], verbs: [get]}, {apiGroups: [''], resources: [pods], verbs: [get]}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: all}, \
     roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: Group, name: 'system:authenticated'}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: all}, \
     roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: jane}, {kind: Group, name: devs}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: one, namespace: team}, \
     roleRef: {kind: Role, name: view}, subjects: [{kind: User, name: jane}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: one, namespace: team}, \
     roleRef: {kind: ClusterRole, name: labels}, subjects: [{kind: Group, name: devs}, {kind: User, name: joe}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: team}, \
     roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: jane}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: z, namespace: team}, \
     roleRef: {kind: ClusterRole, name: gone}, subjects: [{kind: ServiceAccount, name: bot, namespace: team}]}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: broken, namespace: team}, \
     roleRef: {kind: ClusterRole, name: gone}, subjects: [{kind: Robot, name: bot}]}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: p}, spec: {effect: Deny, \
     subjects: [{kind: Group, name: '*'}], resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: p}, spec: {effect: Allow, \
     subjects: [{kind: User, name: 'j*'}], resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: q}, spec: {effect: Deny, \
     mode: Shadow, subjects: [{kind: User, name: jane}], resourceRules: [{verbs: [get], apiGroups: [''], \
     resources: [pods]}], conditions: [{expression: \"'devs' in request.groups\"}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: r}, spec: {effect: Deny, \
     subjects: [{kind: User, name: joe}], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], \
     namespaceSelector: {matchLabels: {tier: prod}}}]}}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: prod}}}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: test}}}",
    "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: v}, spec: \
     {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {namespaceSelector: {matchLabels: {tier: prod}}, \
     resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}, \
     validations: [{expression: 'object.spec.replica <= 3'}]}}",
    "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: v}, \
     spec: {policyName: v, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}}",
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: team}, data: {most: '3'}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AdmissionException, metadata: {name: x}, spec: {policies: [v], \
     reason: because, expires: '2027-01-01T00:00:00Z'}}",
    "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: team}, \
     roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: Group, name: devs}]}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: q}, spec: {effect: Deny, \
     subjects: [{kind: User, name: jane}], resourceRules: [{verbs: [create], apiGroups: [''], resources: [pods], \
     names: ['a*'], namespaces: ['*']}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: s}, spec: {effect: Allow, \
     subjects: [{kind: Group, name: devs}], resourceRules: [{verbs: [patch], apiGroups: [''], resources: \
     [namespaces]}]}}",
    "{apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationInvariant, metadata: {name: i}, spec: {only: \
     [{kind: User, name: joe}], resourceRules: [{verbs: [delete], apiGroups: [''], resources: [pods]}]}}",
    "no: [manifest",
];

#[derive(Debug, Clone)]
enum Edit {
    /// Puts these objects into the file of this number, or takes it away where there are none.
    Write(usize, Vec<&'static str>),
    /// Gives the file another name, at another place among all.
    Rename(usize, usize),
    /// Moves what it says down by a line.
    Comment(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0..5_usize, vec(select(&OBJECTS[..26]), 0..4)).prop_map(|(file, objects)| Edit::Write(file, objects)),
        1 => (0..5_usize, Just(vec![OBJECTS[26]])).prop_map(|(file, objects)| Edit::Write(file, objects)),
        1 => (0..5_usize, 0..5_usize).prop_map(|(file, to)| Edit::Rename(file, to)),
        1 => (0..5_usize).prop_map(Edit::Comment),
    ]
}

/// Files of even numbers are for every cluster, the others for one.
fn cluster(file: usize) -> Option<String> {
    match file {
        1 => Some("east".to_owned()),
        3 => Some("west".to_owned()),
        _ => None,
    }
}

fn make(files: &mut Vec<(usize, String)>, edit: &Edit) {
    match edit {
        Edit::Write(file, objects) => {
            files.retain(|(other, _)| other != file);
            if !objects.is_empty() {
                files.push((*file, objects.join("\n---\n") + "\n"));
            }
        }
        Edit::Rename(file, to) => {
            let text = files
                .iter()
                .find(|(other, _)| other == file)
                .map(|(_, text)| text.clone());
            files.retain(|(other, _)| other != file && other != to);
            files.extend(text.map(|text| (*to, text)));
        }
        Edit::Comment(file) => {
            let found = files.iter_mut().filter(|(other, _)| other == file);
            found.for_each(|(_, text)| text.insert_str(0, "# a comment\n"));
        }
    }
    files.sort();
}

fn sources(files: &[(usize, String)]) -> Vec<Source> {
    let source = |(file, text): &(usize, String)| Source {
        file: format!("{file}.yaml"),
        text: text.clone(),
        cluster: cluster(*file),
    };
    files.iter().map(source).collect()
}

fn options() -> Options {
    Options {
        clusters: ["east".to_owned(), "west".to_owned()].into(),
        now: Some(Time::UNIX_EPOCH),
        ..Options::default()
    }
}

/// What there was before: of the files that were read last, and of the last set.
#[derive(Default)]
struct Before {
    files: Vec<(Source, Arc<SourceObjects>)>,
    set: Option<(ObjectSet, ClusterPolicySets)>,
}

impl Before {
    /// As files are read again: those that say the same not at all.
    fn read(&mut self, sources: &[Source]) -> Vec<Arc<SourceObjects>> {
        let read = |source: &Source| {
            let earlier = self.files.iter().find(|(earlier, _)| earlier.file == source.file);
            let objects = match earlier {
                Some((earlier, objects)) if earlier == source => Arc::clone(objects),
                _ => Arc::new(SourceObjects::read(
                    source,
                    Version::NEWEST,
                    earlier.map(|(_, objects)| &**objects),
                )),
            };
            (source.clone(), objects)
        };
        let files: Vec<_> = sources.iter().map(read).collect();
        let objects = files.iter().map(|(_, objects)| Arc::clone(objects)).collect();
        self.files = files;
        objects
    }
}

fn says(set: &ObjectSet) -> Vec<(String, Option<String>, u64)> {
    let object = |object: &Arc<ValidatedObject>| {
        let cluster = object.cluster().map(str::to_owned);
        (object.identity().to_string(), cluster, object.digest())
    };
    set.objects().map(object).collect()
}

/// What decides requests in each cluster, as requests show it.
fn decides(policies: &ClusterPolicySets) -> Vec<String> {
    let mut told: Vec<String> = policies.clusters.keys().cloned().collect();
    told.sort();
    for cluster in ["east", "west"] {
        let set = policies.for_cluster(cluster);
        told.extend(set.bindings().map(|binding| format!("{binding:?}")));
        told.extend(set.roles().iter().map(|role| format!("{role:?}")));
        told.extend(set.policies().map(|(_, name)| name.to_string()));
        told.extend(set.invariants().map(|invariant| format!("{invariant:?}")));
        for (user, group) in [("jane", "devs"), ("joe", "system:authenticated")] {
            for (verb, resource) in [("get", "pods"), ("delete", "pods"), ("patch", "namespaces")] {
                for namespace in ["team", "other", ""] {
                    let target = ResourceAttributes {
                        verb: verb.into(),
                        resource: resource.into(),
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
        }
    }
    told
}

/// What admission looks at.
fn is_for_admission(says: &(String, Option<String>, u64)) -> bool {
    !["Role", "ClusterRole", "AuthorizationPolicy"].iter().any(|kind| {
        let of_kind = |kind: &str| says.0.starts_with(&format!("{kind}/"));
        of_kind(kind) || of_kind(&format!("{kind}Binding"))
    })
}

/// The policies of `set`, made of those before it where that is possible.
fn policies(
    set: &ObjectSet,
    before: Option<&(ObjectSet, ClusterPolicySets)>,
) -> Result<ClusterPolicySets, TestCaseError> {
    let rebuilt = || assemble(set.objects(), &options()).policies;
    let Some((earlier, policies)) = before else {
        return Ok(rebuilt());
    };
    let all = |cluster: Option<&str>| {
        set.objects()
            .filter(|object| object.cluster() == cluster)
            .collect()
    };
    let (options, difference) = (options(), set.since(earlier));
    let Some(changed) = assemble_changed(policies, &difference, all, &options) else {
        return Ok(rebuilt());
    };
    for cluster in [None, Some("east"), Some("west")] {
        if !changed.admission.contains(&cluster) {
            let own = |set: &ObjectSet| {
                let mut says = says(set);
                says.retain(|says| is_for_admission(says) && says.1.as_deref() == cluster);
                says.sort();
                says
            };
            prop_assert_eq!(own(set), own(earlier));
        }
    }
    Ok(changed.policies)
}

/// Warnings that are kept with their file are not those of other options.
#[test]
fn a_set_with_other_options_has_the_warnings_of_a_load_from_nothing() {
    let texts = [OBJECTS[12], OBJECTS[23]].join("\n---\n");
    let objects = vec![Arc::new(SourceObjects::read(
        &source(&texts),
        Version::NEWEST,
        None,
    ))];
    let asked = Authorizer {
        name: "portcullis".to_owned(),
        match_conditions: vec![
            Condition::compile(Version::NEWEST, "not-jane", "request.user != 'jane'").unwrap(),
        ],
        failure_policy: FailurePolicy::Deny,
    };
    let never_deny = NeverDeny {
        users: vec!["jane".to_owned()],
        ..NeverDeny::default()
    };
    let (set, first) = ObjectSet::new(objects.clone(), &options(), None);
    for other in [
        Options {
            never_deny,
            ..options()
        },
        Options {
            api_server_webhooks: vec![asked],
            ..options()
        },
    ] {
        let (_, expected) = ObjectSet::new(objects.clone(), &other, None);
        let (_, faults) = ObjectSet::new(objects.clone(), &other, set.as_ref());
        assert_eq!(faults.to_string(), expected.to_string());
        assert_ne!(faults, first, "the options make no difference");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_one_after_another_give_the_set_of_a_load_from_nothing(edits in vec(edit(), 1..12)) {
        let (mut files, mut before) = (Vec::new(), Before::default());
        for edit in &edits {
            make(&mut files, edit);
            let sources = sources(&files);
            let (rebuilt, expected) = read(&sources, &options());
            let read = before.read(&sources);
            let earlier = before.set.as_ref();
            let (set, faults) = ObjectSet::new(read, &options(), earlier.map(|(set, _)| set));
            prop_assert_eq!(faults.to_string(), expected.to_string());
            prop_assert_eq!(faults, expected);
            prop_assert_eq!(set.as_ref().map(says), rebuilt.as_ref().map(says));
            // A set with faults is not used: the one before stays.
            if let (Some(set), Some(rebuilt)) = (set, rebuilt) {
                let policies = policies(&set, earlier)?;
                let expected = assemble(rebuilt.objects(), &options()).policies;
                prop_assert_eq!(decides(&policies), decides(&expected));
                before.set = Some((set, policies));
            }
        }
    }
}
