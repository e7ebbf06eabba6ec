//! Validation of AccessRequest. Its status is read separately and never makes it invalid: an entry
//! that cannot be read grants nothing, and an invalid denial or withdrawal still ends the grant.

use std::collections::BTreeSet;

use super::names;
use super::report::{Report, SyntaxResult};
use super::v1alpha1::{AccessRequest, AccessRequestSpec};
use crate::authorization::{self, AccessEntry, AccessRequester};
use crate::document::{Document, Node, Value};
use crate::field::{FaultKind, FieldPath};
use crate::model::Time;
use portcullis_cel::Duration;

/// The longest reason, in bytes. It is part of each response that the request allows.
const MAX_REASON_BYTES: usize = 1024;

/// The most namespaces, and the most policies to lift.
const MAX_NAMES: usize = 64;

const NANOSECONDS_OF_SECOND: i64 = 1_000_000_000;

/// Validates and compiles the request. Errors are added to `report`, and then there is no request.
pub(crate) fn read(
    written: AccessRequest,
    document: &Document,
    report: &mut Report<'_>,
) -> Option<authorization::AccessRequest> {
    names::validate_cluster_scoped(&written.metadata, report);
    let path = FieldPath::root().field("spec");
    let duration_seconds = validate(&written.spec, &path, report);
    if !report.is_valid() {
        return None;
    }
    let (metadata, spec) = (written.metadata, written.spec);
    let status = StatusEntries::of(document);
    let time = |field| Time::parse(document.root().get("metadata")?.get(field)?.as_str()?);
    Some(authorization::AccessRequest {
        name: metadata.name.unwrap_or_default(),
        role: spec.role,
        namespaces: spec.namespaces,
        duration_seconds: duration_seconds?,
        reason: spec.reason,
        lifts: spec.lifts,
        requester: AccessRequester {
            username: spec.requester.username,
            uid: spec.requester.uid,
            groups: spec.requester.groups,
        },
        approvals: status.approvals,
        is_denied: status.is_denied,
        is_withdrawn: status.is_withdrawn || metadata.deletion_timestamp.is_some(),
        created: time("creationTimestamp"),
    })
}

/// Validates the spec, and returns the duration in seconds.
fn validate(spec: &AccessRequestSpec, path: &FieldPath, report: &mut Report<'_>) -> Option<i64> {
    let role = path.field("role");
    match spec.role.as_str() {
        "" => report.required(&role, "the name of the ClusterRole"),
        name => report.syntax(&role, name, names::path_segment(name)),
    }
    each(
        &spec.namespaces,
        &path.field("namespaces"),
        names::dns_label,
        report,
    );
    each(&spec.lifts, &path.field("lifts"), names::dns_subdomain, report);
    let reason = path.field("reason");
    if spec.reason.trim().is_empty() {
        report.required(&reason, "why the role is needed, for approvers and logs");
    } else if spec.reason.len() > MAX_REASON_BYTES {
        let message = format!("{} bytes: at most {MAX_REASON_BYTES}", spec.reason.len());
        report.fault(FaultKind::TooLong, &reason, message);
    }
    let duration = path.field("duration");
    if spec.duration.is_empty() {
        report.required(&duration, "for how long, such as `2h` or `90m`");
        return None;
    }
    let seconds =
        Duration::parse(&spec.duration).map(|duration| duration.nanoseconds() / NANOSECONDS_OF_SECOND);
    let seconds = seconds.filter(|seconds| *seconds > 0);
    if seconds.is_none() {
        let message = "must be at least a second, and written as Go does, such as `2h` or `90m`";
        report.invalid(&duration, &spec.duration, message);
    }
    seconds
}

fn each(written: &[String], path: &FieldPath, syntax: fn(&str) -> SyntaxResult, report: &mut Report<'_>) {
    if written.len() > MAX_NAMES {
        let message = format!("{} names: at most {MAX_NAMES}", written.len());
        report.fault(FaultKind::TooMany, path, message);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, name) in written.iter().enumerate() {
        let path = path.index(index);
        report.syntax(&path, name, syntax(name));
        if !seen.insert(name) {
            report.fault(FaultKind::Duplicate, &path, format!("`{name}`"));
        }
    }
}

/// The entries of the status.
struct StatusEntries {
    approvals: Vec<AccessEntry>,
    is_denied: bool,
    is_withdrawn: bool,
}

impl StatusEntries {
    fn of(document: &Document) -> Self {
        let status = document.root().get("status");
        let is_there = |field| {
            let entry = status.and_then(|status| status.get(field));
            entry.is_some_and(|entry| !matches!(entry.value, Value::Null))
        };
        let approvals = status.and_then(|status| status.get("approvals"));
        let approvals = approvals.map_or(&[][..], |approvals| match &approvals.value {
            Value::List(entries) => entries,
            _ => &[],
        });
        Self {
            approvals: approvals.iter().filter_map(entry).collect(),
            is_denied: is_there("denied"),
            is_withdrawn: is_there("withdrawn"),
        }
    }
}

/// Reads an entry with a username and a time.
fn entry(node: &Node) -> Option<AccessEntry> {
    let username = node.get("username")?.as_str()?;
    let time = Time::parse(node.get("time")?.as_str()?)?;
    (!username.is_empty()).then(|| AccessEntry {
        username: username.to_owned(),
        time,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::document;
    use crate::manifest::ValidatedObject;
    use portcullis_cel::Version;

    /// An AccessRequest from an API server with this status, and this text in its metadata.
    fn request(status: &str, metadata: &str) -> Result<authorization::AccessRequest, String> {
        let text = format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: AccessRequest\n\
             metadata: {{name: a, creationTimestamp: '2026-12-01T00:00:00Z'{metadata}}}\n\
             spec: {{role: edit, duration: 90m, reason: r, requester: {{username: ann, uid: '1', groups: [g]}}}}\n\
             status: {status}\n"
        );
        let document = document::parse(None, &text).unwrap().remove(0);
        let object = ValidatedObject::read(document, Arc::from("c"), Version::NEWEST);
        let object = object.map_err(|faults| faults.to_string())?;
        Ok(object.access_request().cloned().unwrap())
    }

    #[test]
    fn what_people_said_is_read_and_what_cannot_be_read_approves_nothing() {
        let entry = "{username: bob, time: '2026-12-01T01:00:00Z'}";
        let read = request(&format!("{{approvals: [{entry}]}}"), "").unwrap();
        assert_eq!((read.duration_seconds, read.requester.uid.as_str()), (5_400, "1"));
        assert_eq!(read.created, Time::parse("2026-12-01T00:00:00Z"));
        assert_eq!(read.approvals.len(), 1);
        assert!(!read.is_denied && !read.is_withdrawn);
        for (status, approvals, is_denied, is_withdrawn) in [
            ("null", 0, false, false),
            ("[]", 0, false, false),
            ("{approvals: x, denied: null}", 0, false, false),
            (
                "{approvals: [{}, {username: bob}, {username: '', time: '2026-12-01T01:00:00Z'}]}",
                0,
                false,
                false,
            ),
            (
                "{approvals: [{username: bob, time: tomorrow}, {username: 1, time: 2}], more: 1}",
                0,
                false,
                false,
            ),
            ("{denied: {}}", 0, true, false),
            ("{withdrawn: x, conditions: []}", 0, false, true),
        ] {
            let read = request(status, "").unwrap();
            let found = (read.approvals.len(), read.is_denied, read.is_withdrawn);
            assert_eq!(found, (approvals, is_denied, is_withdrawn), "{status}");
        }
        let deleted = request(
            &format!("{{approvals: [{entry}]}}"),
            ", deletionTimestamp: '2026-12-01T02:00:00Z'",
        );
        assert!(deleted.unwrap().is_withdrawn);
    }
}
