//! The watch of one kind: list, watch, and resume after errors.
//!
//! A watch that breaks resumes where it stopped, or lists again if the resource version
//! is too old. The objects known so far stay in force meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{Instant as Timer, sleep, timeout, timeout_at};

use super::bounded::OVERDUE;
use super::evidence;
use super::kind::{Name, WatchPurpose, WatchedKind};
use super::object::ReceivedObject;
use super::reach::{RecentFailures, SharedReach};
use super::reporter::Reporter;
use super::requests::{ApiError, ErrorResponse};
use super::served::{AfterPage, EventStream, ServedKind, WatchEvent, comparable};
use super::split::SplitObject;
use super::store::{ListEvidence, ListOutcome, Listing, Store};
use super::weight::LeftOutReason;

/// How long a list may take, from its first page to its last.
pub(crate) const MAX_LIST_TIME: Duration = Duration::from_secs(300);

/// After so long a kind is listed again, whatever its watch says.
const RELIST: Duration = Duration::from_secs(30 * 60);

/// How long a kind is left alone that the API server does not serve.
const ABSENT: Duration = Duration::from_secs(5);

/// How long a kind is left alone whose list is not believed.
const NOT_BELIEVED: Duration = Duration::from_secs(10);

/// After so long a kind is listed again of which a list lacked objects that are known: they may
/// be there again, or have changed meanwhile.
const DOUBTED: Duration = Duration::from_secs(60);

/// How often it is looked whether there is room for what was left out.
pub(crate) const LEFT_OUT: Duration = Duration::from_secs(60);

/// How long a kind is left alone that may not be listed, where everything holds without it.
const UNNEEDED: Duration = Duration::from_secs(10);

/// Follows one kind for as long as it is polled.
pub(crate) struct Watch {
    pub(crate) kind: WatchedKind,
    pub(crate) reach: Arc<SharedReach>,
    /// Restricts what is selected.
    pub(crate) labels: Option<String>,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// How long one of its lists may take.
    pub(crate) max_list_time: Duration,
    /// [`LEFT_OUT`].
    pub(crate) left_out_period: Duration,
}

/// A list whose objects are in force.
struct TakenList {
    version: String,
    /// After so long the kind is listed again.
    holds_for: Duration,
}

/// Why a watch does not go on from where it is.
enum WatchEnd {
    /// It is to be listed again.
    Relist,
    /// It ended by itself, and goes on from the last version.
    Resume,
}

// === impl Watch ===

impl Watch {
    pub(crate) async fn run(self) {
        let mut failures = RecentFailures::default();
        loop {
            match self.follow(&mut failures).await {
                Ok(()) => {}
                Err(error) if error.is(403) => self.refused(&error, &mut failures).await,
                Err(error) => self.failed(&error, &mut failures).await,
            }
        }
    }

    /// Lists the kind, and watches it until it is to be listed again.
    async fn follow(&self, failures: &mut RecentFailures) -> Result<(), ApiError> {
        let served = {
            let _alone = self.reach.turn().await;
            ServedKind::find(self.reach.server(), &self.kind).await?
        };
        let Some(served) = served else {
            return self.not_served().await;
        };
        let listed = timeout(self.max_list_time, self.list(&served)).await;
        let too_long = |_| ApiError::TooLong("the list", self.max_list_time.as_secs());
        match listed.map_err(too_long)? {
            Ok(Some(listed)) => self.watch(&served, listed, failures).await,
            Ok(None) => {
                sleep(NOT_BELIEVED).await;
                Ok(())
            }
            // What was served a moment ago is not any more.
            Err(error) if error.is(404) => self.not_served().await,
            Err(error) => Err(error),
        }
    }

    /// The kind is not served, or something says so.
    async fn not_served(&self) -> Result<(), ApiError> {
        if self.store.is_absent(&self.kind) {
            sleep(ABSENT).await;
            return Ok(());
        }
        let definitions = self.store.newest(&WatchedKind::definitions());
        let evidence = evidence::of_absence(self.reach.server(), &self.kind, definitions);
        let evidence = timeout(self.max_list_time, evidence).await;
        let too_long = |_| ApiError::TooLong("the list of definitions", self.max_list_time.as_secs());
        let evidence = evidence.map_err(too_long)??;
        match self.store.not_served(&self.kind, &evidence) {
            Ok(changed) => self.changed(changed),
            Err(doubt) => {
                self.doubted(&doubt.to_string());
                // What is not known of parameters decides too.
                self.changed(self.kind.role == WatchPurpose::Parameter);
            }
        }
        self.reporter.listed();
        sleep(ABSENT).await;
        Ok(())
    }

    /// The list that was taken; `None` where it is not believed.
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
            version: comparable(&version),
            no_server: self.no_server(&listing).await?,
        };
        tracing::debug!(kind = %self.kind, objects = listing.objects, "listed");
        let end = || self.store.end_list(&self.kind, listing, &evidence);
        let outcome = self.in_turn(end).await;
        self.reporter.listed();
        Ok(match outcome {
            ListOutcome::Taken { changed, doubt } => {
                if let Some(doubt) = &doubt {
                    self.doubted(&doubt.to_string());
                }
                self.changed(changed);
                let holds_for = if doubt.is_some() { DOUBTED } else { RELIST };
                Some(TakenList { version, holds_for })
            }
            ListOutcome::NotBelieved(doubt) => {
                self.doubted(&doubt.to_string());
                self.store
                    .is_not_followed(&self.kind, &doubt.to_string(), Instant::now());
                self.changed(self.kind.role == WatchPurpose::Parameter);
                None
            }
        })
    }

    /// Why who answered is no API server, where that matters.
    async fn no_server(&self, listing: &Listing) -> Result<Option<String>, ApiError> {
        if listing.objects > 0 || !self.store.has_any(&self.kind) {
            return Ok(None);
        }
        evidence::no_server(self.reach.server()).await
    }

    /// Runs `take`, which may compile expressions, where no other cluster waits for it.
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
        self.store.list(&self.kind, listing, name, received);
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
        labels.filter(|_| self.kind.role == WatchPurpose::Selected)
    }

    /// Watches what comes after a list, until the kind is to be listed again.
    async fn watch(
        &self,
        served: &ServedKind,
        listed: TakenList,
        failures: &mut RecentFailures,
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
                    self.store.is_followed(&self.kind);
                    let end = relist.min(Timer::now() + asked + OVERDUE);
                    let place = (&mut version, &mut look);
                    self.take_events(served, &mut events, place, end).await
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(WatchEnd::Resume) => {}
                Ok(WatchEnd::Relist) => break,
                Err(ApiError::Refused(refusal)) if refusal.ends_watch() => break,
                // What breaks off can go on; what cannot be read would come again.
                Err(error) if !error.is_answer() => self.failed(&error, failures).await,
                Err(error) => return Err(error),
            }
            if self.reach.watch() != asked && self.reach.watch() < asked {
                // The API server is reached by another way.
                break;
            }
        }
        self.store
            .is_not_followed(&self.kind, "it is listed again", Instant::now());
        Ok(())
    }

    /// Takes events until the watch ends, or it is `end`. However many come, it is looked for room
    /// in time.
    async fn take_events(
        &self,
        served: &ServedKind,
        events: &mut EventStream,
        (version, look): (&mut String, &mut Timer),
        end: Timer,
    ) -> Result<WatchEnd, ApiError> {
        loop {
            if Timer::now() >= *look {
                *look = Timer::now() + self.left_out_period;
                if self.store.may_take_more(&self.kind) {
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
                    self.changed(changed);
                    self.reach.pace(bytes).await;
                }
                WatchEvent::Deleted(object) => {
                    self.check_version(&object.head.resource_version)?;
                    *version = object.head.resource_version;
                    let name = (object.head.namespace, object.head.name);
                    self.changed(self.store.delete(&self.kind, &name));
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

    /// What is older than what is known is not believed.
    fn check_version(&self, version: &str) -> Result<(), ApiError> {
        if self.store.is_newer(&self.kind, comparable(version)) {
            return Ok(());
        }
        let what = format!("the watch of {}", self.kind);
        Err(ApiError::unexpected(
            &what,
            format!("version {version} is older than what is known"),
        ))
    }

    fn changed(&self, changed: bool) {
        if changed {
            self.reporter.changed();
        }
        if self.kind.is_own() || self.kind.role == WatchPurpose::Definition {
            self.reporter.standing_changed();
        }
    }

    /// Something is absent, and that is not believed.
    fn doubted(&self, doubt: &str) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        if self.reporter.is_news(&kind.to_string(), doubt, Instant::now()) {
            tracing::error!(
                cluster, %kind, doubt,
                "absence not believed: what was known stays in force; if it is gone, confirm that with \
                 `portcullis serve --accept-absence`"
            );
        }
    }

    /// The API server does not let the kind be listed or watched.
    async fn refused(&self, error: &ApiError, failures: &mut RecentFailures) {
        self.changed(self.store.refused(&self.kind));
        if !self.kind.is_optional() {
            return self.failed(error, failures).await;
        }
        let (kind, error) = (&self.kind, error.to_string());
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
        sleep(UNNEEDED).await;
    }

    async fn failed(&self, error: &ApiError, failures: &mut RecentFailures) {
        let (kind, cluster) = (&self.kind, &**self.reporter.cluster());
        let (text, now) = (error.to_string(), Instant::now());
        self.store.is_not_followed(kind, &text, now);
        if !error.is_answer() {
            self.reporter.unreachable(&text, now);
            self.reach.lost();
        } else if self.reporter.failed(&kind.to_string(), &text, now) {
            tracing::error!(cluster, %kind, error = text, "list or watch failed: retrying");
        } else {
            tracing::debug!(cluster, %kind, error = text, "list or watch failed again");
        }
        sleep(failures.wait(now)).await;
        drop(self.reach.turn().await);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{StatusCode, Uri};
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::bounded::SpokenProtocol;
    use crate::cluster::fixtures::{TestAnswer, api_server, block_on};
    use crate::cluster::memory::WatchedMemory;
    use portcullis_cel::Version;

    const RBAC: &str = "rbac.authorization.k8s.io/v1";

    fn roles() -> WatchedKind {
        WatchedKind::of_object(RBAC, "ClusterRole")
    }

    fn watch(max_list_time: Duration, answer: impl Fn(&Uri) -> TestAnswer + Send + 'static) -> Watch {
        let reporter = Reporter::new("east", Arc::default());
        let reach = SharedReach::new(api_server(answer), SpokenProtocol::default(), reporter.clone());
        Watch {
            kind: roles(),
            reach: Arc::new(reach),
            labels: None,
            store: Arc::new(Store::new("east", None, Version::NEWEST)),
            reporter,
            max_list_time,
            left_out_period: LEFT_OUT,
        }
    }

    fn ok(answer: Value) -> TestAnswer {
        (StatusCode::OK, answer)
    }

    /// What is served of RBAC.
    fn resources() -> TestAnswer {
        let verbs = ["list", "watch"];
        let roles = json!({"name": "clusterroles", "kind": "ClusterRole", "verbs": verbs});
        ok(json!({"kind": "APIResourceList", "groupVersion": RBAC, "resources": [roles]}))
    }

    fn role(name: &str, version: &str) -> Value {
        json!({
            "metadata": {"name": name, "resourceVersion": version},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        })
    }

    /// A list of version 100.
    fn list(items: &[Value], next: &str) -> TestAnswer {
        let metadata = json!({"resourceVersion": "100", "continue": next});
        ok(json!({"kind": "ClusterRoleList", "apiVersion": RBAC, "metadata": metadata, "items": items}))
    }

    fn is_list(uri: &Uri) -> bool {
        uri.path().ends_with("/clusterroles")
    }

    fn is_watch(uri: &Uri) -> bool {
        uri.query().is_some_and(|query| query.contains("watch=true"))
    }

    fn not_found() -> TestAnswer {
        (StatusCode::NOT_FOUND, json!("default backend - 404"))
    }

    /// One whose store has a role, which was listed at version 100.
    fn with_a_role(answer: impl Fn(&Uri) -> TestAnswer + Send + 'static) -> Watch {
        let watch = watch(MAX_LIST_TIME, answer);
        let text = role("a", "1").to_string();
        let name = (String::new(), "a".to_owned());
        let received = ReceivedObject::new(&watch.kind, RBAC, name.clone(), text.as_bytes());
        let mut listing = watch.store.begin_list(&watch.kind);
        watch.store.list(&watch.kind, &mut listing, name, received);
        let evidence = ListEvidence {
            version: Some(100),
            no_server: None,
        };
        watch.store.end_list(&watch.kind, listing, &evidence);
        watch
    }

    /// Follows until there is a doubt, or until that ends.
    async fn doubt(watch: &Watch) -> String {
        let doubted = async {
            while watch.store.status().doubts.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let mut failures = RecentFailures::default();
        tokio::select! {
            _ = watch.follow(&mut failures) => {}
            () = doubted => {}
        }
        watch.store.status().doubts.concat()
    }

    #[test]
    fn a_list_that_never_ends_is_given_up() {
        let error = block_on(async {
            let watch = watch(Duration::from_millis(20), |uri| match is_list(uri) {
                true => list(&[role("a", "1")], "more"),
                false => resources(),
            });
            watch.follow(&mut RecentFailures::default()).await.unwrap_err()
        });
        assert!(matches!(error, ApiError::TooLong("the list", _)), "{error}");
    }

    #[test]
    fn definitions_whose_list_never_ends_are_no_evidence() {
        let error = block_on(async {
            let server = |uri: &Uri| match uri.path() {
                "/api" => ok(json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": ""}}]})),
                "/apis" => {
                    let names = ["apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io"];
                    let groups = names.map(|name| json!({"metadata": {"name": name}}));
                    ok(json!({"kind": "APIGroupDiscoveryList", "items": groups}))
                }
                "/apis/apiextensions.k8s.io/v1" => {
                    let definitions = json!({"name": "customresourcedefinitions",
                        "kind": "CustomResourceDefinition", "verbs": ["list", "watch"]});
                    ok(json!({"kind": "APIResourceList", "resources": [definitions]}))
                }
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => ok(json!({
                    "kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
                    "metadata": {"resourceVersion": "1", "continue": "more"}, "items": [],
                })),
                _ => not_found(),
            };
            let watch = watch(Duration::from_millis(20), server);
            watch.follow(&mut RecentFailures::default()).await.unwrap_err()
        });
        assert!(
            matches!(error, ApiError::TooLong("the list of definitions", _)),
            "{error}"
        );
    }

    #[test]
    fn a_list_that_is_not_found_is_no_empty_list() {
        for paths in ["the list", "everything"] {
            let doubt = block_on(async {
                let watch = with_a_role(move |uri| match is_list(uri) || paths == "everything" {
                    true => not_found(),
                    false => resources(),
                });
                doubt(&watch).await
            });
            let expected = "ClusterRole.rbac.authorization.k8s.io: it is not served, 1 of its objects are known, and `/api`";
            assert!(doubt.starts_with(expected), "{paths}: {doubt}");
        }
    }

    #[test]
    fn an_empty_list_of_what_lists_no_groups_is_not_believed() {
        let doubt = block_on(async {
            let watch = with_a_role(|uri| match uri.path() {
                "/api" | "/apis" => not_found(),
                _ if is_watch(uri) => ok(json!({})),
                _ if is_list(uri) => list(&[], ""),
                _ => resources(),
            });
            doubt(&watch).await
        });
        assert!(
            doubt.contains("the list is empty where 1 objects are known, and `/api`"),
            "{doubt}"
        );
    }

    #[test]
    fn an_event_that_is_older_than_what_is_known_is_not_believed() {
        for (sort, version) in [
            ("MODIFIED", "99"),
            ("ADDED", "99"),
            ("DELETED", "99"),
            ("BOOKMARK", "99"),
        ] {
            let (error, has_role) = block_on(async {
                let watch = with_a_role(move |uri| match is_list(uri) {
                    true if is_watch(uri) => ok(json!({"type": sort, "object": role("a", version)})),
                    true => list(&[role("a", "1")], ""),
                    false => resources(),
                });
                let error = watch.follow(&mut RecentFailures::default()).await.unwrap_err();
                (error.to_string(), watch.store.has_any(&watch.kind))
            });
            let expected =
                "the watch of ClusterRole.rbac.authorization.k8s.io: version 99 is older than what is known";
            assert!(error.ends_with(expected), "{sort}: {error}");
            assert!(has_role, "{sort}");
        }
    }

    #[test]
    fn what_fails_to_be_followed_is_not_up_to_date() {
        block_on(async {
            let watch = with_a_role(|_| (StatusCode::INTERNAL_SERVER_ERROR, json!("no")));
            let minute = Duration::from_secs(60);
            let failed = async {
                while watch.store.outdated_at(Instant::now() + minute).is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            let mut failures = RecentFailures::default();
            let error = watch.follow(&mut failures).await.unwrap_err();
            assert!(watch.store.outdated_at(Instant::now() + minute).is_empty());
            tokio::select! {
                () = watch.failed(&error, &mut failures) => {}
                () = failed => {}
            }
            let outdated = watch.store.outdated_at(Instant::now() + minute);
            assert!(outdated.len() == 1 && outdated[0].contains("500"), "{outdated:?}");
        });
    }

    #[test]
    fn an_object_of_which_too_much_is_written_is_left_out() {
        let left_out = block_on(async {
            let mut large = role("large", "2");
            large["metadata"]["annotations"] = json!({"a": "x".repeat(2 << 20)});
            let watch = watch(MAX_LIST_TIME, move |uri| match is_list(uri) {
                true => list(&[large.clone(), role("small", "3")], ""),
                false => resources(),
            });
            let served = ServedKind::find(watch.reach.server(), &watch.kind).await.unwrap();
            watch.list(&served.unwrap()).await.unwrap();
            watch.store.status().left_out.rbac
        });
        assert_eq!(left_out, 1);
    }

    /// However often something comes, as here all the time.
    #[test]
    fn what_was_left_out_is_listed_again_once_there_is_room() {
        let (lists, left_out) = block_on(async {
            let memory = Arc::new(WatchedMemory::default());
            memory.limit(1 << 10);
            let requests = Arc::new(Mutex::new((0, 0)));
            let (asked, room) = (Arc::clone(&requests), Arc::clone(&memory));
            let answering = watch(MAX_LIST_TIME, move |uri| {
                let (lists, watches) = &mut *asked.lock().unwrap();
                if !is_list(uri) {
                    return resources();
                }
                if is_watch(uri) {
                    *watches += 1;
                    room.limit(64 << 20);
                    let metadata = json!({"resourceVersion": "1000"});
                    return ok(json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
                }
                *lists += 1;
                list(&[role("a", "1")], "")
            });
            let store = Store::sharing(&Arc::default(), memory.cluster(), "east", Version::NEWEST);
            let watch = Watch {
                store: Arc::new(store),
                left_out_period: Duration::ZERO,
                ..answering
            };
            let watches = || requests.lock().unwrap().1;
            let mut failures = RecentFailures::default();
            let follow = async { while watch.follow(&mut failures).await.is_ok() {} };
            let listed_again = async {
                while watches() == 0 || watch.store.status().left_out.rbac > 0 && watches() < 20 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = follow => panic!("it failed"),
                () = listed_again => {}
            }
            let lists = requests.lock().unwrap().0;
            (lists, watch.store.status().left_out.rbac)
        });
        assert_eq!((lists, left_out), (2, 0));
    }

    #[test]
    fn what_has_expressions_waits_for_its_turn() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let order = Mutex::new(Vec::new());
        runtime.block_on(async {
            let mut policies = watch(MAX_LIST_TIME, |_| not_found());
            policies.kind =
                WatchedKind::of_object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
            let reach = Arc::clone(&policies.reach);
            let roles = Watch {
                reach,
                ..watch(MAX_LIST_TIME, |_| not_found())
            };
            let turn = policies.reach.compile_turn().begin().await;
            let waiting = policies.in_turn(|| order.lock().unwrap().push("policies"));
            let going_on = async {
                roles.in_turn(|| order.lock().unwrap().push("roles")).await;
                drop(turn);
            };
            // The first is polled first.
            tokio::join!(waiting, going_on);
        });
        assert_eq!(*order.lock().unwrap(), ["roles", "policies"]);
    }
}
