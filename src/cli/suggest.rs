//! `portcullis suggest`: the least RBAC that allows the requests in a decision log.
//!
//! ```text
//! log: lines ──┬▶ usage: what each user was allowed ─▶ roles and bindings for just that ─▶ report
//!          └──▶ unused: what decided nothing ─────────────────────────────────────────┘
//! ```

mod logged_rows;
mod report;
pub(crate) mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::file_jobs::FileJobs;
use super::live_policies::LiveArguments;
use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{self, PolicyFiles};
use crate::columns::{ColumnFileError, column_files};
use crate::config::{self, DEFAULT_CLUSTER};
use crate::identity::PATH_TOKEN_NAME;
use crate::usage::{RowPlace, UsageError, UsageReader, UsageRow, read_usage};
use logged_rows::{LogPart, LoggedRow, read_rows};
use portcullis_cel::Version;
use portcullis_policy::authorization::authorizer::Authorizer;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::model::Time;
use report::{Causes, DecidedTimes, LogLine, LogTotals, SuggestReport, SuggestedRoles, UnusedObjects};
use usage::{
    AllowedRequests, OmissionReason, RequestMemory, UsedNames, UsedResource, UserUsage, WideningOptions,
};

/// Suggest the least RBAC that allows the requests of a decision log.
///
/// Prints Roles, ClusterRoles and bindings that allow each user and service account what RBAC
/// allowed it according to the log, and nothing else. With `--config` or `--manifests`, also lists
/// which of their bindings, rules and policies decided nothing. A line of the log shows what the
/// API server asked, not that it happened.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Suggest {
    /// Decision logs or the files that `pack` wrote, or folders of these; `-` for standard input.
    #[arg(required_unless_present = "usage", value_name = "DECISION-LOG")]
    logs: Vec<PathBuf>,
    /// Hourly counts of one or more gateways: folders of `usage.folder`, or files in them.
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    usage: Vec<PathBuf>,
    /// Include what AuthorizationPolicies and other authorizers allowed.
    #[arg(long)]
    all: bool,
    /// Do not comment out sensitive permissions (secrets, impersonate, bind, escalate, exec …).
    #[arg(long)]
    with_sensitive: bool,
    /// Include decisions for callers with `pathToken`: users who know the token can forge reviews.
    #[arg(long)]
    with_path_token: bool,
    #[command(flatten)]
    widening: WideningOptions,
    /// The cluster whose decisions are counted [default: that of the log]
    #[arg(long)]
    cluster: Option<String>,
    /// The configuration of the gateway: also list its policies that decided nothing.
    ///
    /// With `--kubeconfig`, together with the policies of the cluster.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manifests, as files or folders: also list those that decided nothing.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
    /// The kubeconfig of the cluster: also list its RBAC objects and policies that decided nothing.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    jobs: FileJobs,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis suggest decisions.log > rbac.yaml
  portcullis suggest decisions.log --config portcullis.yaml
  portcullis suggest decisions.log --kubeconfig ~/.kube/config
  portcullis suggest packed/cluster=east --config portcullis.yaml
  portcullis suggest --usage usage --config portcullis.yaml";

/// The data that is collected from logs and usage.
#[derive(Debug, Default)]
struct CollectedLogs {
    /// The allowed requests, by cluster.
    usage: BTreeMap<String, AllowedRequests>,
    causes: BTreeMap<String, Causes>,
    left_out: BTreeMap<OmissionReason, (u64, LogLine)>,
    seen: LogTotals,
    /// How many objects and rules `causes` contains.
    objects: usize,
    /// The memory that is left for the requests of all clusters.
    memory: RequestMemory,
}

/// Collects the rows of usage files.
struct UsageCollector<'s> {
    command: &'s Suggest,
    gathered: &'s mut CollectedLogs,
    broken: usize,
}

/// The maximum number of clusters in the logs.
const MAX_CLUSTERS: usize = 1_000;

/// The maximum number of objects and rules that are kept as causes of decisions.
const MAX_OBJECTS: usize = 400_000;

/// How many clusters an error message lists.
const MAX_NAMED_CLUSTERS: usize = 10;

/// How many broken lines of a file are reported individually.
const MAX_BROKEN_LINES_SHOWN: usize = 10;

// === impl Suggest ===

impl Suggest {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let mut gathered = CollectedLogs::default();
        self.gather(&self.files()?, &mut gathered)?;
        self.gather_usage(&mut gathered)?;
        if gathered.seen.lines == 0 && gathered.seen.decisions.is_none() {
            return Err(self.nothing_read(&gathered));
        }
        let cluster = self.chosen_cluster(&gathered)?;
        let usage = gathered.usage.remove(&cluster).unwrap_or_default();
        let causes = gathered.causes.remove(&cluster).unwrap_or_default();
        let asked = self
            .config
            .as_deref()
            .map(|path| config::authorizers::load_next_to(path, Version::NEWEST))
            .unwrap_or_default();
        let unused = self
            .load_policies(&cluster)?
            .map(|loaded| UnusedObjects::of(&loaded, &cluster, &causes, &asked));
        let report = SuggestReport {
            roles: self.suggested(&usage),
            seen: gathered.seen,
            left_out: gathered.left_out,
            never_asked: call_conditions(&asked),
            used: causes.used(),
            unused,
            with_sensitive: self.with_sensitive,
        };
        output::print(format, &report.in_words(), &report.for_programs())?;
        Ok(CommandResult::Success)
    }

    /// The files on the command line, with folders replaced by their files.
    fn files(&self) -> Result<Vec<PathBuf>, CommandError> {
        let mut files = Vec::new();
        for path in &self.logs {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            let mut found = column_files(path).map_err(|source| CommandError::file("read", path, source))?;
            if found.is_empty() {
                return Err(CommandError::Usage(format!(
                    "there is no Parquet file in `{}`: for logs that are not packed, name the files",
                    path.display()
                )));
            }
            files.append(&mut found);
        }
        Ok(files)
    }

    fn gather(&self, files: &[PathBuf], gathered: &mut CollectedLogs) -> Result<(), CommandError> {
        let mut broken = 0;
        let take = |path: &Path, part| self.take_part(path, part, &mut broken, gathered);
        self.jobs.run(files, read_rows, take)
    }

    /// Adds a part of the file at `path`. `broken` counts the broken lines of the file so far.
    fn take_part(
        &self,
        path: &Path,
        part: LogPart,
        broken: &mut usize,
        gathered: &mut CollectedLogs,
    ) -> Result<(), CommandError> {
        let file = path.display();
        match part {
            LogPart::Rows(rows) => rows.iter().try_for_each(|row| self.take_row(path, row, gathered)),
            LogPart::Broken(number, why) => {
                complain_of_line(broken, format_args!("{file}:{number}"), &why);
                Ok(())
            }
            LogPart::End { lines } => {
                let broken = std::mem::take(broken);
                complain_of_more(broken, &file.to_string());
                gathered.seen.files += 1;
                gathered.seen.broken += broken;
                if lines > 0 || broken == 0 {
                    return Ok(());
                }
                Err(CommandError::Usage(format!(
                    "`{file}` is not a decision log: name the file of `decisionLog.path`"
                )))
            }
        }
    }

    fn take_row(
        &self,
        path: &Path,
        row: &LoggedRow,
        gathered: &mut CollectedLogs,
    ) -> Result<(), CommandError> {
        let line = row.decision(path)?;
        if !self.is_chosen(&line.cluster) || !self.is_counted(&line.caller, row.count, gathered) {
            return Ok(());
        }
        gathered.seen.lines += usize::try_from(row.count).unwrap_or(usize::MAX);
        let place = LogLine {
            file: path.display().to_string(),
            line: row.number,
        };
        let times = row.times.map_or([None; 2], |times| times.map(Some));
        self.take(&line, row.count, times, place, gathered)
    }

    fn gather_usage(&self, gathered: &mut CollectedLogs) -> Result<(), CommandError> {
        if self.usage.is_empty() {
            return Ok(());
        }
        let mut evidence = UsageCollector {
            command: self,
            gathered,
            broken: 0,
        };
        let files = read_usage(&self.usage, &mut evidence)?;
        let broken = evidence.broken;
        complain_of_more(broken, &policy_files::joined_paths(&self.usage));
        gathered.seen.files += files;
        gathered.seen.broken += broken;
        Ok(())
    }

    fn is_chosen(&self, cluster: &str) -> bool {
        self.cluster.as_ref().is_none_or(|chosen| chosen == cluster)
    }

    /// Whether `count` decisions for `caller` are used. Those that are not are counted.
    fn is_counted(&self, caller: &str, count: u64, gathered: &mut CollectedLogs) -> bool {
        let is_left_out = caller == PATH_TOKEN_NAME && !self.with_path_token;
        if is_left_out {
            gathered.seen.unproven += count;
        }
        !is_left_out
    }

    /// Adds `count` equal decisions, the first and the last of which are at `times`.
    fn take(
        &self,
        line: &LoggedDecision<'_>,
        count: u64,
        times: [Option<Time>; 2],
        place: LogLine,
        gathered: &mut CollectedLogs,
    ) -> Result<(), CommandError> {
        let cluster = line.cluster.to_string();
        let seen = &mut gathered.seen;
        times.into_iter().flatten().for_each(|time| seen.add_time(time));
        if gathered.causes.len() >= MAX_CLUSTERS && !gathered.causes.contains_key(&cluster) {
            return Err(CommandError::Usage(format!(
                "the logs have decisions for more than {MAX_CLUSTERS} clusters: choose one with `--cluster`"
            )));
        }
        let causes = gathered.causes.entry(cluster.clone()).or_default();
        gathered.objects += causes.add(line, DecidedTimes::new(count, times));
        if gathered.objects > MAX_OBJECTS {
            // Otherwise objects that are not kept would be reported as unused.
            return Err(CommandError::Usage(format!(
                "the logs name more than {MAX_OBJECTS} objects and rules that decided: name fewer logs"
            )));
        }
        let usage = gathered.usage.entry(cluster).or_default();
        if line.endpoint != "authorize" || line.decision != "allow" {
            return Ok(());
        }
        seen.allowed += count;
        if let Err(reason) = usage.add(line, self.all, self.widening, &mut gathered.memory) {
            gathered.left_out.entry(reason).or_insert((0, place)).0 += count;
        }
        Ok(())
    }

    fn nothing_read(&self, gathered: &CollectedLogs) -> CommandError {
        let of = self
            .cluster
            .as_ref()
            .map(|cluster| format!(" of the cluster `{cluster}`"));
        let unproven = match gathered.seen.unproven {
            0 => String::new(),
            left_out => {
                format!(
                    ", except {left_out} of callers with a path token, which `--with-path-token` includes"
                )
            }
        };
        CommandError::Usage(format!(
            "there is no decision{} in `{}`{unproven}",
            of.unwrap_or_default(),
            policy_files::joined_paths(&[self.logs.as_slice(), &self.usage].concat())
        ))
    }

    /// The cluster on the command line, or the only cluster in the logs.
    fn chosen_cluster(&self, gathered: &CollectedLogs) -> Result<String, CommandError> {
        if let Some(cluster) = &self.cluster {
            return Ok(cluster.clone());
        }
        let clusters: BTreeSet<&str> = gathered.usage.keys().map(String::as_str).collect();
        if clusters.len() > 1 {
            let more = match clusters.len().saturating_sub(MAX_NAMED_CLUSTERS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let clusters = Vec::from_iter(clusters.into_iter().take(MAX_NAMED_CLUSTERS)).join("`, `");
            return Err(CommandError::Usage(format!(
                "the logs have decisions for the clusters `{clusters}`{more}: choose one with `--cluster`"
            )));
        }
        let only = clusters.into_iter().next();
        Ok(only.unwrap_or(DEFAULT_CLUSTER).to_owned())
    }

    /// The policies to check for unused objects; `None` if none are named.
    fn load_policies(&self, cluster: &str) -> Result<Option<LoadedPolicies>, CommandError> {
        let files = PolicyFiles {
            config: self.config.clone(),
            manifests: self.manifests.clone(),
            cluster: cluster.to_owned(),
            live: LiveArguments {
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
            },
        };
        if !files.names_files() && !files.live.is_named() {
            return Ok(None);
        }
        let loaded = files.load_with_default_roles()?;
        files.warn_of_unknown_rbac(&loaded);
        Ok(Some(loaded))
    }

    fn suggested(&self, usage: &AllowedRequests) -> SuggestedRoles {
        let mut names = RoleNames::default();
        let mut suggested = SuggestedRoles::default();
        for (user, used) in &usage.users {
            let name = names.name(user);
            let (plain, sensitive) = used.simplified(self.widening).split();
            let objects = role_objects(user, &format!("suggested:{name}"), &plain);
            suggested.objects.extend(objects);
            let apart = role_objects(user, &format!("suggested-sensitive:{name}"), &sensitive);
            suggested.sensitive.extend(apart);
        }
        suggested
    }
}

// === impl UsageCollector ===

impl UsageReader for UsageCollector<'_> {
    type Error = CommandError;

    fn row(&mut self, row: UsageRow<'_>, place: RowPlace<'_>) -> Result<(), CommandError> {
        if !self.command.is_chosen(&row.cluster) {
            return Ok(());
        }
        if !self.command.is_counted(&row.caller, row.count, self.gathered) {
            return Ok(());
        }
        *self.gathered.seen.decisions.get_or_insert(0) += row.count;
        let place = LogLine {
            file: place.file.display().to_string(),
            line: place.line,
        };
        let (count, first, is_other) = (row.count, row.first.clone(), row.other);
        let logged = row.into_logged();
        if is_other && logged.decision == "allow" {
            let left_out = self.gathered.left_out.entry(OmissionReason::Other);
            left_out.or_insert((0, place)).0 += count;
            return Ok(());
        }
        let times = [&first, &logged.time].map(|time| Time::parse(time));
        self.command.take(&logged, count, times, place, self.gathered)
    }

    fn broken(&mut self, place: RowPlace<'_>, why: &str) {
        let at = format_args!("{}:{}", place.file.display(), place.line);
        complain_of_line(&mut self.broken, at, why);
    }
}

impl From<ColumnFileError> for CommandError {
    fn from(error: ColumnFileError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<UsageError> for CommandError {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Unreadable { path, source } => Self::file("read", &path, source),
            error => Self::Usage(error.to_string()),
        }
    }
}

fn complain_of_line(broken: &mut usize, place: std::fmt::Arguments<'_>, why: &str) {
    *broken += 1;
    if *broken <= MAX_BROKEN_LINES_SHOWN {
        output::print_error(format_args!("warning: {place}: skipped: {why}"));
    }
}

fn complain_of_more(broken: usize, file: &str) {
    if broken > MAX_BROKEN_LINES_SHOWN {
        let more = broken - MAX_BROKEN_LINES_SHOWN;
        output::print_error(format_args!("warning: {file}: {more} more lines were skipped"));
    }
}

/// The conditions under which the API server calls the gateway at all.
fn call_conditions(asked: &[Authorizer]) -> Vec<String> {
    let conditions = asked.iter().flat_map(|authorizer| &authorizer.match_conditions);
    let on_one_line = |expression: &str| expression.split_whitespace().collect::<Vec<_>>().join(" ");
    conditions
        .map(|condition| on_one_line(condition.expression()))
        .collect()
}

const GROUP: &str = "rbac.authorization.k8s.io";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The maximum length of the part of an object's name that is taken from a user's name, in
/// characters.
const LONGEST_NAME: usize = 200;

/// Assigns each user a unique name for its roles.
#[derive(Debug, Default)]
pub(crate) struct RoleNames {
    taken: BTreeSet<String>,
    /// For each beginning of a name, the number to try next.
    next: HashMap<String, usize>,
    /// How many names were tried.
    #[cfg(test)]
    tried: usize,
}

// === impl RoleNames ===

impl RoleNames {
    /// A name for the roles of `user`, without `/` and `%`, which names of objects must not
    /// contain.
    pub(crate) fn name(&mut self, user: &str) -> String {
        let short = user.strip_prefix(SERVICE_ACCOUNT).unwrap_or(user);
        let allowed = |character: char| !character.is_control() && !matches!(character, '/' | '%');
        let base: String = short
            .chars()
            .map(|character| if allowed(character) { character } else { '-' })
            .take(LONGEST_NAME)
            .collect();
        let next = self.next.entry(base.clone()).or_insert(1);
        loop {
            #[cfg(test)]
            {
                self.tried += 1;
            }
            let name = match *next {
                1 => base.clone(),
                number => format!("{base}-{number}"),
            };
            *next += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// The objects that allow `user` what `usage` contains: a Role for each namespace, a ClusterRole
/// for all namespaces, and a binding for each.
fn role_objects(user: &str, name: &str, usage: &UserUsage) -> Vec<Value> {
    let mut namespaces: BTreeMap<&str, Vec<(&UsedResource, &UsedNames)>> = BTreeMap::new();
    for (used, names) in &usage.resources {
        namespaces.entry(&used.namespace).or_default().push((used, names));
    }
    if !usage.paths.is_empty() {
        namespaces.entry("").or_default();
    }
    let mut objects = Vec::new();
    for (namespace, used) in namespaces {
        let mut rules = resource_rules(&used);
        if namespace.is_empty() {
            rules.extend(path_rules(&usage.paths));
        }
        objects.extend(role_and_binding(namespace, name, rules, &subject(user)));
    }
    objects
}

fn role_and_binding(namespace: &str, name: &str, rules: Vec<Value>, subject: &Value) -> [Value; 2] {
    let (role, binding, metadata) = if namespace.is_empty() {
        ("ClusterRole", "ClusterRoleBinding", json!({"name": name}))
    } else {
        let metadata = json!({"name": name, "namespace": namespace});
        ("Role", "RoleBinding", metadata)
    };
    let api_version = format!("{GROUP}/v1");
    [
        json!({"apiVersion": api_version, "kind": role, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version,
            "kind": binding,
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": role, "name": name},
            "subjects": [subject],
        }),
    ]
}

/// The user itself: a group would also grant access to its other members.
fn subject(user: &str) -> Value {
    let account = user
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        _ => json!({"apiGroup": GROUP, "kind": "User", "name": user}),
    }
}

/// The fewest rules that allow exactly `used`. Verbs of a resource with the same names share a
/// rule, then resources of a group with the same verbs and names, then groups.
fn resource_rules(used: &[(&UsedResource, &UsedNames)]) -> Vec<Value> {
    let mut verbs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (used, names) in used {
        let key = (used.group.as_str(), used.resource.as_str(), *names);
        verbs.entry(key).or_default().insert(&used.verb);
    }
    let mut resources: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for ((group, resource, names), verbs) in verbs {
        let key = (group, verbs, names);
        resources.entry(key).or_default().insert(resource);
    }
    let mut groups: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for ((group, verbs, names), resources) in resources {
        let key = (resources, verbs, names);
        groups.entry(key).or_default().insert(group);
    }
    let mut rules = Vec::new();
    for ((resources, verbs, names), groups) in groups {
        let mut rule = json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        if let (UsedNames::Only(names), Some(rule)) = (names, rule.as_object_mut()) {
            rule.insert("resourceNames".to_owned(), json!(names));
        }
        rules.push(rule);
    }
    rules
}

fn path_rules(paths: &BTreeMap<String, BTreeSet<String>>) -> Vec<Value> {
    let mut rules: BTreeMap<&BTreeSet<String>, Vec<&str>> = BTreeMap::new();
    for (path, verbs) in paths {
        rules.entry(verbs).or_default().push(path);
    }
    let rule = |(verbs, paths)| json!({"nonResourceURLs": paths, "verbs": verbs});
    rules.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests;
