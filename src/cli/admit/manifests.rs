//! `-f` of `admit`, and what is said of its objects.

use std::path::Path;

use crate::cli::{Error, authorize};
use portcullis_policy::document::Document;
use portcullis_policy::engine::admission::Operation;
use portcullis_policy::explain::manifests::{ADD_DEFINITION, ManifestRequest, ReviewsOfManifests};
use portcullis_policy::explain::objects;

/// `-f`, and what is done with the objects in it.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ManifestArguments {
    /// Plain manifests in YAML or JSON, `-` for standard input: each is put into a review.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<std::path::PathBuf>,
    /// What is done with the objects of `-f` [default: CREATE]
    #[arg(long, value_enum, ignore_case = true)]
    operation: Option<OperationArgument>,
    /// The objects of `-f` as they were before; for UPDATE.
    #[arg(long, value_name = "FILE")]
    old: Option<std::path::PathBuf>,
    /// The user who does it [default: system:admin of the groups system:masters and system:authenticated]
    #[arg(long)]
    user: Option<String>,
    /// A group of the user; repeat for each.
    #[arg(long = "group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    /// The subresource that is written, such as `status`.
    #[arg(long, value_name = "NAME")]
    subresource: Option<String>,
    /// The resource of the objects, where their kind does not tell.
    #[arg(long, value_name = "RESOURCE[.GROUP]")]
    resource: Option<String>,
    /// The namespace of objects that name none [default: default]
    #[arg(short, long)]
    namespace: Option<String>,
    /// As for a request that is not to be stored.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
enum OperationArgument {
    /// The objects are new.
    Create,
    /// They replace those of `--old`.
    Update,
    /// They are deleted.
    Delete,
    /// They are options of a connection, such as PodExecOptions.
    Connect,
}

// === impl ManifestArguments ===

impl ManifestArguments {
    /// A review of each object in `-f`. `definitions` are looked for only where a kind is
    /// not known.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or an object cannot be put into a review.
    pub(crate) fn reviews(
        &self,
        path: &Path,
        definitions: impl FnOnce() -> Vec<Document>,
    ) -> Result<ReviewsOfManifests, Error> {
        let objects = read(path)?;
        let old = match (self.operation, &self.old) {
            (Some(OperationArgument::Update), Some(old)) => read(old)?,
            (Some(OperationArgument::Update), None) => {
                let message = "an UPDATE needs the objects as they were before: add `--old FILE`";
                return Err(Error::Usage(message.to_owned()));
            }
            (_, Some(_)) => {
                let message = "`--old` is for `--operation UPDATE`; of a DELETE, `-f` has the objects";
                return Err(Error::Usage(message.to_owned()));
            }
            (_, None) => Vec::new(),
        };
        let reviews = self.request().reviews(&objects, &old, definitions);
        let mut found = reviews.map_err(|faults| Error::Faulty {
            path: path.display().to_string(),
            faults,
        })?;
        if found.reviews.is_empty() {
            return Err(Error::Usage(format!(
                "there is no manifest in `{}`",
                path.display()
            )));
        }
        for note in found
            .notes
            .iter_mut()
            .filter(|note| note.ends_with(ADD_DEFINITION))
        {
            note.push_str(", or name it with `--resource`");
        }
        Ok(found)
    }

    /// Whether something is said of the objects of `-f`.
    pub(crate) const fn is_any_named(&self) -> bool {
        let Self {
            user, operation, old, ..
        } = self;
        let is_named = self.subresource.is_some() || self.resource.is_some() || self.namespace.is_some();
        is_named || user.is_some() || operation.is_some() || old.is_some() || self.dry_run
    }

    fn request(&self) -> ManifestRequest {
        ManifestRequest {
            operation: self.operation.map(OperationArgument::operation),
            user: self.user.clone().map(|user| (user, self.groups.clone())),
            subresource: self.subresource.clone().unwrap_or_default(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            dry_run: self.dry_run,
            default_namespace: None,
        }
    }
}

// === impl OperationArgument ===

impl OperationArgument {
    const fn operation(self) -> Operation {
        match self {
            Self::Create => Operation::Create,
            Self::Update => Operation::Update,
            Self::Delete => Operation::Delete,
            Self::Connect => Operation::Connect,
        }
    }
}

/// Every object of a file, lists taken apart.
fn read(path: &Path) -> Result<Vec<Document>, Error> {
    let bytes = authorize::read(path)?;
    let invalid = |error| Error::file("read", path, std::io::Error::other(error));
    let text = String::from_utf8(bytes).map_err(invalid)?;
    let path = path.display().to_string();
    objects::read(&path, text).map_err(|faults| Error::Faulty { path, faults })
}
