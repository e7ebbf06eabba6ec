//! The watch of one kind: list, watch, and resume after errors.
//!
//! A watch that breaks resumes where it stopped, or lists again if the resource version
//! is too old. The objects known so far stay in force meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{Instant as Timer, sleep, timeout, timeout_at};

use super::bounded::WATCH_TIMEOUT_SLACK;
use super::kind::{Name, WatchPurpose, WatchedKind};
use super::memory::RoomOwner;
use super::object::ReceivedObject;
use super::reach::{ApiServerConnection, RecentFailures};
use super::reporter::Reporter;
use super::requests::{ApiError, ErrorResponse};
use super::served::{self, AfterPage, EventStream, ServedKind, WatchEvent, numeric_version};
use super::split::SplitObject;
use super::store::{ListEvidence, ListOutcome, Listing, Store};
use super::weight::LeftOutReason;

/// How long a list may take, from its first page to its last.
pub(crate) const MAX_LIST_TIME: Duration = Duration::from_secs(300);

/// How long a list is good for: then the kind is listed again, even if its watch works.
const RELIST_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// How long to wait before looking again for a kind that the API server does not serve.
const ABSENT_RETRY_DELAY: Duration = Duration::from_secs(5);

/// How long to wait before listing a kind again whose list is not believed.
const UNCONFIRMED_RETRY_DELAY: Duration = Duration::from_secs(10);

/// How long to wait before listing a kind again whose list lacked known objects: they may be there
/// again, or have changed meanwhile.
const DOUBTED_RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// How often to check whether there is room for objects that were left out.
pub(crate) const LEFT_OUT_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How long to wait before listing an optional kind again that the gateway may not list.
const FORBIDDEN_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Follows one kind as long as it is polled.
pub(crate) struct Watch {
    pub(crate) kind: WatchedKind,
    pub(crate) reach: Arc<ApiServerConnection>,
    /// The label selector of the kinds that are [selected](WatchPurpose::Selected).
    pub(crate) labels: Option<String>,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// How long one of its lists may take.
    pub(crate) max_list_time: Duration,
    /// [`LEFT_OUT_RETRY_INTERVAL`].
    pub(crate) left_out_period: Duration,
}

/// A list whose objects are in force.
struct TakenList {
    version: String,
    /// How long until the kind is listed again.
    holds_for: Duration,
}

/// How often, and when last, a kind was listed again for the left-out objects of each share of the
/// memory. The wait doubles with each list, so that a user who fills a share and empties it again
/// causes fewer and fewer lists, while other shares do not have to wait.
#[derive(Debug, Default)]
struct LeftOutRetries(BTreeMap<RoomOwner, (u32, Timer)>);

/// What happened to a kind while it was followed.
#[derive(Debug, Default)]
struct WatchHistory {
    failures: RecentFailures,
    retries: LeftOutRetries,
}

/// How a watch ended without an error.
enum WatchEnd {
    /// The kind has to be listed again.
    Relist,
    /// The watch ended normally, and resumes from the last version.
    Resume,
}

// === impl LeftOutRetries ===

impl LeftOutRetries {
    /// Whether to list the kind at `now`, because objects of `shares` have room; if so, counts that
    /// for these shares.
    fn is_due(&mut self, shares: &BTreeSet<RoomOwner>, period: Duration, now: Timer) -> bool {
        let since = |last: Timer| now.saturating_duration_since(last);
        self.0.retain(|_, (_, last)| since(*last) < RELIST_INTERVAL);
        let has_waited = |share: &RoomOwner| {
            let before = self.0.get(share);
            before.is_none_or(|&(lists, last)| {
                let wait = period.saturating_mul(1 << lists.min(10));
                since(last) >= wait.min(RELIST_INTERVAL / 2)
            })
        };
        let is_due = shares.iter().any(has_waited);
        for share in shares.iter().filter(|_| is_due) {
            let (lists, last) = self.0.entry(*share).or_insert((0, now));
            (*lists, *last) = (lists.saturating_add(1), now);
        }
        is_due
    }
}

// === impl Watch ===

impl Watch {
    pub(crate) async fn run(self) {
        let mut history = WatchHistory::default();
        loop {
            match self.list_and_watch(&mut history).await {
                Ok(()) => {}
                Err(error) if error.is(403) => self.refused(&error, &mut history.failures).await,
                Err(error) => self.handle_failure(&error, &mut history.failures).await,
            }
        }
    }

    /// Lists the kind, and watches it until it has to be listed again.
    async fn list_and_watch(&self, history: &mut WatchHistory) -> Result<(), ApiError> {
        let served = {
            let _alone = self.reach.wait_until_reachable().await;
            ServedKind::find(self.reach.server(), &self.kind).await?
        };
        let Some(served) = served else {
            return self.not_served().await;
        };
        let listed = timeout(self.max_list_time, self.list(&served)).await;
        let too_long = |_| ApiError::TooLong("the list", self.max_list_time.as_secs());
        match listed.map_err(too_long)? {
            Ok(Some(listed)) => self.watch(&served, listed, history).await,
            Ok(None) => {
                sleep(UNCONFIRMED_RETRY_DELAY).await;
                Ok(())
            }
            // The kind was served a moment ago, and is no longer.
            Err(error) if error.is(404) => self.not_served().await,
            Err(error) => Err(error),
        }
    }

    /// Handles the response that the kind is not served, which is only believed if there is
    /// evidence for it.
    async fn not_served(&self) -> Result<(), ApiError> {
        if self.store.is_absent(&self.kind) {
            sleep(ABSENT_RETRY_DELAY).await;
            return Ok(());
        }
        let definitions = self.store.newest(&WatchedKind::definitions());
        let evidence = served::evidence_of_absence(self.reach.server(), &self.kind, definitions);
        let evidence = timeout(self.max_list_time, evidence).await;
        let too_long = |_| ApiError::TooLong("the list of definitions", self.max_list_time.as_secs());
        let evidence = evidence.map_err(too_long)??;
        match self.store.not_served(&self.kind, &evidence) {
            Ok(changed) => self.report_change(changed),
            Err(doubt) => {
                self.log_doubt(&doubt.to_string());
                self.report_change(self.kind.affects_decisions_when_unknown());
            }
        }
        self.reporter.listed();
        sleep(ABSENT_RETRY_DELAY).await;
        Ok(())
    }

    /// Lists the kind; `None` if the list is not believed.
    async fn list(&self, served: &ServedKind) -> Result<Option<TakenList>, ApiError> {
        let (mut listing, mut from) = (self.store.begin_list(&self.kind), String::new());
        let (server, max_bytes) = (self.reach.server(), self.kind.max_written_bytes());
        let version = loop {
            let mut page = served.list(server, self.labels(), &from, max_bytes).await?;
            let after = loop {
                match page.next().await? {
                    Ok(object) => {
                        let bytes = object.bytes;
                        self.in_turn(|| self.take_listed(served, object, &mut listing))
                            .await;
                        self.reach.pace(bytes).await;
                    }
                    Err(after) => break after,
                }
            };
            match after {
                AfterPage::Next(next) => from = next,
                AfterPage::End(version) => break version,
            }
        };
        let evidence = ListEvidence {
            version: numeric_version(&version),
            no_server: self.why_not_an_api_server(&listing).await?,
        };
        tracing::debug!(kind = %self.kind, objects = listing.objects, "listed");
        let end = || self.store.end_list(&self.kind, listing, &evidence);
        let outcome = self.in_turn(end).await;
        self.reporter.listed();
        Ok(match outcome {
            ListOutcome::Taken { changed, doubt } => {
                if let Some(doubt) = &doubt {
                    self.log_doubt(&doubt.to_string());
                }
                self.report_change(changed);
                let holds_for = if doubt.is_some() {
                    DOUBTED_RELIST_INTERVAL
                } else {
                    RELIST_INTERVAL
                };
                Some(TakenList { version, holds_for })
            }
            ListOutcome::Unconfirmed(doubt) => {
                self.log_doubt(&doubt.to_string());
                self.store
                    .note_not_followed(&self.kind, &doubt.to_string(), Instant::now());
                self.report_change(self.kind.affects_decisions_when_unknown());
                None
            }
        })
    }

    /// Why the server that responded is not an API server, if the list is empty although objects
    /// are known.
    async fn why_not_an_api_server(&self, listing: &Listing) -> Result<Option<String>, ApiError> {
        if listing.objects > 0 || !self.store.has_any(&self.kind) {
            return Ok(None);
        }
        served::why_not_an_api_server(self.reach.server()).await
    }

    /// Runs `take`. If the kind has expressions, which take long to compile, waits for the
    /// cluster's turn, so that other clusters do not have to wait.
    async fn in_turn<T>(&self, take: impl FnOnce() -> T) -> T {
        if !self.kind.has_expressions() {
            return take();
        }
        self.reach.compile_turn().run(take).await
    }

    fn apply(&self, served: &ServedKind, object: SplitObject) -> bool {
        let (name, received) = self.received(served, object);
        self.store.apply(&self.kind, name, received)
    }

    fn take_listed(&self, served: &ServedKind, object: SplitObject, listing: &mut Listing) {
        let (name, received) = self.received(served, object);
        self.store.add_listed(&self.kind, listing, name, received);
    }

    fn received(
        &self,
        served: &ServedKind,
        object: SplitObject,
    ) -> (Name, Result<ReceivedObject, LeftOutReason>) {
        let SplitObject { head, text, bytes } = object;
        let name = (head.namespace, head.name);
        let max = self.kind.max_written_bytes();
        let received = match text {
            Some(text) => ReceivedObject::new(&self.kind, &served.api_version, name.clone(), &text),
            None => Err(LeftOutReason::TooLarge { bytes, max }),
        };
        (name, received)
    }

    fn labels(&self) -> Option<&str> {
        let labels = self.labels.as_deref();
        labels.filter(|_| self.kind.purpose == WatchPurpose::Selected)
    }

    /// Watches for changes after a list, until the kind has to be listed again.
    async fn watch(
        &self,
        served: &ServedKind,
        listed: TakenList,
        history: &mut WatchHistory,
    ) -> Result<(), ApiError> {
        let (mut version, relist) = (listed.version, Timer::now() + listed.holds_for);
        let mut look = Timer::now() + self.left_out_period;
        while Timer::now() < relist {
            let asked = self.reach.watch();
            let server = self.reach.server();
            let max_bytes = self.kind.max_written_bytes();
            let begun = served.watch(server, self.labels(), &version, asked.as_secs(), max_bytes);
            let ended = match begun.await {
                Ok(mut events) => {
                    self.store.note_followed(&self.kind);
                    let end = relist.min(Timer::now() + asked + WATCH_TIMEOUT_SLACK);
                    let place = (&mut version, &mut look, &mut history.retries);
                    self.take_events(served, &mut events, place, end).await
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(WatchEnd::Resume) => {}
                Ok(WatchEnd::Relist) => break,
                Err(ApiError::Refused(refusal)) if refusal.ends_watch() => break,
                // A watch that broke off can be resumed; an event that cannot be read would be sent
                // again.
                Err(error) if !error.is_answer() => self.handle_failure(&error, &mut history.failures).await,
                Err(error) => return Err(error),
            }
            if self.reach.watch() < asked {
                // The server turned out to speak HTTP/1.1, where watches are shorter.
                break;
            }
        }
        self.store
            .note_not_followed(&self.kind, "it is listed again", Instant::now());
        Ok(())
    }

    /// Takes events until the watch ends, or until `end`. However many arrive, room for left-out
    /// objects is checked for in time.
    async fn take_events(
        &self,
        served: &ServedKind,
        events: &mut EventStream,
        (version, look, retries): (&mut String, &mut Timer, &mut LeftOutRetries),
        end: Timer,
    ) -> Result<WatchEnd, ApiError> {
        loop {
            if Timer::now() >= *look {
                *look = Timer::now() + self.left_out_period;
                let shares = self.store.left_out_with_room(&self.kind);
                if retries.is_due(&shares, self.left_out_period, Timer::now()) {
                    return Ok(WatchEnd::Relist);
                }
            }
            let event = match timeout_at(end.min(*look), events.next()).await {
                Ok(event) => event?,
                Err(_) if Timer::now() < end => continue,
                Err(_) => None,
            };
            let Some(event) = event else {
                return Ok(WatchEnd::Resume);
            };
            match event {
                WatchEvent::Changed(object) => {
                    self.check_version(&object.head.resource_version)?;
                    version.clone_from(&object.head.resource_version);
                    let bytes = object.bytes;
                    let changed = self.in_turn(|| self.apply(served, object)).await;
                    self.report_change(changed);
                    self.reach.pace(bytes).await;
                }
                WatchEvent::Deleted(object) => {
                    self.check_version(&object.head.resource_version)?;
                    if numeric_version(&object.head.resource_version).is_none() {
                        // The object may have been deleted long ago and created again, which only a
                        // list shows.
                        return Ok(WatchEnd::Relist);
                    }
                    *version = object.head.resource_version;
                    let name = (object.head.namespace, object.head.name);
                    self.report_change(self.store.delete(&self.kind, &name));
                }
                WatchEvent::Bookmark(at) => {
                    self.check_version(&at)?;
                    *version = at;
                }
                WatchEvent::Ended(status) => {
                    let refusal = ErrorResponse::of_event(&status).unwrap_or_default();
                    return Err(ApiError::Refused(Box::new(refusal)));
                }
            }
        }
    }

    /// Rejects a version that is, or may be, older than what is known.
    fn check_version(&self, version: &str) -> Result<(), ApiError> {
        if self.store.is_newer(&self.kind, numeric_version(version)) {
            return Ok(());
        }
        let what = format!("the watch of {}", self.kind);
        Err(ApiError::unexpected(
            &what,
            match numeric_version(version) {
                Some(_) => format!("version {version} is older than the known one"),
                None => format!("version {version} is not a number, so it may be older than the known one"),
            },
        ))
    }

    fn report_change(&self, changed: bool) {
        if changed {
            self.reporter.changed();
        }
        if self.kind.is_own() || self.kind.purpose == WatchPurpose::Definition {
            self.reporter.conditions_changed();
        }
    }

    /// Logs that an absence is not believed.
    fn log_doubt(&self, doubt: &str) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        if self.reporter.is_news(&kind.to_string(), doubt, Instant::now()) {
            tracing::error!(
                cluster, %kind, doubt,
                "objects are missing without evidence of their deletion: the known ones stay in force; if \
                they were deleted, confirm it with `portcullis serve --accept-absence`"
            );
        }
    }

    /// Handles a 403: the gateway may not list or watch the kind.
    async fn refused(&self, error: &ApiError, failures: &mut RecentFailures) {
        let is_registration = self.kind.purpose == WatchPurpose::Registration;
        self.report_change(self.store.refused(&self.kind) | is_registration);
        if !self.kind.is_optional() {
            return self.handle_failure(error, failures).await;
        }
        let (kind, error) = (&self.kind, error.to_string());
        let cluster = &**self.reporter.cluster();
        if self.reporter.is_news(&kind.to_string(), &error, Instant::now()) {
            let missing = match kind.purpose {
                WatchPurpose::Definition => {
                    "without them no new AuthorizationPolicy with effect Allow and no new AdmissionException is \
                     taken, and Denies with `namespaces` apply to lists of every custom resource: apply \
                     config/cluster/gateway.yaml"
                }
                WatchPurpose::Registration => {
                    "Allows with objectConditions grant nothing: apply config/cluster/admission.yaml"
                }
                WatchPurpose::AccessRequest => {
                    "none of them grants anything: apply config/cluster/gateway.yaml"
                }
                WatchPurpose::Invariant => "none of them is checked: apply config/cluster/gateway.yaml",
                _ => "their status is not written",
            };
            tracing::warn!(cluster, %kind, error, "may not be listed; {missing}");
        }
        sleep(FORBIDDEN_RETRY_DELAY).await;
    }

    async fn handle_failure(&self, error: &ApiError, failures: &mut RecentFailures) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        let (text, now) = (error.to_string(), Instant::now());
        self.store.note_not_followed(kind, &text, now);
        if !error.is_answer() {
            self.reporter.unreachable(&text, now);
            self.reach.lost();
        } else if self.reporter.failed(&kind.to_string(), &text, now) {
            tracing::error!(cluster, %kind, error = text, "list or watch failed: retrying");
        } else {
            tracing::debug!(cluster, %kind, error = text, "list or watch failed again");
        }
        sleep(failures.wait(now)).await;
        drop(self.reach.wait_until_reachable().await);
    }
}

#[cfg(test)]
mod tests;
