//! The watch of one kind: list, watch, and resume after errors.
//!
//! A watch that breaks resumes where it stopped, or lists again if the resource version
//! is too old. The objects known so far stay in force meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use kube::Api;
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event};

use super::failure::{in_words, is_answer};
use super::kind::{WatchPurpose, WatchedKind};
use super::object::ReceivedObject;
use super::raw::RawObject;
use super::reach::{RecentFailures, SharedReach};
use super::reporter::Reporter;
use super::store::{Store, TooMuch};

/// How many objects of a list come at once: each answer is bounded.
const PAGE: u32 = 100;

/// After so long a kind is listed anew, whatever its watch says: an API server
/// that was restored from a backup reports nothing that is older there than
/// what was known before.
const RELIST: Duration = Duration::from_secs(30 * 60);

/// How long a kind is left alone that the API server does not serve.
const ABSENT: Duration = Duration::from_secs(5);

/// How long a kind is left alone of which there is more than is taken: it would be listed in vain.
const TOO_MUCH: Duration = Duration::from_secs(60);

/// How long a kind is left alone that may not be listed, where everything holds without it.
const UNNEEDED: Duration = Duration::from_secs(10);

/// Follows one kind for as long as it is polled.
pub(super) struct Watch {
    pub(super) kind: WatchedKind,
    pub(super) reach: Arc<SharedReach>,
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

/// A list that is not at its end.
#[derive(Default)]
struct Listing {
    objects: Vec<ReceivedObject>,
    bytes: usize,
}

// === impl Watch ===

impl Watch {
    pub(super) async fn run(self) {
        let mut failures = RecentFailures::default();
        loop {
            let served = {
                let _alone = self.reach.turn().await;
                self.served().await
            };
            match served {
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
        let client = self.reach.client();
        for version in &self.kind.versions {
            let api_version = self.kind.api_version(version);
            let listed = if self.kind.group.is_empty() {
                client.list_core_api_resources(version).await
            } else {
                client.list_api_group_resources(&api_version).await
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
    async fn follow(&self, served: &Served, failures: &mut RecentFailures) {
        let api: Api<RawObject> = Api::all_with(self.reach.client().clone(), &served.resource);
        let watch = self.reach.watch();
        let config = watcher::Config {
            label_selector: self
                .labels
                .clone()
                .filter(|_| self.kind.role == WatchPurpose::Selected),
            timeout: u32::try_from(watch.as_secs()).ok(),
            page_size: Some(PAGE),
            ..watcher::Config::default()
        };
        let mut events = pin!(watcher::watcher(api, config));
        let mut listing = Listing::default();
        let mut relist = pin!(tokio::time::sleep(RELIST));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut relist => return,
            };
            let Some(event) = event else { return };
            match event {
                Ok(event) => {
                    if let Err(error) = self.take_in_turn(event, served, &mut listing).await {
                        return self.too_much(error).await;
                    }
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
                    if self.reach.watch() != watch {
                        // The API server is reached by another way.
                        return;
                    }
                }
            }
        }
    }

    /// Takes the event, where no other cluster waits for it.
    async fn take_in_turn(
        &self,
        event: Event<RawObject>,
        served: &Served,
        listing: &mut Listing,
    ) -> Result<(), TooMuch> {
        if !self.kind.has_expressions() {
            return self.take(event, served, listing);
        }
        let turn = self.reach.compile_turn();
        turn.run(|| self.take(event, served, listing)).await
    }

    fn take(&self, event: Event<RawObject>, served: &Served, listing: &mut Listing) -> Result<(), TooMuch> {
        let received = |object: &RawObject| {
            ReceivedObject::new(&self.kind, &served.api_version, object.name(), object.text())
        };
        match event {
            Event::Init => {
                *listing = Listing::default();
                self.store.lists_no_more(&self.kind);
            }
            Event::InitApply(object) => {
                let received = received(&object);
                listing.bytes = listing.bytes.saturating_add(received.bytes());
                self.store.lists(&self.kind, listing.bytes)?;
                listing.objects.push(received);
            }
            Event::InitDone => {
                let all = std::mem::take(listing).objects;
                tracing::debug!(kind = %self.kind, objects = all.len(), "listed");
                self.changed(self.store.replace(&self.kind, all));
                self.reporter.listed();
            }
            Event::Apply(object) => self.changed(self.store.apply_within(&self.kind, received(&object))?),
            Event::Delete(object) => self.changed(self.store.delete(&self.kind, &object.name())),
        }
        Ok(())
    }

    /// The objects known so far are used until there are fewer.
    async fn too_much(&self, error: TooMuch) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        self.store.lists_no_more(kind);
        if self
            .reporter
            .failed(&kind.to_string(), &error.to_string(), Instant::now())
        {
            tracing::error!(cluster, %kind, %error, "not taken: using the objects known so far");
        }
        tokio::time::sleep(TOO_MUCH).await;
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
        let (kind, error) = (&self.kind, in_words(error));
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

    async fn failed(
        &self,
        error: &(dyn std::error::Error + Send + Sync + 'static),
        failures: &mut RecentFailures,
    ) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        let (text, now) = (in_words(error), Instant::now());
        if !is_answer(error) {
            self.reporter.unreachable(&text, now);
            self.reach.lost();
        } else if self.reporter.failed(&kind.to_string(), &text, now) {
            tracing::error!(cluster, %kind, error = text, "list or watch failed: retrying");
        } else {
            tracing::debug!(cluster, %kind, error = text, "list or watch failed again");
        }
        tokio::time::sleep(failures.wait(now)).await;
        drop(self.reach.turn().await);
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
