//! `authorization.webhooks`: other authorizers, read as the entries of an
//! AuthorizationConfiguration (`apiserver.config.k8s.io/v1`) and validated by kube-apiserver's
//! rules (`apiserver/pkg/apis/apiserver/validation/validation.go`).
//!
//! Only the type `Webhook` is allowed in `authorization.webhooks`. The rules for the other types
//! are here too, because [`check`] validates whole AuthorizationConfigurations.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::section::{ListItem, ReadContext, Section};
use super::{Disk, Files as _, files};
use portcullis_cel::Version;
use portcullis_policy::authorization::authorizer::Authorizer;
use portcullis_policy::authorization::{
    Condition, ConditionError, FailurePolicy, SubjectAccessReviewVersion,
};
use portcullis_policy::document;
use portcullis_policy::field::{FaultKind, Faults};
use portcullis_policy::manifest::names;

/// The maximum `timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of `matchConditions`.
const MAX_CONDITIONS: usize = 64;

/// The only type that has a `webhook`.
const WEBHOOK: &str = "Webhook";

/// An entry of type Webhook: another authorizer, which is called over the network.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthorizerEntry {
    /// `name`, `matchConditions`, `failurePolicy`.
    pub rules: Authorizer,
    /// `timeout` of one call.
    pub timeout: Duration,
    /// `subjectAccessReviewVersion`: the version of the reviews that are sent.
    pub version: SubjectAccessReviewVersion,
    /// `connectionInfo.kubeConfigFile`, an absolute path. The server of its current context is
    /// called.
    pub kubeconfig: PathBuf,
    /// How long a response that allows is cached; `None`: not at all.
    pub authorized_ttl: Option<Duration>,
    /// How long any other response is cached; `None`: not at all.
    pub unauthorized_ttl: Option<Duration>,
}

/// What a list of authorizers may contain.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizerTypes<'a> {
    /// The supported types.
    pub known: &'a [&'a str],
    /// The types that may occur more than once.
    pub repeatable: &'a [&'a str],
    /// Whether `InClusterConfig` is supported.
    pub in_cluster: bool,
    /// The version for which `matchConditions` are compiled.
    pub cel_version: Version,
}

/// How a webhook is reached.
enum ConnectionInfo {
    InCluster,
    Kubeconfig(PathBuf),
}

/// Returns every error that kube-apiserver reports for the AuthorizationConfiguration `text`, the
/// content of `file`. Relative paths are resolved against `folder`. Unlike upstream, the path of a
/// webhook's field includes `webhook`.
#[must_use]
pub fn check(file: &str, text: &str, folder: &Path, types: AuthorizerTypes<'_>) -> Faults {
    let mut faults = Faults::new();
    match document::parse(Some(file), text) {
        Err(fault) => faults.push(fault),
        Ok(documents) => {
            for document in &documents {
                let reading = ReadContext::new(document, folder);
                let root = reading.root(&["apiVersion", "kind", "authorizers"]);
                if root.items("authorizers").is_empty() {
                    root.fault("authorizers", FaultKind::Required, "at least one authorizer");
                }
                authorizers(&root, "authorizers", types);
                faults.append(reading.into_faults());
            }
        }
    }
    faults
}

/// The webhooks of the AuthorizationConfiguration next to the configuration `file`, under the name
/// that `portcullis init` gives it. Empty if there is no such file or it has errors, which the API
/// server reports. Conditions are compiled for `cel_version`.
#[must_use]
pub fn load_next_to(file: &Path, cel_version: Version) -> Vec<Authorizer> {
    let (entries, faults) = read_next_to(file, cel_version);
    if faults.has_errors() {
        return Vec::new();
    }
    entries.into_iter().map(|entry| entry.rules).collect()
}

/// The warnings about the file that [`load_next_to`] reads; none if it has errors.
#[must_use]
pub fn warnings_next_to(file: &Path, cel_version: Version) -> Faults {
    let (_, faults) = read_next_to(file, cel_version);
    if faults.has_errors() {
        return Faults::new();
    }
    faults
}

fn read_next_to(file: &Path, cel_version: Version) -> (Vec<AuthorizerEntry>, Faults) {
    let types = AuthorizerTypes {
        known: &["Webhook", "Node", "RBAC", "ABAC", "AlwaysAllow", "AlwaysDeny"],
        repeatable: &["Webhook"],
        in_cluster: false,
        cel_version,
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    let path = folder.join("authorization-configuration.yaml");
    let text = Disk
        .read(&path)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let documents = text
        .and_then(|text| document::parse(path.to_str(), &text).ok())
        .unwrap_or_default();
    let Some(document) = documents.first() else {
        return (Vec::new(), Faults::new());
    };
    let reading = ReadContext::new(document, folder);
    let entries = authorizers(&reading.foreign_root(), "authorizers", types);
    (entries, reading.into_faults())
}

/// The valid entries of type Webhook in the list `field`.
pub(crate) fn authorizers(
    root: &Section<'_>,
    field: &str,
    types: AuthorizerTypes<'_>,
) -> Vec<AuthorizerEntry> {
    let mut seen = SeenAuthorizers::default();
    root.items(field)
        .iter()
        .filter_map(|item| authorizer(item, types, &mut seen))
        .collect()
}

/// The types and names of the preceding entries.
#[derive(Default)]
struct SeenAuthorizers<'r> {
    types: BTreeSet<&'r str>,
    names: BTreeSet<&'r str>,
}

fn authorizer<'r>(
    item: &ListItem<'r>,
    types: AuthorizerTypes<'_>,
    seen: &mut SeenAuthorizers<'r>,
) -> Option<AuthorizerEntry> {
    let section = item.section(&["type", "name", "webhook"]);
    let kind = section.required_text("type", "such as `Webhook`")?;
    if !types.known.contains(&kind) {
        let message = format!("`{kind}`: supported values: `{}`", types.known.join("`, `"));
        section.fault("type", FaultKind::NotSupported, message);
        return None;
    }
    if !seen.types.insert(kind) && !types.repeatable.contains(&kind) {
        section.fault("type", FaultKind::Duplicate, format!("`{kind}` is used twice"));
        return None;
    }
    let name = name(&section, &mut seen.names);
    if kind != WEBHOOK {
        if section.value("webhook").is_some() {
            let message = "allowed only for the type `Webhook`";
            section.fault("webhook", FaultKind::Invalid, message);
        }
        return None;
    }
    if section.value("webhook").is_none() {
        section.fault("webhook", FaultKind::Required, "needed for the type `Webhook`");
        return None;
    }
    webhook(&section, name, types)
}

fn name<'r>(section: &Section<'r>, seen: &mut BTreeSet<&'r str>) -> Option<&'r str> {
    let name = section.required_text("name", "a name for logs and metrics")?;
    if !seen.insert(name) {
        section.fault("name", FaultKind::Duplicate, format!("`{name}` is used twice"));
    } else if let Err(rule) = names::dns_subdomain(name) {
        section.fault("name", FaultKind::Invalid, format!("`{name}`: {rule}"));
    } else if let Some(domain) = reserved(name) {
        let message = format!(
            "`{name}`: names in `{domain}` are reserved for Kubernetes, and kube-apiserver from 1.38 on warns of \
             them: use a domain of your own"
        );
        section.warn("name", FaultKind::Suspicious, message);
    }
    Some(name)
}

/// The reserved domain of Kubernetes that contains `name`.
fn reserved(name: &str) -> Option<&'static str> {
    let is_in = |domain: &&str| {
        name.strip_suffix(*domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    ["k8s.io", "kubernetes.io"].into_iter().find(is_in)
}

/// Reads every field even if others are invalid, so that one run reports all errors.
fn webhook(entry: &Section<'_>, name: Option<&str>, types: AuthorizerTypes<'_>) -> Option<AuthorizerEntry> {
    const FIELDS: [&str; 10] = [
        "authorizedTTL",
        "cacheAuthorizedRequests",
        "unauthorizedTTL",
        "cacheUnauthorizedRequests",
        "timeout",
        "subjectAccessReviewVersion",
        "matchConditionSubjectAccessReviewVersion",
        "failurePolicy",
        "connectionInfo",
        "matchConditions",
    ];
    let section = entry.section("webhook", &FIELDS);
    let timeout = timeout(&section);
    let authorized = ttl(&section, "authorizedTTL", Duration::from_secs(300));
    let unauthorized = ttl(&section, "unauthorizedTTL", Duration::from_secs(30));
    let cached = |field: &str| section.boolean(field).unwrap_or(true);
    let (keep_authorized, keep_unauthorized) = (
        cached("cacheAuthorizedRequests"),
        cached("cacheUnauthorizedRequests"),
    );
    let versions = [
        ("v1", SubjectAccessReviewVersion::V1),
        ("v1beta1", SubjectAccessReviewVersion::V1beta1),
    ];
    let version = required_choice(&section, "subjectAccessReviewVersion", &versions);
    condition_version(&section);
    let policies = [
        ("NoOpinion", FailurePolicy::NoOpinion),
        ("Deny", FailurePolicy::Deny),
    ];
    let failure_policy = required_choice(&section, "failurePolicy", &policies);
    let connection = connection(&section, types);
    let match_conditions = match_conditions(&section, types.cel_version);
    let ConnectionInfo::Kubeconfig(kubeconfig) = connection? else {
        return None;
    };
    Some(AuthorizerEntry {
        rules: Authorizer {
            name: name?.to_owned(),
            match_conditions,
            failure_policy: failure_policy?,
        },
        timeout: timeout?,
        version: version?,
        kubeconfig,
        authorized_ttl: authorized.filter(|_| keep_authorized),
        unauthorized_ttl: unauthorized.filter(|_| keep_unauthorized),
    })
}

fn timeout(section: &Section<'_>) -> Option<Duration> {
    const FIELD: &str = "timeout";
    const BOUNDS: &str = "must be longer than 0s and at most 30s";
    if section.value(FIELD).is_none() {
        section.fault(FIELD, FaultKind::Required, BOUNDS);
    }
    let timeout = section.duration(FIELD)?;
    if timeout.is_zero() {
        section.fault(FIELD, FaultKind::Required, BOUNDS);
    } else if timeout > MAX_TIMEOUT {
        section.fault(FIELD, FaultKind::Invalid, BOUNDS);
    }
    Some(timeout)
}

/// 0 selects the default, as upstream.
fn ttl(section: &Section<'_>, field: &str, default: Duration) -> Option<Duration> {
    match section.value(field) {
        None => Some(default),
        Some(_) => section
            .duration(field)
            .map(|ttl| if ttl.is_zero() { default } else { ttl }),
    }
}

fn required_choice<T: Copy>(section: &Section<'_>, field: &str, choices: &[(&str, T)]) -> Option<T> {
    if section.value(field).is_none() {
        section.fault(field, FaultKind::Required, super::section::one_of(choices));
    }
    section.choice(field, choices)
}

fn condition_version(section: &Section<'_>) {
    const FIELD: &str = "matchConditionSubjectAccessReviewVersion";
    if section.non_empty_text(FIELD).is_some() {
        section.choice(FIELD, &[("v1", ())]);
    } else if !section.items("matchConditions").is_empty() {
        section.fault(
            FIELD,
            FaultKind::Required,
            "`v1`, because there are matchConditions",
        );
    }
}

fn connection(section: &Section<'_>, types: AuthorizerTypes<'_>) -> Option<ConnectionInfo> {
    const FILE: &str = "kubeConfigFile";
    let section = section.section("connectionInfo", &["type", FILE]);
    let kind = section.required_text("type", "`KubeConfigFile`")?;
    match kind {
        "KubeConfigFile" => kubeconfig(&section, FILE).map(ConnectionInfo::Kubeconfig),
        "InClusterConfig" if types.in_cluster => {
            if section.value(FILE).is_some() {
                section.fault(
                    FILE,
                    FaultKind::Invalid,
                    "allowed only for the type `KubeConfigFile`",
                );
            }
            Some(ConnectionInfo::InCluster)
        }
        _ => {
            let message = format!("`{kind}`: must be `KubeConfigFile`");
            section.fault("type", FaultKind::NotSupported, message);
            None
        }
    }
}

fn kubeconfig(section: &Section<'_>, field: &str) -> Option<PathBuf> {
    let path = section.required_path(
        field,
        "the kubeconfig of the authorizer; its current context is used",
    )?;
    let wrong = match std::fs::metadata(&path) {
        Ok(file) if file.is_file() => return Some(path),
        Ok(_) => "must be a regular file".to_owned(),
        Err(error) => files::describe(&error),
    };
    let message = format!("`{}`: {wrong}", path.display());
    section.fault(field, FaultKind::Invalid, message);
    None
}

fn match_conditions(section: &Section<'_>, version: Version) -> Vec<Condition> {
    const FIELD: &str = "matchConditions";
    let items = section.items(FIELD);
    if items.len() > MAX_CONDITIONS {
        let message = format!("{} conditions: at most {MAX_CONDITIONS}", items.len());
        section.fault(FIELD, FaultKind::TooMany, message);
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let compile = |(index, item): (usize, &ListItem<'_>)| {
        let section = item.section(&["expression"]);
        let fault = |kind, message: String| section.fault("expression", kind, message);
        let expression = section.required_text("expression", "CEL over `request`, of type bool")?;
        if !expression.trim().is_empty() && !seen.insert(expression.to_owned()) {
            fault(FaultKind::Duplicate, "is used twice".to_owned());
            return None;
        }
        match Condition::compile(version, &format!("{FIELD}[{index}]"), expression) {
            Ok(condition) => return Some(condition),
            Err(ConditionError::Empty) => fault(FaultKind::Required, "must not be blank".to_owned()),
            Err(ConditionError::Invalid(error)) => {
                section.fault_within("expression", (error.line, error.column), &error.message);
            }
            Err(wrong) => fault(FaultKind::Invalid, wrong.to_string()),
        }
        None
    };
    items.iter().enumerate().filter_map(compile).collect()
}

#[cfg(test)]
mod tests;
