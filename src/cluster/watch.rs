//! The watch of one kind: list, watch, and resume after errors.
//!
//! A watch that breaks resumes where it stopped, or lists again if the resource version
//! is too old. The objects known so far stay in force meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use kube::api::ApiResource;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use openssl::error::ErrorStack;

use super::kind::{WatchPurpose, WatchedKind};
use super::object::ReceivedObject;
use super::raw::RawObject;
use super::reporter::Reporter;
use super::store::Store;

/// How many objects of a list come at once: each answer is bounded.
const PAGE: u32 = 100;

/// After so many seconds the API server ends a watch, which then goes on: a
/// connection that died silently is noticed no later.
const WATCH: u32 = 60;

/// After so long a kind is listed anew, whatever its watch says: an API server
/// that was restored from a backup reports nothing that is older there than
/// what was known before.
const RELIST: Duration = Duration::from_secs(30 * 60);

/// How long a kind is left alone that the API server does not serve.
const ABSENT: Duration = Duration::from_secs(5);

/// How long a kind is left alone that may not be listed, where everything holds without it.
const UNNEEDED: Duration = Duration::from_secs(10);

/// The shortest and the longest wait after a failure.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Follows one kind for as long as it is polled.
pub(super) struct Watch {
    pub(super) kind: WatchedKind,
    pub(super) client: Client,
    /// Restricts what is selected.
    pub(super) labels: Option<String>,
    pub(super) store: Arc<Store>,
    pub(super) reporter: Reporter,
}

/// A kind as the API server serves it.
struct Served {
    resource: ApiResource,
    api_version: String,
}

// === impl Watch ===

impl Watch {
    pub(super) async fn run(self) {
        let mut failures = 0;
        loop {
            match self.served().await {
                Ok(Some(served)) => self.follow(&served, &mut failures).await,
                Ok(None) => {
                    // Without the kind there are no objects of it: its definition took them along.
                    self.changed(self.store.replace(&self.kind, Vec::new()));
                    self.reporter.listed();
                    tokio::time::sleep(ABSENT).await;
                }
                Err(error) => self.failed(&error, &mut failures).await,
            }
        }
    }

    /// How the API server serves the kind; `None` if it does not.
    async fn served(&self) -> Result<Option<Served>, kube::Error> {
        for version in &self.kind.versions {
            let api_version = self.kind.api_version(version);
            let listed = if self.kind.group.is_empty() {
                self.client.list_core_api_resources(version).await
            } else {
                self.client.list_api_group_resources(&api_version).await
            };
            let resources = match listed {
                Ok(listed) => listed.resources,
                Err(error) if is(&error, 404) => continue,
                Err(error) => return Err(error),
            };
            let watchable = |verbs: &[String]| {
                ["list", "watch"]
                    .iter()
                    .all(|verb| verbs.iter().any(|one| one == verb))
            };
            let found = resources.into_iter().find(|resource| {
                resource.kind == self.kind.kind && !resource.name.contains('/') && watchable(&resource.verbs)
            });
            if let Some(found) = found {
                let resource = ApiResource {
                    group: self.kind.group.clone(),
                    version: version.clone(),
                    api_version: api_version.clone(),
                    kind: found.kind,
                    plural: found.name,
                };
                return Ok(Some(Served {
                    resource,
                    api_version,
                }));
            }
        }
        Ok(None)
    }

    /// Follows the kind until it is not served any more, or to be listed anew.
    async fn follow(&self, served: &Served, failures: &mut u32) {
        let api: Api<RawObject> = Api::all_with(self.client.clone(), &served.resource);
        let config = watcher::Config {
            label_selector: self
                .labels
                .clone()
                .filter(|_| self.kind.role == WatchPurpose::Selected),
            timeout: Some(WATCH),
            page_size: Some(PAGE),
            ..watcher::Config::default()
        };
        let mut events = pin!(watcher::watcher(api, config));
        let mut listing = Vec::new();
        let mut relist = pin!(tokio::time::sleep(RELIST));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut relist => return,
            };
            let Some(event) = event else { return };
            match event {
                Ok(event) => {
                    // A list that only begins may yet fail.
                    if !matches!(event, Event::Init) {
                        *failures = 0;
                    }
                    self.take(event, served, &mut listing);
                }
                Err(error) => {
                    let cause = cause(&error);
                    if cause.is_some_and(|error| is(error, 404)) {
                        return;
                    }
                    if cause.is_some_and(|error| is(error, 403)) {
                        self.changed(self.store.refused(&self.kind));
                        if self.kind.is_optional() {
                            self.do_without(&error).await;
                            continue;
                        }
                    }
                    self.failed(&error, failures).await;
                }
            }
        }
    }

    fn take(&self, event: Event<RawObject>, served: &Served, listing: &mut Vec<ReceivedObject>) {
        let received = |object: &RawObject| {
            ReceivedObject::new(&self.kind, &served.api_version, object.name(), object.text())
        };
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(object) => listing.push(received(&object)),
            Event::InitDone => {
                let all = std::mem::take(listing);
                tracing::debug!(kind = %self.kind, objects = all.len(), "listed");
                self.changed(self.store.replace(&self.kind, all));
                self.reporter.listed();
            }
            Event::Apply(object) => self.changed(self.store.apply(&self.kind, received(&object))),
            Event::Delete(object) => self.changed(self.store.delete(&self.kind, &object.name())),
        }
    }

    fn changed(&self, changed: bool) {
        if changed {
            self.reporter.changed();
        }
        if self.kind.is_own() || self.kind.role == WatchPurpose::Definition {
            self.reporter.standing_changed();
        }
    }

    /// The API server does not let a kind be listed that everything holds without.
    async fn do_without(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) {
        let (kind, error) = (&self.kind, describe(error).text);
        let cluster = &**self.reporter.cluster();
        if self.reporter.is_news(&kind.to_string(), &error, Instant::now()) {
            let missing = match kind.role {
                WatchPurpose::Definition => {
                    "without them no new AuthorizationPolicy with effect Allow and no new AdmissionException is \
                     taken, and Denies with `namespaces` apply to lists of every custom resource: apply \
                     config/cluster/gateway.yaml"
                }
                _ => "their status is not written",
            };
            tracing::warn!(cluster, %kind, error, "may not be listed; {missing}");
        }
        tokio::time::sleep(UNNEEDED).await;
    }

    async fn failed(&self, error: &(dyn std::error::Error + Send + Sync + 'static), failures: &mut u32) {
        let failure = describe(error);
        let kind = &self.kind;
        let cluster = &**self.reporter.cluster();
        let about = if failure.is_answer {
            kind.to_string()
        } else {
            String::new()
        };
        let error = failure.text;
        match (
            self.reporter.failed(&about, &error, Instant::now()),
            failure.is_answer,
        ) {
            (false, _) => tracing::debug!(cluster, %kind, error, "list or watch failed again"),
            (true, true) => {
                tracing::error!(cluster, %kind, error, "list or watch failed: retrying");
            }
            (true, false) => {
                tracing::warn!(
                    cluster,
                    error,
                    "API server unreachable: using the objects known so far"
                );
            }
        }
        tokio::time::sleep(wait(*failures)).await;
        *failures = failures.saturating_add(1);
    }
}

fn cause(error: &watcher::Error) -> Option<&kube::Error> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        _ => None,
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// What a failure says, and whether it is the API server that says it.
struct FailureDescription {
    text: String,
    is_answer: bool,
}

/// What a failure says.
pub(super) fn in_words(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    describe(error).text
}

/// The innermost cause: those around it quote it, or print it for debugging.
fn describe(error: &(dyn std::error::Error + Send + Sync + 'static)) -> FailureDescription {
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    let mut is_answer = false;
    while let Some(source) = innermost.source() {
        innermost = source;
        is_answer |= innermost.is::<Status>() || innermost.is::<Box<Status>>();
    }
    FailureDescription {
        text: words(innermost),
        is_answer,
    }
}

/// What a cause says, without lines of OpenSSL's sources and numbers of the system.
fn words(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    let Some(stack) = cause.downcast_ref::<ErrorStack>() else {
        let words = text.rsplit_once(" (os error ").map(|(words, _)| words.to_owned());
        return words.unwrap_or(text);
    };
    let reason = stack.errors().first().and_then(|error| error.reason());
    reason.map_or(text, of_openssl)
}

fn of_openssl(reason: &str) -> String {
    match reason {
        "certificate verify failed" => {
            "tls: the certificate of the API server is not signed by the kubeconfig's \
             `certificate-authority`, is not for the host of `server`, or has expired"
                .to_owned()
        }
        reason => format!("tls: {reason}"),
    }
}

/// How long to wait after so many failures before, longer each time.
fn wait(failures: u32) -> Duration {
    let (shortest, longest) = WAITS;
    shortest.saturating_mul(1 << failures.min(10)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let waits: Vec<u128> = (0..8).map(|failures| wait(failures).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(wait(u32::MAX).as_millis(), 10_000);
    }

    #[test]
    fn what_the_system_and_openssl_say_is_told_without_numbers_and_lines() {
        let refused = std::io::Error::from_raw_os_error(111);
        let message = describe(&kube::Error::Service(refused.into())).text;
        assert_eq!(message, "Connection refused");
        let stack = openssl::x509::X509::from_pem(b"none").unwrap_err();
        let message = describe(&kube::Error::Service(stack.into())).text;
        assert_eq!(message, "tls: no start line");
        let distrust = of_openssl("certificate verify failed");
        assert!(distrust.contains("`certificate-authority`"), "{distrust}");
    }

    #[test]
    fn what_the_api_server_answers_is_told_from_what_it_could_not_be_asked() {
        let status = Status::failure("roles is forbidden", "Forbidden").with_code(403);
        let answer = watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()));
        let answer = describe(&answer);
        assert!(
            answer.is_answer && answer.text.contains("roles is forbidden"),
            "{}",
            answer.text
        );
        let silence = std::io::Error::other("connection refused");
        assert!(!describe(&kube::Error::Service(silence.into())).is_answer);
    }
}
