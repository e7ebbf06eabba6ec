//! Writes of AccessRequests. `/mutate` sets who requested, approved, denied or withdrew and when,
//! whatever the user wrote; `/validate` rejects objects that differ from that, and writes that the
//! user may not make.
//!
//! An API server calls both with UPDATE for changes of the object and of its status. Between the
//! two it drops the status of an object that is created, and changes of the status in a write that
//! is not of the status subresource.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{Operation, Request, StatusCause, ValidationReport};
use crate::authorization::{MASTERS, PolicySet};
use crate::model::{Attributes, Deadline, ResourceAttributes, Target, Time, User, groups};

/// The largest object, in bytes. A typical one has a few hundred, plus some for each approval.
const MAX_OBJECT_BYTES: usize = 64 << 10;

/// How many bytes a denial or withdrawal may add to an object of that size, with the metadata of
/// the write, so that nobody can fill up an AccessRequest to prevent its end.
const MAX_ENDING_BYTES: usize = 16 << 10;

/// The most entries of `status.approvals`.
const MAX_APPROVALS: usize = 32;

/// How many seconds the time of an entry may differ from this clock: `/mutate` wrote it just
/// before, perhaps on another replica.
const MAX_SECONDS_APART: f64 = 60.0;

/// The fields of the status with a single entry.
const SINGLE_ENTRY_FIELDS: [&str; 2] = ["denied", "withdrawn"];

/// Whether the request creates or updates an AccessRequest or its status.
#[must_use]
pub fn is_access_request_write(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    resource.group == groups::PORTCULLIS
        && resource.resource == "accessrequests"
        && matches!(request.subresource.as_ref(), "" | "status")
        && matches!(request.operation, Operation::Create | Operation::Update)
}

/// Returns `object`, the AccessRequest of `request`, with the authors and times that users cannot
/// choose. `None` if it is not valid, or too large; `/validate` rejects it then.
pub(crate) fn with_authors(request: &Request<'_>, object: &str, now: Time) -> Option<String> {
    let mut object = read(object)?;
    let author = json!({"username": request.user.name, "time": now.whole_seconds().to_string()});
    let old = request.old_object.and_then(|old| read(old.raw()));
    if request.operation == Operation::Create {
        object.as_object_mut()?.remove("status");
        let requester = json!({
            "username": request.user.name,
            "uid": request.user.uid,
            "groups": request.user.groups,
        });
        object
            .get_mut("spec")?
            .as_object_mut()?
            .insert("requester".to_owned(), requester);
        return Some(object.to_string());
    }
    let old = old?;
    if let (Some(Value::Object(spec)), Some(requester)) =
        (object.get_mut("spec"), old.pointer("/spec/requester"))
    {
        spec.insert("requester".to_owned(), requester.clone());
    }
    let known = approvals(&old).len();
    let status = object.get_mut("status").and_then(Value::as_object_mut);
    if let Some(status) = status {
        if let Some(Value::Array(approvals)) = status.get_mut("approvals") {
            approvals
                .iter_mut()
                .skip(known)
                .for_each(|entry| *entry = author.clone());
        }
        for name in SINGLE_ENTRY_FIELDS {
            if let Some(entry) = status.get_mut(name).filter(|entry| !entry.is_null())
                && single(&old, name).is_none()
            {
                *entry = author.clone();
            }
        }
    }
    Some(object.to_string())
}

fn read(text: &str) -> Option<Value> {
    (text.len() <= MAX_OBJECT_BYTES + MAX_ENDING_BYTES).then(|| serde_json::from_str(text).ok())?
}

fn approvals(object: &Value) -> &[Value] {
    let approvals = object.pointer("/status/approvals").and_then(Value::as_array);
    approvals.map_or(&[], Vec::as_slice)
}

/// `status.denied` or `status.withdrawn`.
fn single<'o>(object: &'o Value, name: &str) -> Option<&'o Value> {
    object.get("status")?.get(name).filter(|entry| !entry.is_null())
}

fn texts<'o>(object: &'o Value, pointer: &str) -> impl Iterator<Item = &'o str> {
    let items = object.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str)
}

/// An entry that a write adds to the status.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddedEntry<'o> {
    Approval(&'o Value),
    Denial(&'o Value),
    Withdrawal(&'o Value),
}

/// A write of an AccessRequest with its author, and the policies that decide whether it is allowed.
struct AccessRequestWrite<'w> {
    user: &'w User<'w>,
    object: &'w Value,
    policies: &'w PolicySet,
    now: Time,
    deadline: Deadline<'w>,
}

/// Validates a write of an AccessRequest, and checks that the user may make it.
pub(crate) fn validate(
    request: &Request<'_>,
    policies: &PolicySet,
    (now, deadline): (Time, Deadline<'_>),
    report: &mut ValidationReport,
) {
    let of = |node: Option<portcullis_cel::json::Node<'_>>| node.and_then(|node| read(node.raw()));
    let bytes = request.object.map_or(0, |object| object.raw().len());
    let Some(object) = of(request.object) else {
        return report.faults.push(too_long());
    };
    let write = AccessRequestWrite {
        user: &request.user,
        object: &object,
        policies,
        now,
        deadline,
    };
    if request.operation == Operation::Create {
        if bytes > MAX_OBJECT_BYTES {
            report.faults.push(too_long());
        }
        write.created(report);
    } else if let Some(old) = of(request.old_object) {
        if bytes > MAX_OBJECT_BYTES && !write.is_denial_or_withdrawal(&old) {
            report.faults.push(too_long());
        }
        write.updated(&old, report);
    } else {
        report
            .forbidden
            .push("the review has no object before the change".to_owned());
    }
}

impl AccessRequestWrite<'_> {
    fn created(&self, report: &mut ValidationReport) {
        let has_entries = !approvals(self.object).is_empty()
            || SINGLE_ENTRY_FIELDS
                .iter()
                .any(|name| single(self.object, name).is_some());
        if has_entries {
            let message = "`status` must be empty when it is created. The API server did not drop it, so the \
                CustomResourceDefinition has no status subresource: apply config/crd/";
            report.forbidden.push(message.to_owned());
        }
        let requester = json!({"username": self.user.name, "uid": self.user.uid, "groups": self.user.groups});
        if self.object.pointer("/spec/requester") != Some(&requester) {
            let message = "`spec.requester` is not the user of the request: /mutate sets it, but is not \
                called, or another webhook changes it";
            report.forbidden.push(message.to_owned());
        }
        if let Some(lacking) = self.missing_permission("request") {
            report.forbidden.push(lacking);
        }
        let Some(trust) = self.policies.access_request_trust() else {
            let message = "AccessRequests grant nothing in this cluster: `authorization.accessRequests` of the \
                           gateway's configuration is absent, or it is not known that /mutate and /validate see \
                           every write (`clusters[].admission`)";
            report.warnings.push(message.to_owned());
            return;
        };
        let longest = trust.settings.max_duration_seconds;
        let duration = self.object.pointer("/spec/duration").and_then(Value::as_str);
        let seconds = duration.and_then(portcullis_cel::Duration::parse);
        if seconds.is_some_and(|duration| duration.nanoseconds() / 1_000_000_000 > longest) {
            let message = format!("at most {longest}s here (`authorization.accessRequests.maxDuration`)");
            report
                .faults
                .push(fault("spec.duration", "FieldValueInvalid", &message));
        }
        let role = self.role();
        if !self
            .policies
            .roles()
            .iter()
            .any(|known| known.key() == ("", role))
        {
            let message = format!("spec.role: there is no ClusterRole `{role}`, so this grants nothing");
            report.warnings.push(message);
        }
        self.warn_of_lifts(report);
    }

    fn warn_of_lifts(&self, report: &mut ValidationReport) {
        for name in texts(self.object, "/spec/lifts") {
            let mut policies = self.policies.authorization_policies();
            if !policies.any(|policy| policy.name == name && policy.liftable) {
                let message = format!("spec.lifts: no AuthorizationPolicy `{name}` is `liftable`");
                report.warnings.push(message);
            }
        }
    }

    /// Whether the write denies or withdraws the AccessRequest.
    fn is_denial_or_withdrawal(&self, old: &Value) -> bool {
        let added = self.added(old).ok().flatten();
        matches!(added, Some(AddedEntry::Denial(_) | AddedEntry::Withdrawal(_)))
    }

    fn updated(&self, old: &Value, report: &mut ValidationReport) {
        if self.object.get("spec") != old.get("spec") {
            let message = "never changes: withdraw this AccessRequest, and create another";
            report.faults.push(fault("spec", "FieldValueForbidden", message));
            return;
        }
        let added = match self.added(old) {
            Ok(added) => added,
            Err(message) => {
                report.forbidden.push(message.to_owned());
                return;
            }
        };
        let Some(added) = added else { return };
        let is_over = SINGLE_ENTRY_FIELDS.iter().any(|name| single(old, name).is_some());
        if is_over {
            report
                .forbidden
                .push("it is denied or withdrawn, which is final: create another".to_owned());
            return;
        }
        let (AddedEntry::Approval(entry) | AddedEntry::Denial(entry) | AddedEntry::Withdrawal(entry)) = added;
        if !self.is_own_entry(entry) {
            let message = "a new entry of the status does not contain the user who writes it, and the time: \
                /mutate sets both, but is not called, or another webhook changes them";
            report.forbidden.push(message.to_owned());
        }
        report.forbidden.extend(self.entry_refusal(added, old));
    }

    /// The entry that the write adds, if any; or why the change of the status is not allowed.
    fn added<'o>(&'o self, old: &Value) -> Result<Option<AddedEntry<'o>>, &'static str> {
        let changed = "a request may only add one entry to the status: an earlier entry is changed or \
            missing, perhaps because somebody else wrote at the same time";
        let (before, after) = (approvals(old), approvals(self.object));
        let new = after.strip_prefix(before).ok_or(changed)?;
        let mut added: Vec<AddedEntry<'_>> = new.iter().map(AddedEntry::Approval).collect();
        for name in SINGLE_ENTRY_FIELDS {
            match (single(old, name), single(self.object, name)) {
                (Some(before), after) if after != Some(before) => return Err(changed),
                (None, Some(entry)) if name == "denied" => added.push(AddedEntry::Denial(entry)),
                (None, Some(entry)) => added.push(AddedEntry::Withdrawal(entry)),
                _ => {}
            }
        }
        match added.as_slice() {
            [] => Ok(None),
            [AddedEntry::Approval(_)] if after.len() > MAX_APPROVALS => {
                Err("it has 32 approvals, the maximum")
            }
            [only] => Ok(Some(*only)),
            _ => Err("a request may only add one entry: approve, deny and withdraw in separate requests"),
        }
    }

    /// Whether an entry contains the user of this request and the current time, and nothing else.
    fn is_own_entry(&self, entry: &Value) -> bool {
        let time = entry.get("time").and_then(Value::as_str).and_then(Time::parse);
        let is_now =
            time.is_some_and(|time| (time.as_seconds() - self.now.as_seconds()).abs() <= MAX_SECONDS_APART);
        let fields = entry.as_object().map_or(0, Map::len);
        is_now && fields == 2 && entry.get("username").and_then(Value::as_str) == Some(&*self.user.name)
    }

    /// Why the user may not add the entry.
    fn entry_refusal(&self, added: AddedEntry<'_>, old: &Value) -> Option<String> {
        let requester = |field| old.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let is_namesake = requester("/spec/requester/username") == self.user.name;
        let is_requester = is_namesake && requester("/spec/requester/uid") == self.user.uid;
        let has_approved = approvals(old)
            .iter()
            .any(|entry| entry.get("username").and_then(Value::as_str) == Some(&*self.user.name));
        match added {
            AddedEntry::Withdrawal(_) if is_requester || has_approved => None,
            AddedEntry::Withdrawal(_) => self.missing_permission("approve"),
            AddedEntry::Approval(_) | AddedEntry::Denial(_) if is_namesake => Some(
                "you cannot approve or deny your own request: withdraw it, or have somebody else decide"
                    .to_owned(),
            ),
            AddedEntry::Approval(_) if has_approved => Some("you have approved it already".to_owned()),
            AddedEntry::Approval(_) => self.missing_permission("approve").or_else(|| self.lacks_lift()),
            AddedEntry::Denial(_) => self.missing_permission("approve"),
        }
    }

    fn role(&self) -> &str {
        self.object
            .pointer("/spec/role")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The permission that the user lacks to `verb` the role in each of its namespaces.
    fn missing_permission(&self, verb: &str) -> Option<String> {
        let everywhere = std::iter::once("");
        let mut namespaces: Vec<&str> = texts(self.object, "/spec/namespaces").collect();
        if namespaces.is_empty() {
            namespaces.extend(everywhere);
        }
        let role = self.role();
        let lacking = namespaces
            .into_iter()
            .find(|namespace| !self.may(verb, (groups::RBAC, "v1", "clusterroles"), role, namespace))?;
        let place = match lacking {
            "" => "in the whole cluster".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let user = &self.user.name;
        Some(format!(
            "User \"{user}\" cannot {verb} clusterroles.{} \"{role}\" {place}: grant the verb by RBAC or an \
             AuthorizationPolicy; AccessRequests do not count",
            groups::RBAC
        ))
    }

    /// The permission that the user lacks to lift the policies in `spec.lifts`.
    fn lacks_lift(&self) -> Option<String> {
        let resource = (groups::PORTCULLIS, "v1alpha1", "authorizationpolicies");
        let lacking = texts(self.object, "/spec/lifts").find(|name| !self.may("lift", resource, name, ""))?;
        let user = &self.user.name;
        Some(format!(
            "User \"{user}\" cannot lift authorizationpolicies.{} \"{lacking}\", which this AccessRequest lifts",
            groups::PORTCULLIS
        ))
    }

    fn may(
        &self,
        verb: &str,
        (group, version, resource): (&str, &str, &str),
        name: &str,
        namespace: &str,
    ) -> bool {
        let attributes = Attributes {
            user: self.user.clone(),
            target: Target::Resource(Box::new(ResourceAttributes {
                verb: Cow::Borrowed(verb),
                namespace: Cow::Borrowed(namespace),
                group: Cow::Borrowed(group),
                version: Cow::Borrowed(version),
                resource: Cow::Borrowed(resource),
                name: Cow::Borrowed(name),
                ..ResourceAttributes::default()
            })),
        };
        let policies = self.policies;
        let is_master = self.user.groups.iter().any(|group| group == MASTERS);
        is_master || policies.allows_without_access_requests(&attributes, self.now, self.deadline)
    }
}

fn too_long() -> StatusCause {
    let message = format!("more than {MAX_OBJECT_BYTES} bytes, with metadata and status");
    fault("", "FieldValueTooLong", &message)
}

fn fault(field: &str, reason: &str, message: &str) -> StatusCause {
    StatusCause {
        reason: reason.to_owned(),
        message: message.to_owned(),
        field: field.to_owned(),
    }
}
