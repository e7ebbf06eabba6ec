//! `recording`: whole reviews, kept for `portcullis replay`.

use std::path::PathBuf;
use std::time::Duration;

use super::manifests::ManifestPath;
use super::section::Section;
use portcullis_policy::field::FaultKind;

/// Where whole reviews are written, how long they are kept, and what is removed from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingSettings {
    /// The folder, as an absolute path.
    pub folder: PathBuf,
    /// How many bytes all files of the folder may take.
    pub max_bytes: u64,
    /// How old a review may become there.
    pub max_age: Duration,
    /// What is removed besides what always is.
    pub redact: Vec<Redact>,
}

/// What is removed from the objects of a resource: `resource[.group][/subresource][:.path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redact {
    /// The resource.
    pub resource: String,
    /// Its API group; empty for the core group.
    pub group: String,
    /// Its subresource; `None` for the resource and all of them.
    pub subresource: Option<String>,
    /// What of `object` and `oldObject`; empty for all of them, and of `options`.
    pub path: Vec<PathStep>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The field or key of this name; of a list, of each item.
    Key(String),
    /// `[*]`: every item or value.
    Each,
}

/// The least that `maxBytes` may be: some hundred reviews.
const LEAST_BYTES: u64 = 1 << 20;

/// The least that `maxAge` may be.
const LEAST_AGE: Duration = Duration::from_secs(60);

const FORM: &str = "must be `resource[.group][:.path]`, such as `configmaps:.data` or \
                    `widgets.example.com:.spec.items[*].token`";

pub(crate) fn recording(root: &Section<'_>, manifests: &[ManifestPath]) -> Option<RecordingSettings> {
    let section = root.optional("recording", &["folder", "maxBytes", "maxAge", "redact"])?;
    let folder = section.required_path("folder", "a folder for the files")?;
    for manifest in manifests {
        if folder.starts_with(&manifest.path) || manifest.path.starts_with(&folder) {
            let message = format!(
                "recordings do not go where manifests are read from, `{}`: use another folder",
                manifest.path.display()
            );
            section.fault("folder", FaultKind::Invalid, message);
            break;
        }
    }
    let max_age = section
        .duration("maxAge")
        .unwrap_or(Duration::from_secs(24 * 3600));
    if max_age < LEAST_AGE {
        section.fault("maxAge", FaultKind::Invalid, "must be at least `1m`");
    }
    Some(RecordingSettings {
        max_bytes: section.bytes("maxBytes", LEAST_BYTES).unwrap_or(1 << 30),
        max_age,
        redact: redactions(&section),
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
            return Err("this is no resource");
        }
        Ok(Self {
            resource: resource.to_owned(),
            group: group.to_owned(),
            subresource: subresource.map(str::to_owned),
            path,
        })
    }
}

/// Whether it is a label of a DNS name.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// `.a.b`, `['a']`, `["a"]`, `[*]`.
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
