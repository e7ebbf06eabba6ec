//! What each user was allowed, gathered from decision logs line by line.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::cli::output::CommandError;
use crate::config::files;
use portcullis_policy::explain::logged::{LoggedAttributes, LoggedDecision};

/// The memory for the requests of all users, with what is made of them: rules, roles and their text.
pub(crate) const MAX_REQUEST_BYTES: usize = 256 << 20;

/// The part of it that one user may take: 1 / this. A Role of fewer names is too large for an API server.
const USER_PART: usize = 8;

/// What a namespace of a user takes, as a Role and its binding.
const ROLE_BYTES: usize = 12 << 10;

/// What a user takes besides its name; what a verb on a resource, a path with a verb, or the name of an object
/// takes besides their texts.
const USER_BYTES: usize = 1 << 10;
const REQUEST_BYTES: usize = 500;
const NAME_BYTES: usize = 250;

/// How often each text is held: gathered, settled, in a rule and in what is printed.
const COPIES: usize = 6;

/// The memory that requests may still take.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    left: usize,
    of_user: usize,
}

/// What users were allowed, by their names.
#[derive(Debug, Default)]
pub(crate) struct AllowedRequests {
    pub(crate) users: BTreeMap<String, UserUsage>,
}

/// What one user was allowed.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserUsage {
    pub(crate) resources: BTreeMap<UsedResource, UsedNames>,
    /// Paths, with the verbs of each.
    pub(crate) paths: BTreeMap<String, BTreeSet<String>>,
    /// What it took of the memory.
    bytes: usize,
}

/// One verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsedResource {
    /// Empty: cluster-scoped, or all namespaces.
    pub(crate) namespace: String,
    pub(crate) group: String,
    /// As a rule names it, such as `pods/log`.
    pub(crate) resource: String,
    pub(crate) verb: String,
}

/// The names of objects that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UsedNames {
    /// Any: a request named none, or too many were named.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

/// Why an allowed request has no place in a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum LeftOut {
    /// Something else than RBAC allowed it.
    NotByRbac,
    /// It was allowed for its selectors, and RBAC knows none.
    Selectors,
    /// It asks for `*`.
    Wildcard,
    /// Nothing says who asked, or for what.
    Incomplete,
    /// The log cut what was asked.
    Truncated,
    /// Usage counts it by user and verb alone.
    Other,
    /// Its user, or all together, asked for more than is kept.
    NoRoom,
}

/// Where a user asked for much, grant more than that.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct WideningOptions {
    /// Where a user asked for more than N names with one verb, allow any name [default: never]
    #[arg(long, value_name = "N")]
    pub(crate) max_names: Option<usize>,
    /// Where a user asked the same in more than N namespaces, allow it in all [default: never]
    #[arg(long, value_name = "N")]
    pub(crate) max_namespaces: Option<usize>,
}

// === impl LeftOut ===

impl LeftOut {
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::NotByRbac => "allowed by an AuthorizationPolicy or another authorizer; `--all` includes it",
            Self::Selectors => {
                "allowed with a selector by an AuthorizationPolicy or another authorizer; RBAC knows no selectors"
            }
            Self::Wildcard => "asked for `*`, which only a rule with `*` allows",
            Self::Incomplete => "named no user, verb, resource or path",
            Self::Truncated => "cut in the log, because their text is too long",
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
    /// Adds what an allowed request asked for.
    ///
    /// # Errors
    ///
    /// Why it cannot be suggested, or is not to be.
    pub(crate) fn add(
        &mut self,
        line: &LoggedDecision<'_>,
        all: bool,
        most: WideningOptions,
        memory: &mut RequestMemory,
    ) -> Result<(), LeftOut> {
        let asked = &line.attributes;
        let by_rbac = line
            .cause
            .as_ref()
            .is_some_and(|cause| matches!(cause.kind.as_ref(), "RoleBinding" | "ClusterRoleBinding"));
        if !by_rbac && !all {
            return Err(LeftOut::NotByRbac);
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
            return Err(LeftOut::Truncated);
        }
        if line.user.is_empty() || asked.verb.is_empty() || asked.resource.is_empty() && asked.path.is_empty()
        {
            return Err(LeftOut::Incomplete);
        }
        if texts.iter().skip(1).any(|text| text.contains('*')) {
            return Err(LeftOut::Wildcard);
        }
        if !by_rbac && (asked.field_selector.is_some() || asked.label_selector.is_some()) {
            return Err(LeftOut::Selectors);
        }
        let user = match self.users.get_mut(line.user.as_ref()) {
            Some(user) => user,
            None if memory.take(&mut 0, USER_BYTES + COPIES * line.user.len()) => {
                self.users.entry(line.user.to_string()).or_default()
            }
            None => return Err(LeftOut::NoRoom),
        };
        let is_kept = user.insert(asked, most.max_names.unwrap_or(usize::MAX), memory);
        is_kept.then_some(()).ok_or(LeftOut::NoRoom)
    }
}

// === impl RequestMemory ===

impl RequestMemory {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            of_user: bytes / USER_PART,
        }
    }

    /// Takes so many bytes for a user that has taken `before`; `false` where there is no room.
    const fn take(&mut self, before: &mut usize, bytes: usize) -> bool {
        let fits = bytes <= self.left && *before + bytes <= self.of_user;
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
    /// Keeps what was asked for; `false` where there is no room for it.
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

    /// Whether something is kept of this namespace.
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

    /// Without what its own requests in all namespaces imply; what was asked in more namespaces
    /// than `most` is taken to be asked in all.
    pub(crate) fn settled(&self, most: WideningOptions) -> Self {
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

    /// What is sensitive, apart from all the rest.
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

    /// Whether who may do it can read credentials, become somebody else, or run something where
    /// these are.
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

    /// Takes away the names that `wide` has; whether something is left.
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

/// The longest line of a decision log that is read. The gateway writes none of a tenth of this.
pub(crate) const MAX_LINE_BYTES: u64 = 1 << 20;

/// A line of a file that is read line by line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TextLine<'l> {
    /// With its line break.
    Whole(&'l [u8]),
    /// The last of the file, which has none.
    Last(&'l [u8]),
    /// One that is longer than is read.
    TooLong,
}

/// What becomes of each line of the file at `path`, or of standard input for `-`: `decision` gets
/// its number, from 1, and what it says, `broken` that of a line that says nothing, and why.
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

/// Calls `each` with each line of the file at `path`, or of standard input for `-`, that is not empty, and
/// its number, from 1. `command` reads it.
///
/// # Errors
///
/// The file cannot be read, or is compressed; those of `each`.
pub(crate) fn read_lines(
    path: &Path,
    max_line_bytes: u64,
    command: &str,
    each: &mut impl FnMut(u64, TextLine<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let unreadable = |source| CommandError::file("read", path, source);
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
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

/// Reads to the end of the line, and keeps nothing of it.
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
