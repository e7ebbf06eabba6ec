//! What each user was allowed, gathered from decision logs line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::cli::output::CommandError;
use crate::config::files;
use portcullis_policy::explain::logged::LoggedDecision;

/// The most different requests that are kept in memory.
pub(crate) const MAX_REQUESTS: usize = 1_000_000;

/// What users were allowed, by their names.
#[derive(Debug, Default)]
pub(crate) struct AllowedRequests {
    pub(crate) users: BTreeMap<String, UserUsage>,
    /// How many different requests that are.
    requests: usize,
}

/// What one user was allowed.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserUsage {
    pub(crate) resources: BTreeMap<UsedResource, UsedNames>,
    /// Paths, with the verbs of each.
    pub(crate) paths: BTreeMap<String, BTreeSet<String>>,
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
        self.insert(line, most.max_names.unwrap_or(usize::MAX));
        Ok(())
    }

    fn insert(&mut self, line: &LoggedDecision<'_>, most_names: usize) {
        let asked = &line.attributes;
        if !self.users.contains_key(line.user.as_ref()) {
            self.users.insert(line.user.to_string(), UserUsage::default());
        }
        let Some(user) = self.users.get_mut(line.user.as_ref()) else {
            return;
        };
        let is_new = if asked.resource.is_empty() {
            let verbs = user.paths.entry(asked.path.to_string()).or_default();
            verbs.insert(asked.verb.to_string())
        } else {
            let slash = if asked.subresource.is_empty() { "" } else { "/" };
            let used = UsedResource {
                namespace: asked.namespace.to_string(),
                group: asked.group.to_string(),
                resource: format!("{}{slash}{}", asked.resource, asked.subresource),
                verb: asked.verb.to_string(),
            };
            let names = user
                .resources
                .entry(used)
                .or_insert(UsedNames::Only(BTreeSet::new()));
            names.add(&asked.name, most_names)
        };
        self.requests += usize::from(is_new);
    }

    /// Whether there are more different requests than are kept.
    pub(crate) const fn is_full(&self) -> bool {
        self.requests > MAX_REQUESTS
    }
}

// === impl UserUsage ===

impl UserUsage {
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
            paths: self.paths,
        };
        let apart = Self {
            resources: sensitive,
            paths: BTreeMap::new(),
        };
        (rest, apart)
    }
}

// === impl UsedResource ===

impl UsedResource {
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
    /// Adds a name; empty: a request that has none. Whether it is new.
    fn add(&mut self, name: &str, most: usize) -> bool {
        match self {
            Self::Any => false,
            _ if name.is_empty() => {
                *self = Self::Any;
                true
            }
            Self::Only(names) => {
                let is_new = !names.contains(name) && names.insert(name.to_owned());
                self.limit(most);
                is_new
            }
        }
    }

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

/// The longest line that is read. The gateway writes none of a tenth of this.
const MAX_LINE_BYTES: u64 = 1 << 20;

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
        let read = (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        if number == 1 && line.starts_with(&[0x1f, 0x8b]) {
            return Err(CommandError::Usage(format!(
                "`{}` is compressed: decompress it, such as by `gunzip -c FILE | portcullis suggest -`",
                path.display()
            )));
        }
        let is_whole = line.ends_with(b"\n");
        if !is_whole && line.len() as u64 == MAX_LINE_BYTES {
            skip_line(&mut input).map_err(unreadable)?;
            broken(number, "longer than any line of a decision log");
        } else if !line.trim_ascii().is_empty() {
            match serde_json::from_slice(&line) {
                Ok(logged) => decision(number, &logged)?,
                Err(_) if !is_whole => broken(number, "cut off: the program ended while it wrote the line"),
                Err(error) => broken(number, &format!("not a line of a decision log: {error}")),
            }
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
