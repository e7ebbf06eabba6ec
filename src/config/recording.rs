//! `recording`: whole reviews, recorded for `portcullis replay`; `usage`: hourly counts of
//! decisions.

use std::path::PathBuf;
use std::time::Duration;

use super::manifests::ManifestPath;
use super::section::Section;
use portcullis_policy::field::FaultKind;

/// Where whole reviews are recorded, for how long, and what is removed from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingSettings {
    /// The folder of the files, and its limits.
    pub files: FolderBounds,
    /// The format of the files.
    pub format: FileFormat,
    /// What is removed in addition to what is always removed.
    pub redact: Vec<Redact>,
}

/// The format of written files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FileFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Parquet, in folders by cluster, date and hour.
    Parquet,
}

/// A folder to which files are written one after the other, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderBounds {
    /// The folder, as an absolute path.
    pub folder: PathBuf,
    /// The maximum size of all files in the folder, in bytes.
    pub max_bytes: u64,
    /// The maximum age of the content.
    pub max_age: Duration,
}

/// What is removed from objects of a resource: `resource[.group][/subresource][:.path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redact {
    /// The resource.
    pub resource: String,
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The subresource; `None` for the resource itself and all its subresources.
    pub subresource: Option<String>,
    /// The part of `object` and `oldObject` to remove; if empty, both and `options` are removed.
    pub path: Vec<PathStep>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The field or key of this name; in a list, that of every item.
    Key(String),
    /// `[*]`: every item of a list, or value of a mapping.
    Each,
}

/// The default and the minimum values of [`FolderBounds`].
struct FolderDefaults {
    default_age: Duration,
    least_age: Duration,
    least_bytes: u64,
}

/// The least size is enough for some hundred reviews.
const RECORDING_LIMITS: FolderDefaults = FolderDefaults {
    default_age: Duration::from_secs(24 * 3600),
    least_age: Duration::from_secs(60),
    least_bytes: 1 << 20,
};

/// Counts of one hour may take an eighth of the size, and those of one user a part of that.
const USAGE_LIMITS: FolderDefaults = FolderDefaults {
    default_age: Duration::from_secs(90 * 24 * 3600),
    least_age: Duration::from_secs(3600),
    least_bytes: 64 << 20,
};

const FORM: &str = "must be `resource[.group][:.path]`, such as `configmaps:.data` or \
                    `widgets.example.com:.spec.items[*].token`";

pub(crate) fn recording(root: &Section<'_>, manifests: &[ManifestPath]) -> Option<RecordingSettings> {
    let section = root.optional("recording", &["folder", "format", "maxBytes", "maxAge", "redact"])?;
    Some(RecordingSettings {
        format: file_format(&section),
        files: folder_bounds(&section, manifests, &RECORDING_LIMITS)?,
        redact: redactions(&section),
    })
}

/// `usage`: where hourly counts of decisions are written, and how long they are kept.
pub(crate) fn usage(root: &Section<'_>, manifests: &[ManifestPath]) -> Option<FolderBounds> {
    let section = root.optional("usage", &["folder", "maxBytes", "maxAge"])?;
    folder_bounds(&section, manifests, &USAGE_LIMITS)
}

/// `decisionLog` with `format: parquet`: where decisions are written, and for how long they are
/// kept.
pub(crate) fn decision_files(section: &Section<'_>, manifests: &[ManifestPath]) -> Option<FolderBounds> {
    folder_bounds(section, manifests, &USAGE_LIMITS)
}

/// `format`, by default JSON.
pub(crate) fn file_format(section: &Section<'_>) -> FileFormat {
    let formats = [("json", FileFormat::Json), ("parquet", FileFormat::Parquet)];
    section.choice("format", &formats).unwrap_or_default()
}

/// The path in `folder`, which must not overlap with manifests.
pub(crate) fn own_folder(section: &Section<'_>, manifests: &[ManifestPath]) -> Option<PathBuf> {
    let folder = section.required_path("folder", "a folder for the files")?;
    let overlaps =
        |manifest: &&ManifestPath| folder.starts_with(&manifest.path) || manifest.path.starts_with(&folder);
    if let Some(manifest) = manifests.iter().find(overlaps) {
        let message = format!(
            "these files must not be in a folder of manifests, `{}`: use another folder",
            manifest.path.display()
        );
        section.fault("folder", FaultKind::Invalid, message);
    }
    Some(folder)
}

fn folder_bounds(
    section: &Section<'_>,
    manifests: &[ManifestPath],
    limits: &FolderDefaults,
) -> Option<FolderBounds> {
    let folder = own_folder(section, manifests)?;
    let max_age = section.age("maxAge").unwrap_or(limits.default_age);
    if max_age < limits.least_age {
        let minutes = limits.least_age.as_secs() / 60;
        let message = match minutes % 60 {
            0 => format!("must be at least `{}h`", minutes / 60),
            _ => format!("must be at least `{minutes}m`"),
        };
        section.fault("maxAge", FaultKind::Invalid, message);
    }
    Some(FolderBounds {
        max_bytes: section.bytes("maxBytes", limits.least_bytes).unwrap_or(1 << 30),
        max_age,
        folder,
    })
}

fn redactions(section: &Section<'_>) -> Vec<Redact> {
    let mut redactions = Vec::new();
    for (index, text) in section.texts("redact") {
        match Redact::parse(text) {
            Ok(redact) => redactions.push(redact),
            Err(reason) => {
                let message = format!("`{text}`: {reason}; {FORM}");
                section.fault_at("redact", index, FaultKind::Invalid, message);
            }
        }
    }
    redactions
}

// === impl Redact ===

impl Redact {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (resource, path) = match text.split_once(':') {
            Some((_, "")) => return Err("there is no path after `:`"),
            Some((resource, path)) => (resource, steps(path)?),
            None => (text, Vec::new()),
        };
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (resource, None),
        };
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let is_group = group.is_empty() || group.split('.').all(is_name);
        if !is_name(resource) || !is_group || !subresource.is_none_or(is_name) {
            return Err("this is not a resource");
        }
        Ok(Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
            subresource: subresource.map(str::to_owned),
            path,
        })
    }
}

/// Whether `text` is a DNS label.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Parses a path of `.a.b`, `['a']`, `["a"]` and `[*]`.
fn steps(path: &str) -> Result<Vec<PathStep>, &'static str> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        let (step, after) = step(rest)?;
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

fn step(path: &str) -> Result<(PathStep, &str), &'static str> {
    if let Some(named) = path.strip_prefix('.') {
        let end = named.find(['.', '[']).unwrap_or(named.len());
        let (name, after) = named.split_at(end);
        let is_plain = |char: char| char.is_alphanumeric() || "_-$".contains(char);
        return match name {
            "" => Err("a field is missing after `.`"),
            "*" => Err("write `[*]` for every item or value"),
            name if name.chars().all(is_plain) => Ok((PathStep::Key(name.to_owned()), after)),
            _ => Err("write a key with other characters as `['key']`"),
        };
    }
    if let Some(after) = path.strip_prefix("[*]") {
        return Ok((PathStep::Each, after));
    }
    for (opening, closing) in [("['", "']"), ("[\"", "\"]")] {
        if let Some((key, after)) = path
            .strip_prefix(opening)
            .and_then(|keyed| keyed.split_once(closing))
            .filter(|(key, _)| !key.is_empty())
        {
            return Ok((PathStep::Key(key.to_owned()), after));
        }
    }
    Err("a path begins with `.`, and has `.field`, `['key']` and `[*]`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PathStep {
        PathStep::Key(name.to_owned())
    }

    #[test]
    fn a_redaction_names_a_resource_and_a_path() {
        let redact = |text| Redact::parse(text).unwrap();
        let secrets = redact("widgets.example.com/status:.spec.a-b['x.y/z'][*].token[\"q\"]");
        assert_eq!(
            (secrets.resource.as_str(), secrets.group.as_str()),
            ("widgets", "example.com")
        );
        assert_eq!(secrets.subresource.as_deref(), Some("status"));
        let steps = [
            key("spec"),
            key("a-b"),
            key("x.y/z"),
            PathStep::Each,
            key("token"),
            key("q"),
        ];
        assert_eq!(secrets.path, steps);
        let whole = redact("pods");
        assert_eq!((whole.group.as_str(), whole.path.len()), ("", 0));
    }

    #[test]
    fn what_is_no_redaction_is_refused() {
        for text in [
            ":.data",
            "Pods",
            "pods:",
            "pods:data",
            "pods:.",
            "pods:.a..b",
            "pods:.a[0]",
            "pods:.*",
            "pods:.a['b",
            "pods:.a['']",
            "pods:.a/b",
            "pods..apps",
            "pods/",
            "*",
        ] {
            assert!(Redact::parse(text).is_err(), "{text}");
        }
    }
}
