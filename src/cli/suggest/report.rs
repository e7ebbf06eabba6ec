//! The output of `suggest`: manifests with remarks, or JSON.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::usage::OmissionReason;
use portcullis_policy::authorization::authorizer::Authorizer;
use portcullis_policy::authorization::{Binding, PolicySet, RoleKind, Subject, SubjectKind};
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};
use portcullis_policy::explain::{Lines, LoadedPolicies};
use portcullis_policy::model::Time;
use portcullis_policy::{document, manifest};

/// The report.
pub(crate) struct SuggestReport {
    pub(crate) roles: SuggestedRoles,
    pub(crate) seen: LogTotals,
    pub(crate) left_out: BTreeMap<OmissionReason, (u64, LogLine)>,
    /// The `matchConditions` of the API server's authorization webhooks, if they are known.
    pub(crate) never_asked: Vec<String>,
    /// The objects and rules that caused decisions.
    pub(crate) used: Vec<UsedObject>,
    pub(crate) unused: Option<UnusedObjects>,
    /// Whether sensitive roles are printed like the others, instead of as comments.
    pub(crate) with_sensitive: bool,
}

/// Suggested roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct SuggestedRoles {
    pub(crate) objects: Vec<Value>,
    /// The roles and bindings that a person must review.
    pub(crate) sensitive: Vec<Value>,
}

/// What was read.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LogTotals {
    pub(crate) files: usize,
    pub(crate) lines: usize,
    /// The number of decisions in usage files, if any were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decisions: Option<u64>,
    /// The number of lines that could not be read.
    pub(crate) broken: usize,
    /// The number of decisions for callers with a path token, which were left out.
    #[serde(rename = "pathToken")]
    pub(crate) unproven: u64,
    /// The number of allowed requests, whatever allowed them.
    pub(crate) allowed: u64,
    /// The times of the first and the last decision.
    #[serde(serialize_with = "in_utc")]
    pub(crate) from: Option<Time>,
    #[serde(serialize_with = "in_utc")]
    pub(crate) to: Option<Time>,
}

/// A line of a file.
#[derive(Debug, Serialize)]
pub(crate) struct LogLine {
    pub(crate) file: String,
    pub(crate) line: u64,
}

const QUESTIONS: &str = "\
# Each line of the log is a question that the API server asked, not something that was done: a
# request may have failed later, and `kubectl auth can-i` asks too. What somebody needs but did not
# do in that time is missing here.
";

/// What is always excluded, if the AuthorizationConfiguration is unknown.
const UNSEEN: &str = "\
# The API server never asks about system:masters, nor about those whom its
# AuthorizationConfiguration leaves out (as `portcullis init` writes it: nodes, the API server
# itself, kube-controller-manager, kube-scheduler and the service accounts of kube-system). They
# are in no log, and keep what they have.
";

const NEVER_ASKED: &str = "\
# The API server never asks about system:masters, and only if all of these hold. Users who
# are left out are in no log, and keep what they have:
";

const NOTHING: &str = "\
# Nothing to suggest: RBAC allowed nothing in the log. A gateway logs what RBAC allows only if it
# has the RBAC objects: let it watch the cluster (`portcullis init DIR --watch`).
";

const SENSITIVE: &str = "\
# Sensitive: these permissions allow reading credentials or becoming somebody else. These are
# comments; take away the `# ` of those that are needed.
";

// === impl LogTotals ===

impl LogTotals {
    /// Adds the time of a line.
    pub(crate) fn add_time(&mut self, time: Time) {
        self.from = Some(self.from.map_or(time, |from| from.min(time)));
        self.to = Some(self.to.map_or(time, |to| to.max(time)));
    }

    /// A description of what was read.
    fn in_words(&self) -> String {
        let lines = format!("{} lines of decision logs", self.lines);
        match self.decisions {
            None => lines,
            Some(decisions) if self.lines == 0 => format!("{decisions} decisions that usage counts"),
            Some(decisions) => format!("{lines} and {decisions} decisions that usage counts"),
        }
    }

    fn period(&self) -> String {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("from {from} to {to}"),
            _ => "no time".to_owned(),
        }
    }
}

// === impl SuggestReport ===

impl SuggestReport {
    /// The report as a YAML stream, which can be loaded as it is.
    pub(crate) fn in_words(&self) -> Lines {
        let mut lines = self.heading();
        self.roles
            .objects
            .iter()
            .for_each(|object| document(&mut lines, "", object));
        if !self.roles.sensitive.is_empty() && !self.with_sensitive {
            lines.line("");
            lines.each("", SENSITIVE);
        }
        let before = if self.with_sensitive { "" } else { "# " };
        let sensitive = self.roles.sensitive.iter();
        sensitive.for_each(|object| document(&mut lines, before, object));
        if let Some(unused) = &self.unused {
            self.unused_in_words(unused, &mut lines);
        }
        lines
    }

    fn heading(&self) -> Lines {
        let seen = &self.seen;
        let mut lines = Lines::from_iter([
            format!(
                "# Suggested from {}, {} of which allow a request,",
                seen.in_words(),
                seen.allowed
            ),
            format!("# {}.", seen.period()),
        ]);
        if seen.unproven > 0 {
            lines.line(format_args!(
                "# Left out ({}): decisions for callers with a path token (`--with-path-token` counts them).",
                seen.unproven
            ));
        }
        lines.each("", QUESTIONS);
        lines.each(
            "",
            if self.never_asked.is_empty() {
                UNSEEN
            } else {
                NEVER_ASKED
            },
        );
        lines.each("#   ", &self.never_asked.join("\n"));
        for (reason, (count, first)) in &self.left_out {
            lines.line(format_args!(
                "# Left out ({count}, the first at {}:{}): {}.",
                first.file,
                first.line,
                reason.in_words()
            ));
        }
        if self.roles.objects.is_empty() && self.roles.sensitive.is_empty() {
            lines.each("", NOTHING);
        }
        lines
    }

    fn unused_in_words(&self, unused: &UnusedObjects, lines: &mut Lines) {
        lines.line("");
        lines.line("# What decided no request of the log,");
        lines.line(format_args!("# {}.", self.seen.period()));
        lines.line(
            "# Policies in Shadow count as if they decided. If several objects allow the same, one of them \
            decides.",
        );
        let of = &unused.coverage;
        lines.line(format_args!(
            "# {} of {} bindings and policies decided something, and {} of their {} rules.",
            of.used_objects, of.objects, of.used_rules, of.rules
        ));
        for object in &unused.objects {
            lines.line(format_args!("#   {object}"));
        }
        for rule in &unused.rules {
            let of = rule.role.as_ref().map(|role| format!(" of {role}"));
            let of = of.unwrap_or_default();
            lines.line(format_args!("#   {}, rule {}{of}", rule.object, rule.rule));
        }
        if unused.objects.is_empty() && unused.rules.is_empty() {
            lines.line("#   nothing: all of them did");
        }
        if !unused.unseen.is_empty() {
            lines.line("# Unseen, so nothing is known of their use:");
        }
        for unseen in &unused.unseen {
            lines.line(format_args!(
                "#   {}: the API server never asks about {}",
                unseen.object, unseen.subject
            ));
        }
    }

    pub(crate) fn for_programs(&self) -> Value {
        let left_out: Vec<Value> = self
            .left_out
            .iter()
            .map(|(reason, (lines, first))| json!({"reason": reason, "lines": lines, "first": first}))
            .collect();
        json!({
            "objects": self.roles.objects,
            "sensitive": self.roles.sensitive,
            "seen": self.seen,
            "leftOut": left_out,
            "neverAsked": self.never_asked,
            "used": self.used,
            "unused": self.unused,
        })
    }
}

fn document(lines: &mut Lines, before: &str, object: &Value) {
    lines.line(format_args!("{before}---"));
    lines.each(before, &document::to_yaml(object));
}

// The policies in force that did not cause any decision in the logs.

/// An object counts as several if its name is longer than this, in bytes.
const LONG_NAME_BYTES: usize = 512;

/// The objects that caused decisions in the logs, by kind, namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Causes(BTreeMap<(String, String, String), CauseUse>);

/// How often an object, and each of its rules, caused decisions.
#[derive(Debug, Default)]
struct CauseUse {
    decided: DecidedTimes,
    rules: BTreeMap<usize, DecidedTimes>,
}

/// A number of decisions, with the times of the first and the last one.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct DecidedTimes {
    count: u64,
    #[serde(serialize_with = "in_utc")]
    first: Option<Time>,
    #[serde(serialize_with = "in_utc")]
    last: Option<Time>,
}

fn in_utc<S: Serializer>(time: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.to_string()).serialize(serializer)
}

/// An object or rule that caused decisions.
#[derive(Debug, Serialize)]
pub(crate) struct UsedObject {
    object: String,
    /// The index of the rule, from 0; absent in the entry of the whole object.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
    #[serde(flatten)]
    decided: DecidedTimes,
}

/// The objects and rules that did not cause any decision.
#[derive(Debug, Default, Serialize)]
pub(crate) struct UnusedObjects {
    /// Bindings and policies that did not cause any decision.
    pub(crate) objects: Vec<String>,
    /// Unused rules of objects with other rules that caused decisions.
    pub(crate) rules: Vec<UnusedRule>,
    /// Bindings whose use the logs cannot show, with the reason.
    pub(crate) unseen: Vec<UnobservableBinding>,
    /// How many objects and rules exist, and how many of them caused decisions.
    pub(crate) coverage: UseCoverage,
}

/// How much of the policies caused decisions. Excludes bindings about which the API server never
/// asks.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UseCoverage {
    objects: usize,
    used_objects: usize,
    rules: usize,
    used_rules: usize,
}

/// A rule that did not cause any decision.
#[derive(Debug, Serialize)]
pub(crate) struct UnusedRule {
    pub(crate) object: String,
    /// For a binding, the role that contains the rule.
    pub(crate) role: Option<String>,
    /// The index of the rule, from 0.
    pub(crate) rule: usize,
}

/// A binding to a subject about which the API server never asks.
#[derive(Debug, Serialize)]
pub(crate) struct UnobservableBinding {
    pub(crate) object: String,
    pub(crate) subject: String,
}

// === impl Causes ===

impl Causes {
    /// Adds the causes in `line`: of the decision, of policies in Shadow, and exceptions. Returns
    /// how many objects and rules are new.
    pub(crate) fn add(&mut self, line: &LoggedDecision<'_>, times: DecidedTimes) -> usize {
        let causes = line.cause.iter().chain(&line.shadow);
        let causes = causes.map(|cause| (cause.kind.as_ref(), cause));
        let exceptions = line
            .exceptions
            .iter()
            .map(|exception| ("AdmissionException", exception));
        let new = causes
            .chain(exceptions)
            .map(|(kind, cause)| self.insert(kind, cause, times));
        new.sum()
    }

    fn insert(&mut self, kind: &str, cause: &LoggedObject<'_>, times: DecidedTimes) -> usize {
        let object = (
            kind.to_owned(),
            cause.namespace.to_string(),
            cause.name.to_string(),
        );
        let units = 1 + (object.0.len() + object.1.len() + object.2.len()) / LONG_NAME_BYTES;
        let before = self.0.len();
        let used = self.0.entry(object).or_default();
        used.decided.add(times);
        let rules = used.rules.len();
        if let Some(rule) = cause.rule {
            used.rules.entry(rule).or_default().add(times);
        }
        let new_rules = used.rules.len() - rules;
        (self.0.len() - before) * units + new_rules
    }

    fn of(&self, kind: &str, namespace: &str, name: &str) -> Option<&CauseUse> {
        let object = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.0.get(&object)
    }

    /// An entry for each object, and one for each of its rules.
    pub(crate) fn used(&self) -> Vec<UsedObject> {
        let mut all = Vec::new();
        for ((kind, namespace, name), used) in &self.0 {
            let rules = used.rules.iter().map(|(rule, decided)| (Some(*rule), *decided));
            let entries = std::iter::once((None, used.decided)).chain(rules);
            all.extend(entries.map(|(rule, decided)| UsedObject {
                object: in_words(kind, namespace, name),
                rule,
                decided,
            }));
        }
        all
    }
}

// === impl DecidedTimes ===

impl DecidedTimes {
    /// `count` decisions, with the times of the first and the last one.
    pub(crate) const fn new(count: u64, [first, last]: [Option<Time>; 2]) -> Self {
        Self { count, first, last }
    }

    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.first = [self.first, more.first].into_iter().flatten().min();
        self.last = self.last.max(more.last);
    }
}

// === impl UnusedObjects ===

impl UnusedObjects {
    /// The objects in `loaded` that are not in `causes`. `asked` are the API server's authorization
    /// webhooks, if they are known.
    pub(crate) fn of(loaded: &LoadedPolicies, cluster: &str, causes: &Causes, asked: &[Authorizer]) -> Self {
        let mut unused = Self::default();
        let set = loaded.policies.for_cluster(cluster);
        for binding in set.bindings() {
            unused.binding(binding, set, causes, asked);
        }
        for policy in set.authorization_policies() {
            let rules = policy.resource_rules.len() + policy.non_resource_rules.len();
            let kind = "AuthorizationPolicy";
            unused.object(causes, (kind, "", &policy.name), None, rules);
        }
        for (name, _) in loaded.admission.for_cluster(cluster).exception_ends() {
            unused.object(causes, ("AdmissionException", "", name), None, 0);
        }
        unused
    }

    fn binding(&mut self, binding: &Binding, set: &PolicySet, causes: &Causes, asked: &[Authorizer]) {
        let kind = if binding.is_cluster_wide() {
            "ClusterRoleBinding"
        } else {
            "RoleBinding"
        };
        let unseen = binding
            .subjects
            .iter()
            .find(|subject| is_never_asked_about(subject, asked));
        if let Some(subject) = unseen {
            self.unseen.push(UnobservableBinding {
                object: in_words(kind, &binding.namespace, &binding.name),
                subject: in_words(subject.kind.as_str(), &subject.namespace, &subject.name),
            });
            return;
        }
        let (role_kind, role_namespace) = match binding.role.kind {
            RoleKind::ClusterRole => ("ClusterRole", ""),
            RoleKind::Role => ("Role", binding.namespace.as_str()),
        };
        let role = set
            .roles()
            .iter()
            .find(|role| role.namespace == role_namespace && role.name == binding.role.name);
        let rules = role.map_or(0, |role| role.rules.len());
        let role = in_words(role_kind, role_namespace, &binding.role.name);
        self.object(
            causes,
            (kind, &binding.namespace, &binding.name),
            Some(role),
            rules,
        );
    }

    fn object(
        &mut self,
        causes: &Causes,
        (kind, namespace, name): (&str, &str, &str),
        role: Option<String>,
        rules: usize,
    ) {
        let object = in_words(kind, namespace, name);
        self.coverage.objects += 1;
        self.coverage.rules += rules;
        let Some(used) = causes.of(kind, namespace, name) else {
            self.objects.push(object);
            return;
        };
        // Lines about policies in Shadow do not contain the rule.
        let is_told = (0..rules).any(|rule| used.rules.contains_key(&rule));
        let is_idle = |rule: &usize| is_told && !used.rules.contains_key(rule);
        let idle: Vec<usize> = (0..rules).filter(is_idle).collect();
        self.coverage.used_objects += 1;
        self.coverage.used_rules += rules - idle.len();
        self.rules.extend(idle.into_iter().map(|rule| UnusedRule {
            object: object.clone(),
            role: role.clone(),
            rule,
        }));
    }
}

/// Whether the API server never asks about `subject`.
fn is_never_asked_about(subject: &Subject, asked: &[Authorizer]) -> bool {
    let masters = subject.kind == SubjectKind::Group && subject.name == "system:masters";
    masters || manifest::is_never_asked_about(subject, asked)
}

fn in_words(kind: &str, namespace: &str, name: &str) -> String {
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{kind}/{namespace}{slash}{name}")
}
