//! `--config`, `--manifests` and `--cluster`: the policies by which a command decides.

use std::path::PathBuf;
use std::time::SystemTime;

use super::Error;
use super::live::{self, LiveArguments};
use super::loading;
use super::output;
use crate::cluster::LivePurpose;
use crate::config::{self, DEFAULT_CLUSTER};
use crate::reload;
use portcullis_policy::document::Document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::manifest;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PolicyFiles {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manifests, as files or folders, that decide in place of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
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
    /// Reads and compiles them: those of files, or of a cluster as far as `purpose` needs them.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault; a cluster cannot be asked.
    pub(crate) fn load(&self, purpose: PolicyPurpose) -> Result<LoadedPolicies, Error> {
        if self.is_live() {
            if self.names_files() {
                let message = "the policies are read from files or from a cluster: name `--config` or \
                               `--manifests`, or `--kubeconfig` and `--context`";
                return Err(Error::Usage(message.to_owned()));
            }
            let purpose = match purpose {
                PolicyPurpose::Authorization => LivePurpose::Authorization,
                PolicyPurpose::Admission => LivePurpose::Both,
            };
            let now = SystemTime::now().into();
            return live::policies(&self.live.connect()?, &self.cluster, purpose, now);
        }
        let _ = purpose;
        self.load_files()
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
    pub(crate) fn load_files(&self) -> Result<LoadedPolicies, Error> {
        if self.manifests.is_empty() {
            let path = loading::configuration(self.config.as_deref())?;
            loading::warn_of_unknown_cluster(&path, &self.cluster);
            return valid(&path.display().to_string(), loading::of_configuration(&path));
        }
        for path in &self.manifests {
            loading::readable(path)?;
        }
        valid(
            &loading::shown(&self.manifests),
            loading::of_paths(&self.manifests),
        )
    }

    /// Every object in the manifests, those that have faults left out.
    pub(crate) fn documents(&self) -> Vec<Document> {
        if !self.names_files() && self.is_live() {
            return Vec::new();
        }
        let paths = if self.manifests.is_empty() {
            let path = loading::configuration(self.config.as_deref()).ok();
            path.map(|path| config::examine(&path).0.manifests)
                .unwrap_or_default()
        } else {
            loading::everywhere(&self.manifests)
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
) -> Result<LoadedPolicies, Error> {
    loaded.ok_or_else(|| Error::Faulty {
        path: path.to_owned(),
        faults,
    })
}
