//! `--config`, `--manifests` and `--cluster`: the policies by which a command decides.

use std::path::{Path, PathBuf};

use super::Error;
use super::loading::{self, LoadedPolicies};
use crate::config::{self, DEFAULT_CLUSTER};
use crate::document::Document;
use crate::{manifest, reload};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct PolicyFiles {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manifests, as files or folders, that decide in place of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
    /// The cluster that the request comes from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    pub(super) cluster: String,
}

impl PolicyFiles {
    /// Reads and compiles them.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault.
    pub(super) fn load(&self) -> Result<LoadedPolicies, Error> {
        if self.manifests.is_empty() {
            let path = loading::configuration(self.config.as_deref())?;
            return valid(&path.display().to_string(), loading::of_configuration(&path));
        }
        for path in &self.manifests {
            loading::readable(path)?;
        }
        let paths: Vec<String> = self.manifests.iter().map(|path| shown(path)).collect();
        valid(&paths.join("`, `"), loading::of_paths(&self.manifests))
    }

    /// Every object in the manifests, those that have faults left out.
    pub(super) fn documents(&self) -> Vec<Document> {
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

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn valid(
    path: &str,
    (loaded, faults): (Option<LoadedPolicies>, crate::field::Faults),
) -> Result<LoadedPolicies, Error> {
    loaded.ok_or_else(|| Error::Faulty {
        path: path.to_owned(),
        faults,
    })
}
