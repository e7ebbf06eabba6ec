//! Writes a policy set of a given size to files.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// How many objects one file has.
const OF_ONE_FILE: usize = 1_000;

/// How many bindings each cluster has, and how many policies all clusters share.
pub(crate) const OF_ONE_CLUSTER: usize = 500;
const OF_ALL_CLUSTERS: usize = 200;

/// The kind of objects whose number grows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Bindings,
    Policies,
    Namespaces,
    /// Each with bindings of its own; policies are shared.
    Clusters,
    /// The same, but watched instead of read from files.
    Watched,
    /// Bindings of one watched cluster.
    WatchedBindings,
}

pub(crate) struct Size {
    pub(crate) sort: Sort,
    pub(crate) count: usize,
}

pub(crate) struct Setup {
    folder: tempfile::TempDir,
    clusters: usize,
}

impl Sort {
    const ALL: [Self; 6] = [
        Self::Bindings,
        Self::Policies,
        Self::Namespaces,
        Self::Clusters,
        Self::Watched,
        Self::WatchedBindings,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bindings => "bindings",
            Self::Policies => "policies",
            Self::Namespaces => "namespaces",
            Self::Clusters => "clusters",
            Self::Watched => "watched",
            Self::WatchedBindings => "watched-bindings",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.name() == name)
    }

    /// Whether clusters are watched.
    pub(crate) const fn is_watched(self) -> bool {
        matches!(self, Self::Watched | Self::WatchedBindings)
    }
}

impl Size {
    pub(crate) const ALL: [Self; 24] = [
        Self::new(Sort::Bindings, 100),
        Self::new(Sort::Bindings, 1_000),
        Self::new(Sort::Bindings, 10_000),
        Self::new(Sort::Bindings, 100_000),
        Self::new(Sort::Policies, 10),
        Self::new(Sort::Policies, 100),
        Self::new(Sort::Policies, 1_000),
        Self::new(Sort::Policies, 10_000),
        Self::new(Sort::Namespaces, 10),
        Self::new(Sort::Namespaces, 100),
        Self::new(Sort::Namespaces, 1_000),
        Self::new(Sort::Namespaces, 10_000),
        Self::new(Sort::Clusters, 1),
        Self::new(Sort::Clusters, 10),
        Self::new(Sort::Clusters, 100),
        Self::new(Sort::Clusters, 1_000),
        Self::new(Sort::Watched, 1),
        Self::new(Sort::Watched, 10),
        Self::new(Sort::Watched, 100),
        Self::new(Sort::Watched, 1_000),
        Self::new(Sort::WatchedBindings, 100),
        Self::new(Sort::WatchedBindings, 1_000),
        Self::new(Sort::WatchedBindings, 10_000),
        Self::new(Sort::WatchedBindings, 100_000),
    ];

    const fn new(sort: Sort, count: usize) -> Self {
        Self { sort, count }
    }

    pub(crate) fn is_meant(&self, arguments: &[String]) -> bool {
        let count = self.count.to_string();
        arguments
            .iter()
            .all(|one| *one == self.sort.name() || *one == count)
    }

    fn has_clusters(&self) -> bool {
        self.sort == Sort::Clusters || self.sort.is_watched()
    }

    fn of(&self, sort: Sort) -> usize {
        match sort {
            sort if self.sort == sort => self.count,
            Sort::Clusters => 0,
            Sort::Bindings if self.has_clusters() => 0,
            Sort::Policies if self.has_clusters() => OF_ALL_CLUSTERS,
            _ => 10,
        }
    }
}

impl Setup {
    pub(crate) fn new(size: &Size) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let status = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("init")
            .arg(folder.path())
            .stdout(std::process::Stdio::null())
            .status()
            .expect("portcullis starts");
        assert!(status.success(), "portcullis init failed");
        let clusters = size.of(Sort::Clusters);
        let setup = Self { folder, clusters };
        let mut configuration = "apiVersion: config.portcullis.dev/v1alpha1\n\
             kind: GatewayConfiguration\n\
             server:\n\
             \x20 address: 127.0.0.1:0\n\
             \x20 tls: {certificate: pki/server.crt, privateKey: pki/server.key, clientCA: pki/ca.crt}\n\
             callers:\n\
             - {kubeconfig: kubeconfigs/authorization.kubeconfig, endpoints: [authorize, validate, mutate]}\n\
             manifests:\n\
             - set\n"
            .to_owned();
        for cluster in 0..clusters {
            let _ = writeln!(
                configuration,
                "- {{path: clusters/{cluster}, cluster: {}}}",
                cluster_name(cluster)
            );
            fs::create_dir_all(setup.path(&format!("clusters/{cluster}"))).expect("a folder");
            setup.write(&format!("clusters/{cluster}/bindings"), OF_ONE_CLUSTER, binding);
        }
        if size.sort.is_watched() {
            configuration.push_str("clusters: clusters.d\n");
        }
        fs::create_dir(setup.path("set")).expect("a folder");
        fs::write(setup.configuration(), configuration).expect("a configuration");
        setup.write("set/roles", 1, |_| role());
        setup.write("set/bindings", size.of(Sort::Bindings), binding);
        setup.write("set/policies", size.of(Sort::Policies) / 2, authorization_policy);
        setup.write("set/admission", size.of(Sort::Policies) / 2, admission_policy);
        setup.write("set/namespaces", size.of(Sort::Namespaces), namespace);
        setup.change(u32::MAX);
        setup
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.path("growth.yaml")
    }

    /// The cluster whose requests are decided, and which is changed if there are several.
    pub(crate) fn cluster(&self) -> String {
        cluster_name(self.clusters / 2)
    }

    /// Changes the one object of the small file.
    pub(crate) fn change(&self, round: u32) {
        let text = document(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\n\
             kind: RoleBinding\n\
             metadata: {{name: changing, namespace: team-3}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: user-{round}}}]\n"
        ));
        let aside = self.path("changing");
        fs::write(&aside, text).expect("a file");
        let folder = match self.clusters {
            0 => "set".to_owned(),
            clusters => format!("clusters/{}", clusters / 2),
        };
        fs::rename(aside, self.path(&format!("{folder}/changing.yaml"))).expect("a file");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, count: usize, object: fn(usize) -> String) {
        for start in (0..count).step_by(OF_ONE_FILE) {
            let end = count.min(start + OF_ONE_FILE);
            let mut text = String::new();
            (start..end).for_each(|index| text.push_str(&document(&object(index))));
            fs::write(self.path(&format!("{name}-{start}.yaml")), text).expect("a file");
        }
    }
}

pub(crate) fn cluster_name(cluster: usize) -> String {
    format!("cluster-{cluster}")
}

fn document(object: &str) -> String {
    format!("---\n{object}")
}

fn role() -> String {
    "apiVersion: rbac.authorization.k8s.io/v1\n\
     kind: ClusterRole\n\
     metadata: {name: edit}\n\
     rules:\n\
     - {apiGroups: [''], resources: [pods, services, configmaps], verbs: [get, list, watch, create, update]}\n\
     - {apiGroups: [apps], resources: [deployments], verbs: ['*']}\n"
        .to_owned()
}

fn binding(index: usize) -> String {
    let mut text = String::new();
    let _ = write!(
        text,
        "apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: RoleBinding\n\
         metadata: {{name: edit-{index}, namespace: team-{}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-{index}}}]\n",
        index % 1_000
    );
    text
}

fn authorization_policy(index: usize) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\n\
         kind: AuthorizationPolicy\n\
         metadata: {{name: policy-{index}}}\n\
         spec:\n\
         \x20 effect: Deny\n\
         \x20 subjects: [{{kind: Group, name: agents-{index}}}]\n\
         \x20 resourceRules:\n\
         \x20 - {{verbs: [delete], apiGroups: [''], resources: [secrets], namespaces: [guarded-{index}]}}\n\
         \x20 conditions: [{{name: reviewers, expression: \"'reviewers' in request.groups\"}}]\n"
    )
}

fn admission_policy(index: usize) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\n\
         kind: ValidatingAdmissionPolicy\n\
         metadata: {{name: policy-{index}}}\n\
         spec:\n\
         \x20 matchConstraints:\n\
         \x20   resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}}]\n\
         \x20 validations: [{{expression: \"object.spec.replicas <= {index}\"}}]\n\
         ---\n\
         apiVersion: admissionregistration.k8s.io/v1\n\
         kind: ValidatingAdmissionPolicyBinding\n\
         metadata: {{name: policy-{index}}}\n\
         spec: {{policyName: policy-{index}, validationActions: [Deny]}}\n"
    )
}

fn namespace(index: usize) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: team-{index}, labels: {{tier: prod}}}}\n")
}
