//! `portcullis check --migrate`: legacy kinds, converted to their modern
//! equivalents.

use std::path::{Path, PathBuf};

use super::output::{self, Format};
use super::{CommandResult, Error, loading};
use crate::{config, reload};
use portcullis_policy::document;
use portcullis_policy::explain::Lines;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{self, Migrated};

/// Prints the modern equivalents of what stands in the manifests of `config` and in `paths`.
pub(crate) fn run(config: Option<&Path>, paths: &[PathBuf], format: Format) -> Result<CommandResult, Error> {
    let mut manifests = loading::everywhere(paths);
    let mut faults = Faults::new();
    if config.is_some() || paths.is_empty() {
        let (config, found) = config::load(&loading::configuration(config)?);
        faults.append(found);
        manifests.extend(config.map(|config| config.manifests).unwrap_or_default());
    }
    let (sources, found) = reload::read_manifests(&manifests);
    faults.append(found);
    let (migrated, found) = manifest::migrate(&sources);
    faults.append(found);
    faults.iter().for_each(output::complain);
    let objects: Vec<_> = migrated.iter().filter_map(|one| one.object.as_ref()).collect();
    output::print(format, &in_words(&migrated), &objects)?;
    Ok(if faults.has_errors() {
        CommandResult::Failure
    } else {
        CommandResult::Success
    })
}

/// A YAML stream, each document with its remarks above it.
fn in_words(migrated: &[Migrated]) -> Lines {
    let mut lines = Lines::new();
    for one in migrated {
        if one.object.is_some() {
            lines.line("---");
        }
        for remark in &one.remarks {
            lines.line(format_args!("# {remark}"));
        }
        let yaml = one.object.as_ref().map(document::to_yaml);
        lines.each("", &yaml.unwrap_or_default());
    }
    lines
}
