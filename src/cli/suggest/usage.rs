//! The allowed requests of each user, collected from decision logs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::cli::file_jobs::is_standard_input;
use crate::cli::output::CommandError;
use crate::config::files;
use portcullis_policy::explain::logged::{LoggedAttributes, LoggedDecision};

/// The memory for the requests of all users, including the rules and roles made from them, in
/// bytes.
pub(crate) const MAX_REQUEST_BYTES: usize = 256 << 20;

/// The share of one user is 1 / this. A Role becomes too large for an API server with fewer names
/// than fit into it.
const USER_PART: usize = 8;

/// The memory for a Role and its binding: for each user and namespace, in bytes.
const ROLE_BYTES: usize = 12 << 10;

/// The memory, in addition to the strings, for a user; for a verb on a resource, or a verb on a
/// path; and for the name of an object, in bytes.
const USER_BYTES: usize = 1 << 10;
const REQUEST_BYTES: usize = 500;
const NAME_BYTES: usize = 250;

/// How many copies of each string are held: as collected, settled, in a rule and in the output.
const COPIES: usize = 6;

/// The memory that is left for requests.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    left: usize,
    user_limit: usize,
}

/// The allowed requests, by user name.
#[derive(Debug, Default)]
pub(crate) struct AllowedRequests {
    pub(crate) users: BTreeMap<String, UserUsage>,
}

/// The allowed requests of one user.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserUsage {
    pub(crate) resources: BTreeMap<UsedResource, UsedNames>,
    /// The verbs for each path.
    pub(crate) paths: BTreeMap<String, BTreeSet<String>>,
    /// The memory that is charged to the user, in bytes.
    bytes: usize,
}

/// A verb on a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsedResource {
    /// Empty for cluster-scoped requests, and those in all namespaces.
    pub(crate) namespace: String,
    pub(crate) group: String,
    /// The resource as in a rule, such as `pods/log`.
    pub(crate) resource: String,
    pub(crate) verb: String,
}

/// The names of objects in requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UsedNames {
    /// Any name, because a request had none, or there were too many names.
    Any,
    /// Only these names.
    Only(BTreeSet<String>),
}

/// Why an allowed request is not in a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OmissionReason {
    /// It was not allowed by RBAC.
    NotByRbac,
    /// It was allowed because of its selectors, which RBAC does not have.
    Selectors,
    /// It contains `*`.
    Wildcard,
    /// The user or the request is not known.
    Incomplete,
    /// The log contains only a part of it.
    Truncated,
    /// Usage only counts it by user and verb.
    Other,
    /// There is no memory left, for the user or for all.
    NoRoom,
}

/// Where a user asked for much, grant more than that.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct WideningOptions {
    /// Allow any name if a user requested more than N names with one verb [default: never]
    #[arg(long, value_name = "N")]
    pub(crate) max_names: Option<usize>,
    /// Allow all namespaces if a user made the same request in more than N of them [default: never]
    #[arg(long, value_name = "N")]
    pub(crate) max_namespaces: Option<usize>,
}

// === impl OmissionReason ===

impl OmissionReason {
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::NotByRbac => "allowed by an AuthorizationPolicy or another authorizer; `--all` includes it",
            Self::Selectors => {
                "allowed with a selector by an AuthorizationPolicy or another authorizer; RBAC knows no selectors"
            }
            Self::Wildcard => "asked for `*`, which only a rule with `*` allows",
            Self::Incomplete => "named no user, verb, resource or path",
            Self::Truncated => "cut in the log, because the line is too long",
            Self::Other => {
                "counted without the question, because one user or cluster asked too many different ones in an hour"
            }
            Self::NoRoom => {
                "more different requests than are kept of one user, or of all; `--max-names` and fewer logs make room"
            }
        }
    }
}

// === impl AllowedRequests ===

impl AllowedRequests {
    /// Adds an allowed request.
    ///
    /// # Errors
    ///
    /// Why the request is not in a suggestion.
    pub(crate) fn add(
        &mut self,
        line: &LoggedDecision<'_>,
        all: bool,
        most: WideningOptions,
        memory: &mut RequestMemory,
    ) -> Result<(), OmissionReason> {
        let asked = &line.attributes;
        let by_rbac = line
            .cause
            .as_ref()
            .is_some_and(|cause| matches!(cause.kind.as_ref(), "RoleBinding" | "ClusterRoleBinding"));
        if !by_rbac && !all {
            return Err(OmissionReason::NotByRbac);
        }
        let texts = [
            &line.user,
            &asked.verb,
            &asked.namespace,
            &asked.group,
            &asked.resource,
            &asked.subresource,
            &asked.name,
            &asked.path,
        ];
        if line.truncated && texts.iter().any(|text| text.ends_with('…')) {
            return Err(OmissionReason::Truncated);
        }
        if line.user.is_empty() || asked.verb.is_empty() || asked.resource.is_empty() && asked.path.is_empty()
        {
            return Err(OmissionReason::Incomplete);
        }
        if texts.iter().skip(1).any(|text| text.contains('*')) {
            return Err(OmissionReason::Wildcard);
        }
        if !by_rbac && (asked.field_selector.is_some() || asked.label_selector.is_some()) {
            return Err(OmissionReason::Selectors);
        }
        let user = match self.users.get_mut(line.user.as_ref()) {
            Some(user) => user,
            None if memory.take(&mut 0, USER_BYTES + COPIES * line.user.len()) => {
                self.users.entry(line.user.to_string()).or_default()
            }
            None => return Err(OmissionReason::NoRoom),
        };
        let is_kept = user.insert(asked, most.max_names.unwrap_or(usize::MAX), memory);
        is_kept.then_some(()).ok_or(OmissionReason::NoRoom)
    }
}

// === impl RequestMemory ===

impl RequestMemory {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            user_limit: bytes / USER_PART,
        }
    }

    /// Takes `bytes` for a user that has taken `before`; `false` if there is not enough memory.
    const fn take(&mut self, before: &mut usize, bytes: usize) -> bool {
        let fits = bytes <= self.left && *before + bytes <= self.user_limit;
        if fits {
            self.left -= bytes;
            *before += bytes;
        }
        fits
    }

    const fn give_back(&mut self, before: &mut usize, bytes: usize) {
        self.left += bytes;
        *before -= bytes;
    }
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self::new(MAX_REQUEST_BYTES)
    }
}

// === impl UserUsage ===

impl UserUsage {
    /// Adds a request; `false` if there is not enough memory.
    fn insert(
        &mut self,
        asked: &LoggedAttributes<'_>,
        most_names: usize,
        memory: &mut RequestMemory,
    ) -> bool {
        if asked.resource.is_empty() {
            let is_known = |verbs: &BTreeSet<String>| verbs.contains(asked.verb.as_ref());
            let bytes = REQUEST_BYTES + COPIES * (asked.path.len() + asked.verb.len());
            let is_kept = self.paths.get(asked.path.as_ref()).is_some_and(is_known)
                || memory.take(&mut self.bytes, bytes);
            if is_kept {
                let verbs = self.paths.entry(asked.path.to_string()).or_default();
                verbs.insert(asked.verb.to_string());
            }
            return is_kept;
        }
        let used = UsedResource::of(asked);
        let role_bytes = if self.has_role(&used.namespace) {
            0
        } else {
            ROLE_BYTES
        };
        let names = match self.resources.entry(used) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let bytes = role_bytes + REQUEST_BYTES + COPIES * new.key().text_bytes();
                if !memory.take(&mut self.bytes, bytes) {
                    return false;
                }
                new.insert(UsedNames::Only(BTreeSet::new()))
            }
        };
        match names {
            UsedNames::Any => true,
            UsedNames::Only(known) if known.contains(asked.name.as_ref()) => true,
            UsedNames::Only(known) if asked.name.is_empty() || known.len() >= most_names => {
                memory.give_back(&mut self.bytes, known.iter().map(|name| name_bytes(name)).sum());
                *names = UsedNames::Any;
                true
            }
            UsedNames::Only(known) => {
                let is_kept = memory.take(&mut self.bytes, name_bytes(&asked.name));
                is_kept && known.insert(asked.name.to_string())
            }
        }
    }

    /// Whether there are requests in `namespace`.
    fn has_role(&self, namespace: &str) -> bool {
        let first = UsedResource {
            namespace: namespace.to_owned(),
            group: String::new(),
            resource: String::new(),
            verb: String::new(),
        };
        let next = self.resources.range(first..).next();
        next.is_some_and(|(used, _)| used.namespace == namespace)
    }

    /// Removes requests that those in all namespaces imply. Requests in more namespaces than `most`
    /// allows are first replaced by requests in all namespaces.
    pub(crate) fn simplified(&self, most: WideningOptions) -> Self {
        let mut everywhere: BTreeMap<UsedResource, (usize, UsedNames)> = BTreeMap::new();
        for (used, names) in &self.resources {
            let entry = everywhere
                .entry(used.in_all_namespaces())
                .or_insert((0, UsedNames::Only(BTreeSet::new())));
            entry.0 += usize::from(!used.namespace.is_empty());
            entry.1.extend(names);
        }
        let mut settled = self.clone();
        let most_namespaces = most.max_namespaces.unwrap_or(usize::MAX);
        for (used, (namespaces, mut names)) in everywhere {
            if namespaces > most_namespaces {
                names.limit(most.max_names.unwrap_or(usize::MAX));
                settled.resources.insert(used, names);
            }
        }
        let cluster_wide: BTreeMap<_, _> = settled
            .resources
            .iter()
            .filter(|(used, _)| used.namespace.is_empty())
            .map(|(used, names)| (used.clone(), names.clone()))
            .collect();
        settled.resources.retain(|used, names| {
            used.namespace.is_empty()
                || cluster_wide
                    .get(&used.in_all_namespaces())
                    .is_none_or(|wide| names.retain_outside(wide))
        });
        settled
    }

    /// Splits off the sensitive requests: returns the others, and the sensitive ones.
    pub(crate) fn split(self) -> (Self, Self) {
        let (sensitive, plain) = self
            .resources
            .into_iter()
            .partition(|(used, _)| used.is_sensitive());
        let rest = Self {
            resources: plain,
            ..self
        };
        let apart = Self {
            resources: sensitive,
            ..Self::default()
        };
        (rest, apart)
    }
}

// === impl UsedResource ===

impl UsedResource {
    fn of(asked: &LoggedAttributes<'_>) -> Self {
        let slash = if asked.subresource.is_empty() { "" } else { "/" };
        Self {
            namespace: asked.namespace.to_string(),
            group: asked.group.to_string(),
            resource: format!("{}{slash}{}", asked.resource, asked.subresource),
            verb: asked.verb.to_string(),
        }
    }

    const fn text_bytes(&self) -> usize {
        self.namespace.len() + self.group.len() + self.resource.len() + self.verb.len()
    }

    fn in_all_namespaces(&self) -> Self {
        Self {
            namespace: String::new(),
            ..self.clone()
        }
    }

    /// Whether the permission lets its holder read credentials, impersonate others, or run commands
    /// where credentials are.
    fn is_sensitive(&self) -> bool {
        let verb = matches!(self.verb.as_str(), "bind" | "escalate") || self.verb.starts_with("impersonate");
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let core = self.group.is_empty()
            && matches!(
                (resource, subresource),
                ("secrets", _) | ("serviceaccounts", "token") | ("nodes", "proxy")
            );
        verb || core || matches!(subresource, "exec" | "attach")
    }
}

// === impl UsedNames ===

impl UsedNames {
    fn limit(&mut self, most: usize) {
        if matches!(self, Self::Only(names) if names.len() > most) {
            *self = Self::Any;
        }
    }

    fn extend(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Only(names), Self::Only(more)) => names.extend(more.iter().cloned()),
            _ => *self = Self::Any,
        }
    }

    /// Removes the names that `wide` contains, and returns whether any are left.
    fn retain_outside(&mut self, wide: &Self) -> bool {
        match (&mut *self, wide) {
            (_, Self::Any) => false,
            (Self::Any, Self::Only(_)) => true,
            (Self::Only(names), Self::Only(wide)) => {
                names.retain(|name| !wide.contains(name));
                !names.is_empty()
            }
        }
    }
}

const fn name_bytes(name: &str) -> usize {
    NAME_BYTES + COPIES * name.len()
}

/// The maximum length of a line in a decision log, in bytes. The gateway's lines are ten times
/// shorter.
pub(crate) const MAX_LINE_BYTES: u64 = 1 << 20;

/// A line of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TextLine<'l> {
    /// A line, including its line break.
    Whole(&'l [u8]),
    /// The last line of the file, without a line break.
    Last(&'l [u8]),
    /// A line that is longer than the maximum.
    TooLong,
}

/// Reads the decision log at `path`, or from standard input for `-`. Calls `decision` with the
/// number of each line, from 1, and its decision, and `broken` with the number of each invalid line
/// and the reason.
///
/// # Errors
///
/// The file cannot be read, or is compressed.
pub(crate) fn read_log(
    path: &Path,
    decision: &mut impl FnMut(u64, &LoggedDecision<'_>) -> Result<(), CommandError>,
    broken: &mut impl FnMut(u64, &str),
) -> Result<(), CommandError> {
    read_lines(path, MAX_LINE_BYTES, "suggest", &mut |number, line| {
        let (text, is_whole) = match line {
            TextLine::Whole(text) => (text, true),
            TextLine::Last(text) => (text, false),
            TextLine::TooLong => {
                broken(number, "longer than any line of a decision log");
                return Ok(());
            }
        };
        match serde_json::from_slice(text) {
            Ok(logged) => decision(number, &logged)?,
            Err(_) if !is_whole => broken(number, "cut off: the program ended while it wrote the line"),
            Err(error) => broken(number, &format!("not a line of a decision log: {error}")),
        }
        Ok(())
    })
}

/// Calls `each` with the number, from 1, and content of each non-empty line in the file at `path`,
/// or in standard input for `-`. `command` is named in error messages.
///
/// # Errors
///
/// The file cannot be read, or is compressed; the errors of `each`.
pub(crate) fn read_lines(
    path: &Path,
    max_line_bytes: u64,
    command: &str,
    each: &mut impl FnMut(u64, TextLine<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let unreadable = |source| CommandError::file("read", path, source);
    let mut input: Box<dyn BufRead> = if is_standard_input(path) {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::with_capacity(
            1 << 16,
            files::open(path).map_err(unreadable)?,
        ))
    };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(max_line_bytes).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        let programs: [(&[u8], &str); 2] =
            [(&[0x1f, 0x8b], "gunzip"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -d")];
        let compressed = programs.iter().find(|(magic, _)| line.starts_with(magic));
        if let (1, Some((_, program))) = (number, compressed) {
            return Err(CommandError::Usage(format!(
                "`{}` is compressed: decompress it, such as by `{program} -c FILE | portcullis {command} -`",
                path.display()
            )));
        }
        let is_whole = line.ends_with(b"\n");
        if !is_whole && line.len() as u64 == max_line_bytes {
            skip_line(&mut input).map_err(unreadable)?;
            each(number, TextLine::TooLong)?;
        } else if !line.trim_ascii().is_empty() {
            each(
                number,
                if is_whole {
                    TextLine::Whole(&line)
                } else {
                    TextLine::Last(&line)
                },
            )?;
        }
    }
    Ok(())
}

/// Skips the rest of the line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        input.consume(length);
        if end.is_some() {
            return Ok(());
        }
    }
}
