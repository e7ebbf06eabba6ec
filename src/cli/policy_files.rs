//! The policies by which a command decides, and the time for which it does: `--config`, `--manifests`
//! and `--cluster`; `--kubeconfig` and `--context` for those that are in a cluster now; `--at`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::output::{self, CommandError};
use crate::cluster::{Clusters, LiveCluster, LivePolicies, LivePurpose};
use crate::config::{self, ClusterEntry, Config, DEFAULT_CLUSTER, ManifestPath, files};
use crate::reload::{
    self, ManifestSource, Origin, Snapshot, SourceFiles, SourceStatus, Trigger, WatchedObjects, WatchedPart,
};
use portcullis_cel::Version;
use portcullis_policy::authorization::rbac::bootstrap_policy;
use portcullis_policy::document::{self, Document};
use portcullis_policy::engine::Time;
use portcullis_policy::explain::objects::{CustomKinds, ServedAs};
use portcullis_policy::explain::{LoadedPolicies, unknown_rbac};
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{self, Options, Source};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PolicyFiles {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Manifests, as files or folders, that decide in place of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    pub(crate) manifests: Vec<PathBuf>,
    /// The cluster that the request comes from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) live: LiveArguments,
}

/// What policies are loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyPurpose {
    /// Who may do what.
    Authorization,
    /// Whether objects are admitted, for which expressions may ask who may do what.
    Admission,
}

impl PolicyFiles {
    /// Reads and compiles them: those of files, or those of a cluster that `purpose` needs.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault; a cluster cannot be asked.
    pub(crate) fn load(&self, purpose: PolicyPurpose) -> Result<LoadedPolicies, CommandError> {
        if !self.is_live() {
            return self.load_files();
        }
        if !self.manifests.is_empty() {
            let message = "the policies are those of `--manifests`, or those of the cluster of `--kubeconfig` and \
                           `--context`, to which `--config` adds the gateway's own";
            return Err(CommandError::Usage(message.to_owned()));
        }
        if self.config.is_some() {
            return self.load_both();
        }
        if purpose == PolicyPurpose::Authorization {
            output::complain(
                "note: these are the policies of the cluster alone; to add those in the gateway's files, its \
                 `neverDeny` and its other authorizers, name its configuration with `--config`",
            );
        }
        let purpose = match purpose {
            PolicyPurpose::Authorization => LivePurpose::Authorization,
            PolicyPurpose::Admission => LivePurpose::Both,
        };
        let now = SystemTime::now().into();
        live_policies(&self.live.connect()?, &self.cluster, purpose, now)
    }

    /// The objects of the cluster as they are now, and the gateway's files, merged as `serve` merges
    /// them.
    fn load_both(&self) -> Result<LoadedPolicies, CommandError> {
        let path = configuration(self.config.as_deref())?;
        let (config, faults) = config::load(&path);
        let config = config.filter(|_| !faults.has_errors());
        let faulty = |faults| CommandError::Faulty {
            path: path.display().to_string(),
            faults,
        };
        let mut config = config.ok_or_else(|| faulty(faults))?;
        let cluster = self.live.connect()?;
        if !config.clusters.iter().any(|entry| entry.name == self.cluster) {
            config.clusters.push(ClusterEntry::named(&self.cluster));
        }
        let entry = config.clusters.iter().find(|entry| entry.name == self.cluster);
        let found = cluster.policies_as_watched(&self.cluster, entry)?;
        complain_of(&found);
        let source = LiveObjects::new(&self.cluster, found);
        let (policies, faults) = reload::policies(&config, &source, SystemTime::now());
        let policies = policies.filter(|_| !faults.has_errors());
        let webhooks = &config.authorization.webhooks;
        let (policies, admission) = policies.ok_or_else(|| faulty(faults))?;
        Ok(LoadedPolicies {
            policies,
            admission,
            authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
            namespace: Some(cluster.namespace().to_owned()),
            kinds: served_kinds(&cluster),
        })
    }

    /// Warns where nothing is known of the RBAC of the cluster, so that whom that allows something is
    /// missing in the answer.
    pub(crate) fn warn_of_unknown_rbac(&self, loaded: &LoadedPolicies) {
        let set = loaded.policies.for_cluster(&self.cluster);
        if let Some(unknown) = unknown_rbac(set, &self.cluster) {
            output::complain(format_args!(
                "warning: {unknown}: name its kubeconfig with `--kubeconfig`, or let the gateway watch it (`{} init \
                 DIR --watch`)",
                output::program()
            ));
        }
    }

    /// As [`Self::load`], for questions who may do what. Where those of `--manifests` decide,
    /// ClusterRoles that their bindings name and an API server makes by itself count as it makes them,
    /// and a note names them.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub(crate) fn load_with_default_roles(&self) -> Result<LoadedPolicies, CommandError> {
        if self.is_live() || self.manifests.is_empty() {
            return self.load(PolicyPurpose::Authorization);
        }
        for path in &self.manifests {
            readable(path)?;
        }
        let (mut sources, faults) = reload::read_manifests(&everywhere(&self.manifests));
        if let Some((names, roles)) = default_roles(&sources) {
            output::complain(format_args!(
                "note: the manifests do not have the ClusterRoles {names}, so Kubernetes' default of them counts"
            ));
            sources.push(roles);
        }
        valid(&shown(&self.manifests), of_sources(&sources, faults))
    }

    /// Whether files are named on the command line.
    pub(crate) const fn names_files(&self) -> bool {
        self.config.is_some() || !self.manifests.is_empty()
    }

    /// Whether a cluster is asked: it is named, or kubectl runs the program and no files are.
    pub(crate) fn is_live(&self) -> bool {
        self.live.is_named() || (output::is_plugin() && !self.names_files())
    }

    /// Reads and compiles those of files.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault.
    pub(crate) fn load_files(&self) -> Result<LoadedPolicies, CommandError> {
        if self.manifests.is_empty() {
            let path = configuration(self.config.as_deref())?;
            warn_of_unknown_cluster(&path, &self.cluster);
            return valid(&path.display().to_string(), of_configuration(&path));
        }
        for path in &self.manifests {
            readable(path)?;
        }
        valid(&shown(&self.manifests), of_paths(&self.manifests))
    }

    /// Every object in the manifests, those that have faults left out.
    pub(crate) fn documents(&self) -> Vec<Document> {
        if !self.names_files() && self.is_live() {
            return Vec::new();
        }
        let paths = if self.manifests.is_empty() {
            let path = configuration(self.config.as_deref()).ok();
            path.map(|path| config::examine(&path).0.manifests)
                .unwrap_or_default()
        } else {
            everywhere(&self.manifests)
        };
        let (sources, mut faults) = reload::read_manifests(&paths);
        let sources = sources.iter();
        sources
            .flat_map(|source| manifest::documents(source, &mut faults))
            .collect()
    }
}

fn valid(
    path: &str,
    (loaded, faults): (Option<LoadedPolicies>, portcullis_policy::field::Faults),
) -> Result<LoadedPolicies, CommandError> {
    loaded.ok_or_else(|| CommandError::Faulty {
        path: path.to_owned(),
        faults,
    })
}

/// Where a cluster is, as for kubectl.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LiveArguments {
    /// Read the policies from the cluster of this kubeconfig, as kubectl would; with `--config`,
    /// together with those of the gateway's files.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl LiveArguments {
    /// Whether a cluster is named on the command line.
    pub(crate) const fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Connects to the cluster named, or to the one that kubectl would.
    ///
    /// # Errors
    ///
    /// There is none, or it does not answer.
    pub(crate) fn connect(&self) -> Result<LiveCluster, CommandError> {
        LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref()).map_err(CommandError::from)
    }
}

/// The policies of `cluster`, which requests of the cluster `name` are decided by. What is
/// wrong in it is said, and counts as absent.
///
/// # Errors
///
/// They cannot be listed.
pub(crate) fn live_policies(
    cluster: &LiveCluster,
    name: &str,
    purpose: LivePurpose,
    now: Time,
) -> Result<LoadedPolicies, CommandError> {
    if let Some(why) = other_version(cluster) {
        output::complain(format_args!("warning: {why}"));
    }
    let found = cluster.policies(name, purpose)?;
    complain_of(&found);
    let options = Options {
        now: Some(now),
        cel_version: cluster.cel_version(),
        cluster_scoped: [(name.to_owned(), found.cluster_scoped)].into(),
        ..Options::default()
    };
    let manifests = manifest::assemble(&found.objects, &options);
    Ok(LoadedPolicies {
        namespace: Some(cluster.namespace().to_owned()),
        kinds: served_kinds(cluster),
        ..LoadedPolicies::of_manifests_for(manifests, options.cel_version)
    })
}

fn complain_of(found: &LivePolicies) {
    for fault in found.faults.iter() {
        output::complain(format_args!("warning: {fault}; it counts as absent"));
    }
}

/// The objects of a cluster as they are now, in place of those that `serve` watches.
struct LiveObjects(Arc<WatchedObjects>);

impl LiveObjects {
    fn new(cluster: &str, found: LivePolicies) -> Self {
        let part = WatchedPart {
            objects: found.objects,
            ..WatchedPart::default()
        };
        Self(Arc::new(WatchedObjects {
            cluster: cluster.to_owned(),
            parts: vec![Arc::new(part)],
            cluster_scoped: found.cluster_scoped,
            ..WatchedObjects::default()
        }))
    }
}

impl ManifestSource for LiveObjects {
    fn start(&self, _: Trigger) -> std::io::Result<()> {
        Ok(())
    }

    fn check(&self, _: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        vec![Arc::clone(&self.0)]
    }

    fn follow(&self, _: &Snapshot) {}

    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

/// What `cluster` serves its kinds as.
pub(crate) fn served_kinds(cluster: &LiveCluster) -> CustomKinds {
    let mut kinds = CustomKinds::default();
    for resource in cluster.resources() {
        let served = ServedAs {
            group: resource.group.clone(),
            resource: resource.resource.clone(),
            is_namespaced: resource.is_namespaced,
            is_guess: false,
        };
        kinds.add_served(&resource.kind, served);
    }
    kinds
}

/// Why expressions are not compiled for the version of the API server, if they are not.
fn other_version(cluster: &LiveCluster) -> Option<String> {
    let compiled = cluster.cel_version();
    match cluster.minor_version() {
        None => Some(format!(
            "the API server does not say its version: expressions are compiled for Kubernetes {compiled}"
        )),
        Some(minor) if Version::new(minor) != compiled => Some(format!(
            "expressions are compiled for Kubernetes {compiled}; the API server is of version 1.{minor}, whose CEL may \
             calculate costs and errors differently"
        )),
        Some(_) => None,
    }
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct At {
    /// Decide for this time, in RFC 3339, such as `2026-12-01T08:00:00Z` [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Time>,
}

impl At {
    /// The time named, or now.
    pub(crate) fn time(self) -> Time {
        self.at.unwrap_or_else(|| SystemTime::now().into())
    }
}

pub(crate) fn parse_time(text: &str) -> Result<Time, &'static str> {
    Time::parse(text).ok_or("expected a time in RFC 3339, such as `2026-12-01T08:00:00Z`")
}

// Loads the policies for an offline command, from a configuration or from paths.

/// The configuration of the development set-up, used where none is named.
pub(crate) const DEVELOPMENT: &str = ".portcullis/portcullis.yaml";

/// The configuration named, or that of the development set-up where there is one.
///
/// # Errors
///
/// The file named cannot be read, or none is named and there is no such set-up.
pub(crate) fn configuration(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    match named {
        Some(path) => regular(path).map(|()| path.to_owned()),
        None if Path::new(DEVELOPMENT).is_file() => Ok(PathBuf::from(DEVELOPMENT)),
        None => Err(CommandError::Usage(format!(
            "set a configuration with `--config FILE`; `{} init DIR` creates one",
            output::program()
        ))),
    }
}

/// The same of what must be a file and no folder.
///
/// # Errors
///
/// It cannot be opened, or is a folder.
pub(crate) fn regular(path: &Path) -> Result<(), CommandError> {
    readable(path)?;
    if path.is_dir() {
        let folder = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(CommandError::file("read", path, folder));
    }
    Ok(())
}

/// Says at once, and not among the faults, that a file named on the command line is not there.
///
/// # Errors
///
/// It cannot be opened.
pub(crate) fn readable(path: &Path) -> Result<(), CommandError> {
    if path.is_dir() {
        return Ok(());
    }
    let read = files::read(path, files::MANIFEST_BYTES);
    read.map(drop)
        .map_err(|source| CommandError::file("read", path, source))
}

/// What manifests come from beside files.
pub(crate) fn source() -> Arc<dyn ManifestSource> {
    source_accepting_absence(BTreeSet::new())
}

/// The same, where what is absent in these clusters at the start is gone.
pub(crate) fn source_accepting_absence(clusters: BTreeSet<String>) -> Arc<dyn ManifestSource> {
    Arc::new(Clusters::accepting_absence(clusters))
}

/// Warns of a `--cluster` that the configuration at `path` says nothing of: a misspelt name
/// would be answered by the manifests for all clusters alone.
pub(crate) fn warn_of_unknown_cluster(path: &Path, cluster: &str) {
    if let Some(unknown) = unknown_cluster(path, cluster, ": only manifests for all clusters are used") {
        output::complain(unknown);
    }
}

/// The same as an error, where the answer would be taken for that of the cluster.
///
/// # Errors
///
/// The configuration at `path` names clusters, and not this one.
pub(crate) fn refuse_unknown_cluster(path: &Path, cluster: &str) -> Result<(), CommandError> {
    unknown_cluster(path, cluster, "").map_or(Ok(()), |unknown| Err(CommandError::Usage(unknown)))
}

/// That the configuration at `path` names clusters, and not this one, and what becomes of it.
fn unknown_cluster(path: &Path, cluster: &str, effect: &str) -> Option<String> {
    let config = config::examine(path).0.config?;
    let callers = config.callers.iter().map(|caller| caller.cluster.as_str());
    let watched = config.clusters.iter().map(|watched| watched.name.as_str());
    let own = config.manifests.iter();
    let own = own.filter_map(|manifests| manifests.cluster.as_deref());
    let known: BTreeSet<&str> = callers.chain(watched).chain(own).collect();
    if known.is_empty() || known.contains(cluster) {
        return None;
    }
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    Some(format!(
        "{} names no cluster `{cluster}`{effect}; `--cluster` takes {}",
        path.display(),
        known.join(", ")
    ))
}

/// What the configuration at `path` decides by, with what is saved of its
/// clusters. Keys, certificates and callers are not read.
pub(crate) fn of_configuration(path: &Path) -> (Option<LoadedPolicies>, Faults) {
    of_configuration_and(path, &[])
}

/// The same with more manifests at `paths`. A file that is among its own counts once.
pub(crate) fn of_configuration_and(path: &Path, paths: &[PathBuf]) -> (Option<LoadedPolicies>, Faults) {
    let (config, mut faults) = config::load(path);
    let Some(mut config) = config else {
        return (None, faults);
    };
    let (more, found) = others_than_its_own(path, paths);
    faults.append(found);
    config.manifests.extend(everywhere(&more));
    let source = source();
    let (found, more) = reload::policies(&config, &*source, SystemTime::now());
    faults.append(more);
    for status in source.status() {
        if status.origin == Origin::Nowhere {
            let cluster = status.cluster;
            output::complain(format_args!(
                "there are no valid saved objects of the cluster `{cluster}`: only the files are used"
            ));
        }
    }
    let webhooks = &config.authorization.webhooks;
    let loaded = found.map(|(policies, admission)| LoadedPolicies {
        policies,
        admission,
        authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
        namespace: None,
        kinds: CustomKinds::default(),
    });
    (loaded.filter(|_| !faults.has_errors()), faults)
}

/// Every fault of the configuration at `path`, of all that it names, and of more
/// manifests at `paths`. A file that is among its own counts once.
pub(crate) fn faults_of_configuration(path: &Path, paths: &[PathBuf]) -> Faults {
    let (more, mut faults) = others_than_its_own(path, paths);
    faults.append(reload::check(
        path,
        &*source(),
        &everywhere(&more),
        SystemTime::now(),
    ));
    faults
}

/// The files at `paths` that are not among those of the configuration at `path`.
fn others_than_its_own(path: &Path, paths: &[PathBuf]) -> (Vec<PathBuf>, Faults) {
    let own: BTreeSet<PathBuf> = reload::read_manifests(&config::examine(path).0.manifests)
        .0
        .iter()
        .filter_map(|source| Path::new(&source.file).canonicalize().ok())
        .collect();
    let (sources, faults) = reload::read_manifests(&everywhere(paths));
    let files = sources.into_iter().map(|source| PathBuf::from(source.file));
    let is_new = |file: &PathBuf| file.canonicalize().is_ok_and(|file| !own.contains(&file));
    (files.filter(is_new).collect(), faults)
}

/// Whether there is any object in the files at `paths`.
pub(crate) fn has_objects(paths: &[PathBuf]) -> bool {
    let (sources, mut faults) = reload::read_manifests(&everywhere(paths));
    let mut sources = sources.iter();
    sources.any(|source| !manifest::documents(source, &mut faults).is_empty())
}

/// What files and folders decide by, which hold for every cluster.
pub(crate) fn of_paths(paths: &[PathBuf]) -> (Option<LoadedPolicies>, Faults) {
    let (sources, faults) = reload::read_manifests(&everywhere(paths));
    of_sources(&sources, faults)
}

fn of_sources(sources: &[Source], mut faults: Faults) -> (Option<LoadedPolicies>, Faults) {
    let options = manifest::Options {
        now: Some(SystemTime::now().into()),
        ..manifest::Options::default()
    };
    let (manifests, found) = manifest::load(sources, &options);
    faults.append(found);
    if manifests.is_none() {
        faults.append(manifest::hidden_faults(sources, &options));
    }
    let manifests = manifests.filter(|_| !faults.has_errors());
    (manifests.map(LoadedPolicies::of_manifests), faults)
}

/// The names of the ClusterRoles that bindings of `sources` refer to, that no manifest has and that an
/// API server makes by itself, and the manifests of all that it makes and `sources` lack: some are
/// aggregated of others. `None` where there is none.
fn default_roles(sources: &[Source]) -> Option<(String, Source)> {
    let mut unread = Faults::new();
    let written: Vec<Document> = sources
        .iter()
        .flat_map(|source| manifest::documents(source, &mut unread))
        .collect();
    let is_role = |document: &&Document| document.text("kind") == Some("ClusterRole");
    let text = |document: &Document, field: &str, of: &str| {
        let value = document.root().get(field)?.get(of)?;
        value.as_str().map(str::to_owned)
    };
    let name = |document: &Document| text(document, "metadata", "name");
    let known: BTreeSet<String> = written.iter().filter(is_role).filter_map(name).collect();
    let defaults = document::parse(None, bootstrap_policy(Version::NEWEST)).ok()?;
    let lacking = defaults.iter().filter(is_role);
    let lacking = lacking.filter(|role| name(role).is_some_and(|name| !known.contains(&name)));
    let lacking: Vec<&Document> = lacking.collect();
    let bound: BTreeSet<String> = written
        .iter()
        .filter(|document| text(document, "roleRef", "kind").as_deref() == Some("ClusterRole"))
        .filter_map(|document| text(document, "roleRef", "name"))
        .collect();
    let named = lacking.iter().filter_map(|role| name(role));
    let named: Vec<String> = named
        .filter(|name| bound.contains(name))
        .map(|name| format!("`{name}`"))
        .collect();
    let texts = lacking
        .iter()
        .map(|role| document::to_yaml(&role.root().to_json()));
    let roles = Source {
        file: "Kubernetes' default".to_owned(),
        text: texts.collect::<Vec<_>>().join("---\n"),
        cluster: None,
    };
    (!named.is_empty()).then(|| (named.join(", "), roles))
}

/// The files at `paths` that kubectl would apply, those in folders below included. A folder
/// without any stands for itself.
///
/// # Errors
///
/// A path cannot be read.
pub(crate) fn applied(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in paths {
        let found = reload::applied_manifests(path);
        let found = found.map_err(|(path, source)| CommandError::file("read", &path, source))?;
        if found.is_empty() {
            files.push(path.clone());
        }
        files.extend(found);
    }
    Ok(files)
}

/// Paths as messages name them.
pub(crate) fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join("`, `")
}

/// `paths` as a configuration would name them.
pub(crate) fn everywhere(paths: &[PathBuf]) -> Vec<ManifestPath> {
    paths
        .iter()
        .map(|path| ManifestPath {
            path: path.clone(),
            cluster: None,
        })
        .collect()
}
