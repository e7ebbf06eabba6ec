//! `authorization` and `admission`: settings for decisions that are not objects.

use super::authorizers::{self, AuthorizerEntry, AuthorizerTypes};
use super::section::Section;
use portcullis_cel::Version;
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::matching::MissingNamespace;
use portcullis_policy::authorization::rbac::AlwaysAllowPaths;
use portcullis_policy::authorization::{AccessRequestSettings, NeverDeny, ServiceAccount};
use portcullis_policy::field::FaultKind;

/// Settings for authorization.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Authorization {
    /// The users, groups and paths to which no Deny applies.
    pub never_deny: NeverDeny,
    /// The limits of AccessRequests; `None`: they grant nothing.
    pub access_requests: Option<AccessRequestSettings>,
    /// Other authorizers, which are called in this order if there is no opinion.
    pub webhooks: Vec<AuthorizerEntry>,
}

/// Reads `authorization`. Conditions are compiled for `cel_version`.
pub(crate) fn authorization(root: &Section<'_>, cel_version: Version) -> Authorization {
    let types = AuthorizerTypes {
        known: &["Webhook"],
        repeatable: &["Webhook"],
        in_cluster: false,
        cel_version,
    };
    let section = root.section("authorization", &["neverDeny", "accessRequests", "webhooks"]);
    let fields = ["groups", "users", "serviceAccounts", "paths"];
    let never_deny = section
        .optional("neverDeny", &fields)
        .map(|own| read_never_deny(&own));
    if let Some(never_deny) = &never_deny {
        warn_of_missing_defaults(never_deny, &section);
    }
    Authorization {
        never_deny: never_deny.unwrap_or_default(),
        access_requests: section
            .optional("accessRequests", &["maxDuration", "approvals"])
            .map(|own| access_requests(&own)),
        webhooks: authorizers::authorizers(&section, "webhooks", types),
    }
}

/// The maximum of `approvals`: the most that an AccessRequest can have.
const MAX_APPROVALS: usize = 32;

fn access_requests(section: &Section<'_>) -> AccessRequestSettings {
    let max_duration = section.positive_duration("maxDuration");
    let seconds = max_duration.map(|duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX));
    if seconds == Some(0) {
        section.fault("maxDuration", FaultKind::Invalid, "must be at least a second");
    }
    let default = AccessRequestSettings::default();
    let approvals = section.positive("approvals").unwrap_or(default.approvals);
    if approvals > MAX_APPROVALS {
        section.fault(
            "approvals",
            FaultKind::Invalid,
            format!("must be at most {MAX_APPROVALS}"),
        );
    }
    AccessRequestSettings {
        max_duration_seconds: seconds.unwrap_or(default.max_duration_seconds),
        approvals,
    }
}

fn read_never_deny(section: &Section<'_>) -> NeverDeny {
    NeverDeny {
        groups: exact_names(section, "groups"),
        users: exact_names(section, "users"),
        service_accounts: service_accounts(section),
        paths: paths(section),
    }
}

/// Warns that a Deny can now apply to parts of the control plane that the defaults protect.
fn warn_of_missing_defaults(read: &NeverDeny, section: &Section<'_>) {
    let defaults = NeverDeny::default();
    let groups = defaults.groups.iter().filter(|name| !read.groups.contains(name));
    let users = defaults.users.iter().filter(|name| !read.users.contains(name));
    let accounts = defaults.service_accounts.iter();
    let accounts = accounts.filter(|account| !read.service_accounts.contains(account));
    let accounts = accounts.map(|account| format!("{}/{}", account.namespace, account.name));
    let own = read.paths.patterns();
    let paths = defaults.paths.patterns().into_iter();
    let missing: Vec<String> = groups
        .chain(users)
        .cloned()
        .chain(accounts)
        .chain(paths.filter(|path| !own.contains(path)))
        .map(|name| format!("`{name}`"))
        .collect();
    if !missing.is_empty() {
        let message = format!(
            "replaces the default entries, so that a Deny can now apply to {}: add them here, or \
             remove `neverDeny`",
            missing.join(", ")
        );
        section.warn("neverDeny", FaultKind::Suspicious, message);
    }
}

fn exact_names(section: &Section<'_>, field: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (index, name) in section.texts(field) {
        if name.contains('*') {
            section.fault_at(
                field,
                index,
                FaultKind::Invalid,
                format!("`{name}`: must be an exact name, patterns are not supported"),
            );
        }
        names.push(name.to_owned());
    }
    names
}

fn service_accounts(section: &Section<'_>) -> Vec<ServiceAccount> {
    let field = "serviceAccounts";
    let mut accounts = Vec::new();
    for (index, text) in section.texts(field) {
        match text.split_once('/') {
            Some((namespace, name)) if is_plain(namespace) && is_plain(name) => {
                accounts.push(ServiceAccount::new(namespace, name));
            }
            _ => {
                let message =
                    format!("`{text}` is not a namespace and a name, such as `kube-system/coredns`");
                section.fault_at(field, index, FaultKind::Invalid, message);
            }
        }
    }
    accounts
}

fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}

/// Accepts the same paths as kube-apiserver's `--authorization-always-allow-paths`.
fn paths(section: &Section<'_>) -> AlwaysAllowPaths {
    let mut paths = AlwaysAllowPaths::default();
    for item in section.items("paths") {
        if let Some(Err(fault)) = item.text_or_empty().map(|path| paths.add(path)) {
            item.fault(FaultKind::Invalid, fault.to_string());
        }
    }
    paths
}

/// The values of `missingNamespace`, in the configuration and in `scan`.
pub(crate) const MISSING_NAMESPACE: [(&str, MissingNamespace); 2] = [
    ("Fail", MissingNamespace::Fail),
    ("NameOnly", MissingNamespace::NameOnly),
];

/// Settings for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionDefaults {
    /// Applies to errors that belong to no policy or webhook, such as those of initializers.
    pub failure_policy: FailurePolicy,
    /// What happens if a `namespaceSelector` needs a namespace that no manifest describes.
    pub missing_namespace: MissingNamespace,
    /// Whether `/validate` also enforces the Denies and Limits of AuthorizationPolicies.
    pub enforce_authorization: bool,
    /// The version for which expressions are compiled, including those of authorization.
    pub cel_version: Version,
}

pub(crate) fn admission(root: &Section<'_>) -> AdmissionDefaults {
    let fields = [
        "failurePolicy",
        "missingNamespace",
        "celVersion",
        "enforceAuthorization",
    ];
    let section = root.section("admission", &fields);
    let policies = [("Fail", FailurePolicy::Fail), ("Ignore", FailurePolicy::Ignore)];
    let names = Version::EXACT.map(|version| version.to_string());
    let versions: Vec<_> = names.iter().map(String::as_str).zip(Version::EXACT).collect();
    AdmissionDefaults {
        cel_version: section.choice("celVersion", &versions).unwrap_or_default(),
        enforce_authorization: section.boolean("enforceAuthorization").unwrap_or_default(),
        failure_policy: section.choice("failurePolicy", &policies).unwrap_or_default(),
        missing_namespace: section
            .choice("missingNamespace", &MISSING_NAMESPACE)
            .unwrap_or_default(),
    }
}
