//! The policies with which a command decides: `--config`, `--manifests` and `--cluster`, or
//! `--kubeconfig` and `--context` to read them from a cluster; and the time of the decision,
//! `--at`.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::live_policies::{LiveArguments, LiveState, running_pods};
use super::output::{self, CommandError};
use crate::cluster::{Clusters, LiveCluster, LivePurpose};
use crate::config::{self, Config, DEFAULT_CLUSTER, ManifestPath, files};
use crate::state::{self, ManifestSource, Origin};
use portcullis_policy::document::Document;
use portcullis_policy::explain::escalations::RunningPods;
use portcullis_policy::explain::objects::{self, KnownKinds};
use portcullis_policy::explain::{LoadedPolicies, unknown_rbac};
use portcullis_policy::field::{Faults, FieldPath, Place};
use portcullis_policy::manifest::{self, ObjectIdentity};
use portcullis_policy::model::Time;
use portcullis_policy::model::groups::RBAC;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PolicyFiles {
    /// The configuration with the policies [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Manifests of the policies, as files or folders, instead of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    pub(crate) manifests: Vec<PathBuf>,
    /// The cluster that the request comes from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) live: LiveArguments,
}

/// The configuration of a gateway, without errors.
struct GatewayFiles {
    path: String,
    config: Config,
}

/// For which decisions policies are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyPurpose {
    /// Authorization only.
    Authorization,
    /// Authorization, and the admission of the objects that users may create.
    AuthorizationAndAdmission,
    /// Admission. Expressions may call the `authorizer`.
    Admission,
}

impl PolicyFiles {
    /// Loads the policies from files, or those that `purpose` needs from a cluster.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has an error, or a request to the cluster fails.
    pub(crate) fn load(&self, purpose: PolicyPurpose) -> Result<LoadedPolicies, CommandError> {
        if !self.is_live() {
            return self.load_files();
        }
        let (cluster, config) = self.connect()?;
        let state = self.state(&cluster, config.as_ref(), purpose)?;
        Self::compile(&state, config.as_ref())
    }

    /// The present policies of the cluster on the command line, and those after applying the
    /// manifests at `paths`.
    ///
    /// # Errors
    ///
    /// As for [`Self::load`]; also if a manifest cannot be read or has an error.
    pub(crate) fn load_applied(&self, paths: &[PathBuf]) -> Result<[LoadedPolicies; 2], CommandError> {
        let faulty = |faults| CommandError::Faulty {
            path: joined_paths(paths),
            faults,
        };
        let documents = applied_documents(paths)?;
        let (cluster, config) = self.connect()?;
        let before = self.state(&cluster, config.as_ref(), PolicyPurpose::Authorization)?;
        let after = before.after_applying(documents).map_err(faulty)?;
        Ok([
            Self::compile(&before, config.as_ref())?,
            Self::compile(&after, config.as_ref())?,
        ])
    }

    /// Connects to the cluster on the command line, and reads the gateway's named configuration.
    fn connect(&self) -> Result<(LiveCluster, Option<GatewayFiles>), CommandError> {
        if !self.manifests.is_empty() {
            let message = "policies come either from `--manifests` or from the cluster of `--kubeconfig` and \
                `--context`: remove one of these options. To add the gateway's own policies to those of a \
                cluster, use `--config`";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let config = self.config.as_deref().map(GatewayFiles::read).transpose()?;
        Ok((self.live.connect()?, config))
    }

    fn state<'c>(
        &'c self,
        cluster: &'c LiveCluster,
        config: Option<&GatewayFiles>,
        purpose: PolicyPurpose,
    ) -> Result<LiveState<'c>, CommandError> {
        if let Some(GatewayFiles { config, .. }) = config {
            return LiveState::read_as_watched(cluster, &self.cluster, config);
        }
        if purpose != PolicyPurpose::Admission {
            output::print_error(
                "note: only the policies of the cluster are used; to add those in the gateway's files, its \
                `neverDeny` and its other authorizers, name its configuration with `--config`",
            );
        }
        let purpose = match purpose {
            PolicyPurpose::Authorization => LivePurpose::Authorization,
            PolicyPurpose::AuthorizationAndAdmission | PolicyPurpose::Admission => LivePurpose::Both,
        };
        LiveState::read(cluster, &self.cluster, purpose)
    }

    fn compile(state: &LiveState<'_>, config: Option<&GatewayFiles>) -> Result<LoadedPolicies, CommandError> {
        match config {
            Some(GatewayFiles { path, config }) => valid(path, state.policies_with(config)),
            None => Ok(state.policies(SystemTime::now().into())),
        }
    }

    /// Warns if no RBAC objects of the cluster are loaded: the result lacks what they grant.
    pub(crate) fn warn_of_unknown_rbac(&self, loaded: &LoadedPolicies) {
        let set = loaded.policies.for_cluster(&self.cluster);
        if let Some(unknown) = unknown_rbac(set, &self.cluster) {
            output::print_error(format_args!(
                "warning: {unknown}: name its kubeconfig with `--kubeconfig`, or let the gateway watch it (`{} init \
                 DIR --watch`)",
                output::program()
            ));
        }
    }

    /// Like [`Self::load`], for queries about permissions: adds the default definitions of the
    /// ClusterRoles in [`Self::lacking_default_roles`], and prints a note about that.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub(crate) fn load_with_default_roles(&self) -> Result<LoadedPolicies, CommandError> {
        let loaded = self.load(PolicyPurpose::Authorization)?;
        Ok(self.with_default_roles(loaded))
    }

    /// Like [`Self::load_with_default_roles`], with the policies for admission if they can be read.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub(crate) fn load_with_admission(&self) -> Result<LoadedPolicies, CommandError> {
        let loaded = match self.load(PolicyPurpose::AuthorizationAndAdmission) {
            Err(CommandError::Cluster(error)) => {
                output::print_error(format_args!(
                    "warning: {error}: whether Pods would be admitted is not known"
                ));
                self.load(PolicyPurpose::Authorization)?
            }
            loaded => loaded?,
        };
        Ok(self.with_default_roles(loaded))
    }

    /// The Pods of the cluster, if the policies are read from a cluster. Prints a warning and
    /// returns `None` if they cannot be read.
    ///
    /// # Errors
    /// The cluster cannot be reached.
    pub(crate) fn running_pods(&self) -> Result<Option<RunningPods>, CommandError> {
        if !self.is_live() {
            return Ok(None);
        }
        let (cluster, _) = self.connect()?;
        match running_pods(&cluster) {
            Ok(running) => Ok(Some(running)),
            Err(error) => {
                output::print_error(format_args!("warning: {error}: which Pods run is not known"));
                Ok(None)
            }
        }
    }

    fn with_default_roles(&self, mut loaded: LoadedPolicies) -> LoadedPolicies {
        if let Some(lacking) = self.lacking_default_roles(&loaded) {
            output::print_error(format_args!(
                "note: {lacking}, so their Kubernetes defaults are used{}",
                self.effect()
            ));
            loaded.add_default_roles();
        }
        loaded
    }

    /// A message if bindings in files refer to missing ClusterRoles that an API server creates by
    /// itself. `None` if none are missing, or if the roles are read from the cluster.
    pub(crate) fn lacking_default_roles(&self, loaded: &LoadedPolicies) -> Option<String> {
        if self.is_live() || self.is_watched() {
            return None;
        }
        let lacking = loaded.lacking_default_roles(&self.cluster);
        let names: Vec<String> = lacking.iter().map(|name| format!("`{name}`")).collect();
        let files = if self.manifests.is_empty() {
            "files"
        } else {
            "manifests"
        };
        (!names.is_empty()).then(|| format!("the {files} do not have the ClusterRoles {}", names.join(", ")))
    }

    /// What it means for `serve` that the gateway's files lack ClusterRoles.
    pub(crate) fn effect(&self) -> &'static str {
        match self.manifests.is_empty() {
            true => {
                "; `serve` grants nothing by roles that are not in its files or clusters: `portcullis init \
                DIR --builtin-roles` writes them"
            }
            false => "",
        }
    }

    /// Whether the configuration says that the cluster is watched.
    fn is_watched(&self) -> bool {
        let path = self
            .manifests
            .is_empty()
            .then(|| configuration(self.config.as_deref()).ok());
        let config = path.flatten().and_then(|path| config::load(&path).0);
        config.is_some_and(|config| config.clusters.iter().any(|entry| entry.name == self.cluster))
    }

    /// Whether the command line names files.
    pub(crate) const fn names_files(&self) -> bool {
        self.config.is_some() || !self.manifests.is_empty()
    }

    /// Whether policies are read from a cluster: one is named, or kubectl runs this without files.
    pub(crate) fn is_live(&self) -> bool {
        self.live.is_named() || (output::is_plugin() && !self.names_files())
    }

    /// Loads the policies from files.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has an error.
    pub(crate) fn load_files(&self) -> Result<LoadedPolicies, CommandError> {
        if self.manifests.is_empty() {
            let path = configuration(self.config.as_deref())?;
            warn_of_unknown_cluster(&path, &self.cluster);
            return valid(&path.display().to_string(), load_configuration(&path));
        }
        for path in &self.manifests {
            check_readable(path)?;
        }
        valid(&joined_paths(&self.manifests), load_paths(&self.manifests))
    }

    /// All objects in the manifests, except those with errors.
    pub(crate) fn documents(&self) -> Vec<Document> {
        if !self.names_files() && self.is_live() {
            return Vec::new();
        }
        let paths = if self.manifests.is_empty() {
            let path = configuration(self.config.as_deref()).ok();
            path.map(|path| config::load_valid_parts(&path).0.manifests)
                .unwrap_or_default()
        } else {
            for_all_clusters(&self.manifests)
        };
        let (sources, mut faults) = state::read_manifests(&paths);
        let sources = sources.iter();
        sources
            .flat_map(|source| manifest::documents(source, &mut faults))
            .collect()
    }
}

impl GatewayFiles {
    fn read(named: &Path) -> Result<Self, CommandError> {
        let path = configuration(Some(named))?.display().to_string();
        let (config, faults) = config::load(Path::new(&path));
        match config.filter(|_| !faults.has_errors()) {
            Some(config) => Ok(Self { path, config }),
            None => Err(CommandError::Faulty { path, faults }),
        }
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

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct At {
    /// Decide for this time, in RFC 3339, such as `2026-12-01T08:00:00Z` [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Time>,
}

impl At {
    /// The time in the argument, or now.
    pub(crate) fn time(self) -> Time {
        self.at.unwrap_or_else(|| SystemTime::now().into())
    }
}

pub(crate) fn parse_time(text: &str) -> Result<Time, &'static str> {
    Time::parse(text).ok_or("expected a time in RFC 3339, such as `2026-12-01T08:00:00Z`")
}

// Loading policies for offline commands, from a configuration or from paths.

/// The development configuration, used if no file is named.
pub(crate) const DEVELOPMENT: &str = ".portcullis/portcullis.yaml";

/// The path `named`, or that of the development configuration if it exists.
///
/// # Errors
///
/// The named file cannot be read, or none is named and there is no development configuration.
pub(crate) fn configuration(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    match named {
        Some(path) => check_regular_file(path).map(|()| path.to_owned()),
        None if Path::new(DEVELOPMENT).is_file() => Ok(PathBuf::from(DEVELOPMENT)),
        None => Err(CommandError::Usage(format!(
            "name the policies: `--config FILE` for a gateway's configuration, `--manifests PATH` for \
            manifests or, if the command has it, `--kubeconfig FILE` for a cluster. `{0} init DIR` creates a \
            configuration; `{0}` without arguments creates a development set-up, which is used by default",
            output::program()
        ))),
    }
}

/// Checks that `path` is a file that can be read.
///
/// # Errors
///
/// The file cannot be opened, or is a folder.
pub(crate) fn check_regular_file(path: &Path) -> Result<(), CommandError> {
    check_readable(path)?;
    if path.is_dir() {
        let message = format!(
            "`{}` is a folder, not a file: name folders of manifests with `--manifests`, or for `check` \
            without an option",
            path.display()
        );
        return Err(CommandError::Usage(message));
    }
    Ok(())
}

/// Checks that a path on the command line can be read, so that this error is reported first.
///
/// # Errors
///
/// The file cannot be opened.
pub(crate) fn check_readable(path: &Path) -> Result<(), CommandError> {
    if path.is_dir() {
        return Ok(());
    }
    let read = files::read(path, files::MANIFEST_BYTES);
    read.map(drop)
        .map_err(|source| CommandError::file("read", path, source))
}

/// The source of manifests other than files, which are watched in clusters.
pub(crate) fn source() -> Arc<dyn ManifestSource> {
    source_accepting_absence(BTreeSet::new())
}

/// Like [`source`], but objects that are absent in these clusters at the start count as deleted.
pub(crate) fn source_accepting_absence(clusters: BTreeSet<String>) -> Arc<dyn ManifestSource> {
    Arc::new(Clusters::accepting_absence(clusters))
}

/// Warns if the configuration at `path` does not know the `cluster`. With a misspelt name, only the
/// manifests for all clusters would be used.
fn warn_of_unknown_cluster(path: &Path, cluster: &str) {
    if let Some(unknown) = unknown_cluster(path, cluster, ": only manifests for all clusters are used") {
        output::print_error(unknown);
    }
}

/// Fails if the configuration at `path` does not know the `cluster`, because the result would be
/// taken for that of the cluster.
///
/// # Errors
///
/// The configuration at `path` has clusters, and not this one.
pub(crate) fn refuse_unknown_cluster(path: &Path, cluster: &str) -> Result<(), CommandError> {
    unknown_cluster(path, cluster, "").map_or(Ok(()), |unknown| Err(CommandError::Usage(unknown)))
}

/// The message, with the `effect`, if the configuration at `path` has clusters, and not this one.
fn unknown_cluster(path: &Path, cluster: &str, effect: &str) -> Option<String> {
    let config = config::load_valid_parts(path).0.config?;
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

/// Loads the policies of the configuration at `path`, and the saved objects of its clusters. Does
/// not read keys, certificates or callers.
pub(crate) fn load_configuration(path: &Path) -> (Option<LoadedPolicies>, Faults) {
    load_configuration_with(path, &[])
}

/// Like [`load_configuration`], with further manifests at `paths`. Files that the configuration
/// includes are only read once.
pub(crate) fn load_configuration_with(path: &Path, paths: &[PathBuf]) -> (Option<LoadedPolicies>, Faults) {
    let (config, mut faults) = config::load(path);
    let Some(mut config) = config else {
        return (None, faults);
    };
    let (more, found) = files_not_included(path, paths);
    faults.append(found);
    config.manifests.extend(for_all_clusters(&more));
    let source = source();
    let (found, more) = state::policies(&config, &*source, SystemTime::now());
    faults.append(more);
    for status in source.status() {
        if status.origin == Origin::None {
            let cluster = status.cluster;
            output::print_error(format_args!(
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
        kinds: KnownKinds::default(),
    });
    (loaded.filter(|_| !faults.has_errors()), faults)
}

/// All errors and warnings of the configuration at `path`, the files that it names, and further
/// manifests at `paths`. Files that the configuration includes are only read once.
pub(crate) fn faults_of_configuration(path: &Path, paths: &[PathBuf]) -> Faults {
    let (more, mut faults) = files_not_included(path, paths);
    faults.append(state::check(
        path,
        &*source(),
        &for_all_clusters(&more),
        SystemTime::now(),
    ));
    faults
}

/// The files at `paths` that the configuration at `path` does not include.
fn files_not_included(path: &Path, paths: &[PathBuf]) -> (Vec<PathBuf>, Faults) {
    let own: BTreeSet<PathBuf> = state::read_manifests(&config::load_valid_parts(path).0.manifests)
        .0
        .iter()
        .filter_map(|source| Path::new(&source.file).canonicalize().ok())
        .collect();
    let (sources, faults) = state::read_manifests(&for_all_clusters(paths));
    let files = sources.into_iter().map(|source| PathBuf::from(source.file));
    let is_new = |file: &PathBuf| file.canonicalize().is_ok_and(|file| !own.contains(&file));
    (files.filter(is_new).collect(), faults)
}

/// Whether the files at `paths` contain any object.
pub(crate) fn has_objects(paths: &[PathBuf]) -> bool {
    let (sources, mut faults) = state::read_manifests(&for_all_clusters(paths));
    let mut documents = sources
        .iter()
        .flat_map(|source| manifest::documents(source, &mut faults));
    documents.any(|document| !objects::is_portcullis_file(&document))
}

/// Loads the policies of files and folders, for all clusters.
pub(crate) fn load_paths(paths: &[PathBuf]) -> (Option<LoadedPolicies>, Faults) {
    let (sources, mut faults) = state::read_manifests(&for_all_clusters(paths));
    let options = manifest::Options {
        now: Some(SystemTime::now().into()),
        ..manifest::Options::default()
    };
    let (manifests, found) = manifest::load(&sources, &options);
    faults.append(found);
    if manifests.is_none() {
        faults.append(manifest::hidden_faults(&sources, &options));
    }
    let manifests = manifests.filter(|_| !faults.has_errors());
    (manifests.map(LoadedPolicies::of_manifests), faults)
}

/// The files at `paths` that kubectl would apply, including those in subfolders. A folder without
/// such files is returned itself.
///
/// # Errors
///
/// A path cannot be read.
pub(crate) fn applied_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in paths {
        let found = state::applied_manifests(path);
        let found = found.map_err(|(path, source)| CommandError::file("read", &path, source))?;
        if found.is_empty() {
            files.push(path.clone());
        }
        files.extend(found);
    }
    Ok(files)
}

/// All objects in the files at `paths` that kubectl would apply.
///
/// # Errors
///
/// A path cannot be read, or a file is not a manifest.
pub(crate) fn applied_documents(paths: &[PathBuf]) -> Result<Vec<Document>, CommandError> {
    for path in paths {
        check_readable(path)?;
    }
    let (sources, mut faults) = state::read_manifests(&for_all_clusters(&applied_files(paths)?));
    let sources = sources.iter();
    let documents = sources.flat_map(|source| manifest::documents(source, &mut faults));
    let documents = documents.collect();
    match faults.has_errors() {
        true => Err(CommandError::Faulty {
            path: joined_paths(paths),
            faults,
        }),
        false => Ok(documents),
    }
}

/// The paths, for messages.
pub(crate) fn joined_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join("`, `")
}

/// `paths` as entries of a configuration, for all clusters.
pub(crate) fn for_all_clusters(paths: &[PathBuf]) -> Vec<ManifestPath> {
    paths
        .iter()
        .map(|path| ManifestPath {
            path: path.clone(),
            cluster: None,
            bundle: None,
        })
        .collect()
}

/// The objects of manifests, by kind, namespace and name.
pub(crate) struct ObjectPlaces<'d>(HashMap<ObjectIdentity, &'d Document>);

impl<'d> ObjectPlaces<'d> {
    /// Indexes `documents`. If several have the same name, the first one is used.
    pub(crate) fn new(documents: &'d [Document]) -> Self {
        let mut places = HashMap::new();
        for document in documents {
            places.entry(ObjectIdentity::of(document)).or_insert(document);
        }
        Self(places)
    }

    /// The object with this kind, namespace and name, of the group of RBAC or Portcullis.
    pub(crate) fn document(&self, [kind, namespace, name]: [&str; 3]) -> Option<&'d Document> {
        let groups = [RBAC, "portcullis.dev"].into_iter();
        let mut identities = groups.map(|group| ObjectIdentity::new(group, kind, namespace, name));
        identities.find_map(|identity| self.0.get(&identity).copied())
    }

    /// The place of the field `path` of an object; empty if the object is in no manifest.
    pub(crate) fn place(&self, object: [&str; 3], path: FieldPath) -> Place {
        let document = self.document(object);
        document.map_or_else(Place::default, |document| document.place(path))
    }
}
