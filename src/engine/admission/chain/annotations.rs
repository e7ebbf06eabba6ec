//! What a run writes into the audit log about webhooks.

use std::collections::BTreeMap;

use crate::engine::admission::webhook::Webhook;
use crate::engine::is_label_key;
use crate::json::write_string;

const MUTATION: &str = "mutation.webhook.admission.k8s.io";
const MUTATION_FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io";
const VALIDATION_FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io";
/// Which webhook changed what. The API server's own, `patch.webhook.…`, has the
/// values too, and is written at the audit level Request alone; from outside
/// there is only the level Metadata, where the data of Secrets must not go.
const PATHS: &str = "paths.webhook.portcullis.dev";
/// The longest value of [`PATHS`], in bytes.
const PATHS_BYTES: usize = 4 << 10;

/// What the annotations of one request may come to, in bytes, before those of
/// webhooks themselves are dropped: each may send as much as its reply holds.
pub(super) const ALL_BYTES: usize = 1 << 20;

/// The annotations of one request, by key.
pub(super) type AuditAnnotations = BTreeMap<String, String>;

/// That a webhook was to be asked, and whether it changed the object.
pub(super) fn mutation(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    mutated: bool,
) {
    let mut value = named(webhook);
    value.push_str(if mutated {
        ",\"mutated\":true}"
    } else {
        ",\"mutated\":false}"
    });
    add(all, key(MUTATION, round, index), value);
}

/// Which paths a webhook changed, if any; past the bound, how many more.
pub(super) fn paths(
    all: &mut AuditAnnotations,
    (round, index): (usize, usize),
    webhook: &Webhook,
    paths: &[String],
) {
    if paths.is_empty() {
        return;
    }
    let mut value = named(webhook);
    value.push_str(",\"paths\":[");
    let mut written = 0;
    for path in paths {
        let back = value.len();
        value.push_str(if written > 0 { "," } else { "" });
        write_string(&mut value, path);
        if value.len() > PATHS_BYTES {
            value.truncate(back);
            break;
        }
        written += 1;
    }
    value.push(']');
    if written < paths.len() {
        value.push_str(&format!(",\"more\":{}", paths.len() - written));
    }
    value.push('}');
    add(all, key(PATHS, round, index), value);
}

/// That a mutating webhook could not be asked or believed, and was passed over.
pub(super) fn failed_open(all: &mut AuditAnnotations, (round, index): (usize, usize), webhook: &Webhook) {
    add(all, key(MUTATION_FAILED_OPEN, round, index), webhook.name.clone());
}

/// The same of a validating webhook.
pub(super) fn validation_failed_open(all: &mut AuditAnnotations, index: usize, webhook: &Webhook) {
    add(all, key(VALIDATION_FAILED_OPEN, 0, index), webhook.name.clone());
}

/// What the webhook itself wants written, under its name. What is then no
/// qualified name with one slash is dropped, as is what is too much.
pub(super) fn own(all: &mut AuditAnnotations, webhook: &Webhook, annotations: &BTreeMap<String, String>) {
    if annotations.is_empty() {
        return;
    }
    let mut bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    for (name, value) in annotations {
        let key = format!("{}/{name}", webhook.name);
        let more = key.len() + value.len();
        if !name.contains('/') && is_label_key(&key) && more <= ALL_BYTES.saturating_sub(bytes) {
            bytes += more;
            add(all, key, value.clone());
        }
    }
}

/// The first value of a key stays.
fn add(all: &mut AuditAnnotations, key: String, value: String) {
    all.entry(key).or_insert(value);
}

fn key(prefix: &str, round: usize, index: usize) -> String {
    format!("{prefix}/round_{round}_index_{index}")
}

fn named(webhook: &Webhook) -> String {
    let mut value = String::from("{\"configuration\":");
    write_string(&mut value, &webhook.configuration);
    value.push_str(",\"webhook\":");
    write_string(&mut value, &webhook.name);
    value
}
