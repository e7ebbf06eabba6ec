//! `portcullis bundle`: publishes policies as a signed artifact in an OCI registry, from which
//! gateways pull it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, str};

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files;
use crate::bundle::{
    self, Bundle, BundleError, BundleFile, BundleManifest, Registry, RegistryAccess, UnsignedBundle,
};
use crate::config::{BundleReference, BundleSource};
use crate::state;
use portcullis_policy::explain::Lines;
use portcullis_policy::manifest::{self, Options, Source};

/// Publish policies as a signed bundle in an OCI registry, and pull it.
///
/// `build` checks manifests and packs them; `push` stores the bundle under a tag. Sign it with
/// `cosign sign --key`: gateways whose configuration names it (`manifests: [{oci: …}]`) then pull
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BundleCommand {
    #[command(subcommand)]
    step: BundleStep,
}

const EXAMPLES: &str = "\
Examples:
  portcullis bundle build policies --name policies --sequence 7 --into build
  portcullis bundle push build registry.example.com/policies:stable --credentials ~/.docker/config.json
  cosign sign --key cosign.key registry.example.com/policies@sha256:…
  portcullis bundle verify registry.example.com/policies:stable --key cosign.pub
  portcullis bundle pull --config portcullis.yaml";

#[derive(Debug, Subcommand)]
enum BundleStep {
    Build(BuildBundle),
    Push(PushBundle),
    Pull(PullBundle),
    Verify(VerifyBundle),
}

/// Check manifests and write them as a bundle, in the form of an OCI image layout
#[derive(Debug, clap::Args)]
struct BuildBundle {
    /// Manifests, as files or folders.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The name of the bundle: gateways reject a bundle with another name.
    #[arg(long)]
    name: String,
    /// The number of this version: gateways only accept a higher one than they have.
    #[arg(long, value_name = "NUMBER")]
    sequence: u64,
    /// The folder to write, which must be empty or not exist.
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
    #[command(flatten)]
    output: Output<Format>,
}

/// Store a bundle in a registry under a tag
#[derive(Debug, clap::Args)]
struct PushBundle {
    /// The folder that `build` wrote.
    folder: PathBuf,
    /// The destination, as `registry/repository:tag`.
    #[arg(value_parser = reference)]
    reference: BundleReference,
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    output: Output<Format>,
}

/// Pull a bundle, verify it and write its files, or pull the bundles of a gateway's configuration
#[derive(Debug, clap::Args)]
struct PullBundle {
    #[command(flatten)]
    signed: SignedBundle,
    /// The folder to write, which must be empty or not exist.
    #[arg(long, value_name = "FOLDER", required_unless_present = "config")]
    into: Option<PathBuf>,
    /// Pull the bundles of this configuration into their caches, as `serve` does.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reference", "key", "into"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: Output<Format>,
}

/// Verify the signature and the content of a bundle in a registry
#[derive(Debug, clap::Args)]
struct VerifyBundle {
    #[command(flatten)]
    signed: SignedBundle,
    #[command(flatten)]
    output: Output<Format>,
}

#[derive(Debug, clap::Args)]
struct SignedBundle {
    /// The bundle, as `registry/repository:tag` or `registry/repository@digest`.
    #[arg(value_parser = reference)]
    reference: Option<BundleReference>,
    /// Public keys in PEM, one of which must have signed the bundle.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The name that the bundle must have [default: the repository]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    registry: RegistryArguments,
}

#[derive(Debug, clap::Args)]
struct RegistryArguments {
    /// CA certificates in PEM for the registry [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// The `config.json` of docker with credentials for the registry.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
}

/// A bundle, as JSON output.
#[derive(Serialize)]
struct BundleReport {
    reference: String,
    name: String,
    sequence: u64,
    created: String,
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
}

fn reference(text: &str) -> Result<BundleReference, &'static str> {
    BundleReference::parse(text)
}

// === impl BundleCommand ===

impl BundleCommand {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        match self.step {
            BundleStep::Build(build) => build.run(),
            BundleStep::Push(push) => push.run(),
            BundleStep::Pull(pull) => pull.run(),
            BundleStep::Verify(verify) => verify.run(),
        }
    }
}

impl BuildBundle {
    fn run(self) -> Result<CommandResult, CommandError> {
        check_empty(&self.into)?;
        let files = self.files()?;
        let created = SystemTime::now().into();
        let built = UnsignedBundle::build(&self.name, self.sequence, created, &files);
        let built = built.map_err(|error| CommandError::Usage(error.to_string()))?;
        let written = built.write_layout(&self.into);
        written.map_err(|source| CommandError::file("write", &self.into, source))?;
        let folder = self.into.display();
        let lines = Lines::from_iter([format!(
            "{}, sequence {}: {} in {folder}",
            self.name,
            self.sequence,
            output::count(files.len() as u64, "file")
        )]);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let value =
            json!({"folder": self.into, "name": self.name, "sequence": self.sequence, "files": names});
        output::print(self.output.output, &lines, &value)?;
        Ok(CommandResult::Success)
    }

    /// The manifests, with their paths relative to the arguments. It is an error if one is invalid.
    fn files(&self) -> Result<Vec<BundleFile>, CommandError> {
        for path in &self.paths {
            policy_files::check_readable(path)?;
        }
        let (sources, mut faults) = state::read_manifests(&policy_files::for_all_clusters(&self.paths));
        let options = Options {
            now: Some(SystemTime::now().into()),
            ..Options::default()
        };
        faults.append(manifest::load(&sources, &options).1);
        if faults.has_errors() {
            let path = policy_files::joined_paths(&self.paths);
            return Err(CommandError::Faulty { path, faults });
        }
        faults.iter().for_each(output::print_error);
        Ok(sources.into_iter().map(|source| self.file(source)).collect())
    }

    fn file(&self, source: Source) -> BundleFile {
        let file = Path::new(&source.file);
        let below = self.paths.iter().find_map(|path| file.strip_prefix(path).ok());
        let below = below.filter(|name| !name.as_os_str().is_empty());
        let name = below.or_else(|| file.file_name().map(Path::new)).unwrap_or(file);
        (name.display().to_string(), source.text)
    }
}

impl PushBundle {
    fn run(self) -> Result<CommandResult, CommandError> {
        let reference = &self.reference;
        let pushed = read(&self.folder).and_then(|bundle| {
            let RegistryArguments {
                ca_bundle,
                credentials,
            } = &self.registry;
            let (ca_bundle, credentials) = (ca_bundle.as_deref(), credentials.as_deref());
            let mut registry = Registry::new(reference, RegistryAccess::Push, ca_bundle, credentials)?;
            with_timeout(bundle.push(&mut registry, reference))
        });
        let digest = match pushed {
            Ok(digest) => digest,
            Err(error) => return refusal_result(&error),
        };
        let BundleReference {
            registry, repository, ..
        } = reference;
        let signed = format!("{registry}/{repository}@{digest}");
        let lines = Lines::from_iter([
            format!("pushed {reference} as {digest}"),
            format!("sign it: cosign sign --key cosign.key {signed}"),
        ]);
        let value = json!({"reference": reference.to_string(), "digest": digest});
        output::print(self.output.output, &lines, &value)?;
        Ok(CommandResult::Success)
    }
}

impl PullBundle {
    fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        if let Some(path) = &self.config {
            return pull_configured(path, format);
        }
        let (source, into) = (self.signed.source()?, self.into.unwrap_or_default());
        check_empty(&into)?;
        let bundle = match pulled(&source) {
            Ok(bundle) => bundle,
            Err(error) => return refusal_result(&error),
        };
        write_files(&bundle, &into).map_err(|error| CommandError::file("write", &into, error))?;
        report(&source, &bundle, format)
    }
}

impl VerifyBundle {
    fn run(self) -> Result<CommandResult, CommandError> {
        let source = self.signed.source()?;
        match pulled(&source) {
            Ok(bundle) => report(&source, &bundle, self.output.output),
            Err(error) => refusal_result(&error),
        }
    }
}

impl SignedBundle {
    fn source(&self) -> Result<BundleSource, CommandError> {
        let (Some(reference), Some(key)) = (&self.reference, &self.key) else {
            return Err(CommandError::Usage(
                "name the reference of a bundle, and the public key with `--key`".to_owned(),
            ));
        };
        Ok(BundleSource {
            name: self.name.clone().unwrap_or_else(|| reference.repository.clone()),
            min_sequence: 0,
            reference: reference.clone(),
            key: key.clone(),
            poll_interval: Duration::MAX,
            ca_bundle: self.registry.ca_bundle.clone(),
            credentials: self.registry.credentials.clone(),
        })
    }
}

/// Pulls the bundles that the configuration at `path` names.
fn pull_configured(path: &Path, format: Format) -> Result<CommandResult, CommandError> {
    policy_files::check_regular_file(path)?;
    let results = state::pull_bundles(path, &*policy_files::source());
    let results = results.map_err(|error| CommandError::Serve(error.into()))?;
    if results.is_empty() {
        let message = format!("`{}` has no bundle in its `manifests`", path.display());
        return Err(CommandError::Usage(message));
    }
    let (mut reports, mut result) = (Vec::new(), CommandResult::Success);
    for (source, pulled) in &results {
        match pulled {
            Ok(manifest) => reports.push(BundleReport::new(source, manifest)),
            Err(error) => {
                output::print_error(format_args!("{}: {error}", source.reference));
                result = CommandResult::Failure;
            }
        }
    }
    let lines = reports.iter().map(BundleReport::line).collect();
    output::print(format, &lines, &reports)?;
    Ok(result)
}

fn report(source: &BundleSource, bundle: &Bundle, format: Format) -> Result<CommandResult, CommandError> {
    let report = BundleReport {
        signature: Some(bundle.signature.form()),
        files: bundle.files.iter().map(|(name, _)| name.clone()).collect(),
        ..BundleReport::new(source, &bundle.manifest)
    };
    let mut lines = Lines::from_iter([report.line()]);
    lines.line(format_args!(
        "signed by a key in {} ({})",
        source.key.display(),
        bundle.signature.form()
    ));
    report
        .files
        .iter()
        .for_each(|name| lines.line(format_args!("  {name}")));
    output::print(format, &lines, &report)?;
    Ok(CommandResult::Success)
}

fn pulled(source: &BundleSource) -> Result<Bundle, BundleError> {
    let bundle = with_timeout(bundle::pull(source, None))?;
    bundle.ok_or_else(|| BundleError::Missing(source.reference.to_string()))
}

fn read(folder: &Path) -> Result<UnsignedBundle, BundleError> {
    UnsignedBundle::read_layout(folder)
}

fn with_timeout<T>(work: impl Future<Output = Result<T, BundleError>>) -> Result<T, BundleError> {
    let runtime = bundle::runtime().map_err(|error| BundleError::Registry(error.to_string()))?;
    runtime.block_on(bundle::with_timeout(work))
}

/// A bundle that must be rejected gives exit code 1, and any other error exit code 2.
fn refusal_result(error: &BundleError) -> Result<CommandResult, CommandError> {
    if !error.is_refusal() {
        return Err(CommandError::Usage(error.to_string()));
    }
    output::print_error(error);
    Ok(CommandResult::Failure)
}

/// Checks that the folder contains no files.
fn check_empty(folder: &Path) -> Result<(), CommandError> {
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CommandError::Usage(format!(
            "`{}` is not empty: name another folder",
            folder.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CommandError::file("read", folder, error)),
    }
}

fn write_files(bundle: &Bundle, into: &Path) -> io::Result<()> {
    for (name, text) in &bundle.files {
        let path = into.join(name);
        fs::create_dir_all(path.parent().unwrap_or(into))?;
        fs::write(path, text)?;
    }
    Ok(())
}

// === impl BundleReport ===

impl BundleReport {
    fn new(source: &BundleSource, manifest: &BundleManifest) -> Self {
        Self {
            reference: source.reference.to_string(),
            name: manifest.name.clone(),
            sequence: manifest.sequence,
            created: manifest.created.to_string(),
            digest: manifest.digest.clone(),
            signature: None,
            files: Vec::new(),
        }
    }

    fn line(&self) -> String {
        let Self {
            reference,
            name,
            sequence,
            created,
            digest,
            ..
        } = self;
        format!("{reference}: {name}, sequence {sequence}, built {created}, {digest}")
    }
}
