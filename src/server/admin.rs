//! The admin listener: probes and metrics over plain HTTP.
//!
//! | path | response |
//! |---|---|
//! | `/livez` | 200 as long as the process responds |
//! | `/readyz`, `/healthz` | 200 while reviews are served; 503 while starting and draining |
//! | `/metrics` | Prometheus' text format |
//!
//! With `?verbose` a probe lists its checks as kube-apiserver does, the revision and the files in
//! force, and the state of the watched clusters. Names of objects are shown to loopback clients
//! only. A failed reload does not make the gateway unready, because the last good files are in
//! force.
//!
//! A cluster whose objects are not known yet makes the gateway unready, but only for a limited
//! time: an API server that reaches the gateway only while it is ready could otherwise never be
//! watched.
//!
//! The listener has a thread and a connection limit of its own, so that probes are answered even if
//! the listener for reviews is overloaded.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_rt::Arbiter;
use actix_service::{IntoServiceFactory as _, Service as _, ServiceFactory as _, map_config};
use actix_web::dev::AppConfig;
use actix_web::http::StatusCode;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::accept::Connections;
use super::accept::{self, AcceptedConnection, Connection};
use super::gateway::GatewayState;
use super::gateway::LifecyclePhase;
use super::http1;
use crate::config::{ConnectionLimits, HeldBack};
use crate::state::{Change, KnownWebhookConfigurations, LeftOutCounts, Origin, Snapshot, SourceStatus};
use crate::telemetry::metrics::ClusterState;
use crate::webhooks;
use portcullis_policy::admission::webhook::Webhook;
use portcullis_policy::authorization::AccessRequestState;
use portcullis_policy::field::{Faults, Severity};
use portcullis_policy::model::Time;

/// How long a cluster without known objects keeps the gateway unready.
const MAX_CLUSTER_WAIT: Duration = Duration::from_secs(30);

/// The routes of the admin listener.
fn routes(config: &mut ServiceConfig) {
    config
        .route("/metrics", web::get().to(metrics))
        .route("/livez", web::get().to(livez))
        .route("/readyz", web::get().to(readyz))
        .route("/healthz", web::get().to(readyz));
}

async fn metrics(shared: Data<GatewayState>) -> HttpResponse {
    let clusters = shared.state.source().status();
    shared
        .metrics
        .clusters(clusters.iter().map(|status| ClusterState {
            cluster: &status.cluster,
            synced: status.origin == Origin::Live,
            objects: status.objects,
            faulty: status.faulty,
            failures: status.failures,
            unconfirmed_absences: status.doubts.len(),
            outdated_kinds: status.outdated.len(),
            left_out: [
                ("rbac", status.left_out.rbac),
                ("policies", status.left_out.policies),
                ("parameters", status.left_out.parameters),
                ("accessRequests", status.left_out.access_requests),
            ],
        }));
    let snapshot = shared.state.current();
    shared
        .metrics
        .cluster_webhooks_left_out(snapshot.upstreams.left_out());
    shared.metrics.access_requests(access_request_states(&snapshot));
    match shared.metrics.encode() {
        Ok(text) => HttpResponse::Ok()
            .content_type("text/plain; version=0.0.4; charset=utf-8")
            .body(text),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            HttpResponse::InternalServerError().finish()
        }
    }
}

/// The current state of each AccessRequest.
fn access_request_states(snapshot: &Snapshot) -> impl Iterator<Item = AccessRequestState> {
    let now = Time::from(SystemTime::now());
    let sets = snapshot.policies.clusters.values();
    sets.flat_map(move |set| {
        let trust = set.access_request_trust();
        set.access_requests()
            .iter()
            .map(move |request| request.state(trust, now))
    })
}

async fn livez(request: HttpRequest) -> HttpResponse {
    answer(&request, "livez", &[PING], "")
}

async fn readyz(request: HttpRequest, shared: Data<GatewayState>) -> HttpResponse {
    let serving = ProbeCheck {
        name: "serving",
        fault: match shared.lifecycle.phase() {
            LifecyclePhase::Starting => Some("starting"),
            LifecyclePhase::Serving => None,
            LifecyclePhase::Draining => Some("draining"),
        },
    };
    let clusters = shared.state.source().status();
    let known = ProbeCheck {
        name: "clusters",
        fault: unready_reason(&clusters, shared.start.elapsed()),
    };
    let named = is_local(request.peer_addr());
    let clusters_detail: String = clusters.iter().map(|status| describe(status, named)).collect();
    let detail = in_force(&shared, named) + &clusters_detail;
    let checks = [PING, serving, known];
    let checks = if clusters.is_empty() {
        checks.get(..2).unwrap_or_default()
    } else {
        &checks
    };
    answer(&request, "readyz", checks, &detail)
}

/// Why the clusters keep the gateway unready, `elapsed` after its start; `None` if they do not.
fn unready_reason(clusters: &[SourceStatus], elapsed: Duration) -> Option<&'static str> {
    let unknown = clusters.iter().any(|status| status.origin == Origin::None);
    (unknown && elapsed < MAX_CLUSTER_WAIT).then_some("the objects of a cluster are not known yet")
}

/// Describes the state of one cluster, and the faults of its objects if `named`.
fn describe(status: &SourceStatus, named: bool) -> String {
    let SourceStatus {
        cluster,
        objects,
        faulty,
        ..
    } = status;
    let origin = match status.origin {
        Origin::None => "not synced yet: only the files are in force".to_owned(),
        Origin::Saved => format!("not synced yet: {objects} saved objects are in force"),
        Origin::Live => format!("synced: {objects} objects are in force"),
    };
    let mut text = format!("cluster {cluster} is {origin}; {faulty} have errors\n");
    for doubt in &status.doubts {
        text.push_str(&format!(
            "  objects are missing without evidence of their deletion, the known ones are in force: {doubt}; \
            if they were deleted, confirm it with `portcullis serve --accept-absence {cluster}`\n"
        ));
    }
    for outdated in &status.outdated {
        text.push_str(&format!("  not up to date: {outdated}\n"));
    }
    text.push_str(&describe_left_out(status.left_out));
    let faults = status.faults.iter().filter(|_| named);
    for fault in faults.flat_map(Faults::iter) {
        text.push_str(&format!("  {fault}\n"));
    }
    text
}

/// Describes the webhook configurations of `cluster` that are known and, if `named`, why some do
/// not count.
fn describe_webhook_configurations(cluster: &str, known: &KnownWebhookConfigurations, named: bool) -> String {
    let known = match known {
        KnownWebhookConfigurations::Known(known) => known,
        KnownWebhookConfigurations::Unproven(why) => {
            return format!(
                "cluster {cluster}: Allows with objectConditions grant nothing, because its webhook configurations are \
                 not known: {why}\n"
            );
        }
    };
    let mut text = format!(
        "cluster {cluster}: {} of its webhooks count as calling this gateway\n",
        known.fit().count()
    );
    for (webhook, why) in known.unfit().filter(|_| named) {
        let Webhook {
            configuration, name, ..
        } = webhook;
        text.push_str(&format!("  {configuration}/{name} does not count: {why}\n"));
    }
    text
}

/// Describes how many objects are left out, and the consequence.
fn describe_left_out(counts: LeftOutCounts) -> String {
    let LeftOutCounts {
        rbac,
        policies,
        parameters,
        access_requests,
    } = counts;
    let lines = [
        (
            policies,
            "policies are left out, so that what they restrict is not restricted",
        ),
        (
            parameters,
            "parameters are left out, so that policies which take them fail",
        ),
        (
            rbac,
            "objects of RBAC and Namespaces are left out, so that they grant nothing",
        ),
        (
            access_requests,
            "AccessRequests are left out, so that they grant nothing",
        ),
    ];
    let told = lines.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("  {count} {what}\n")).collect()
}

/// Describes what is in force, what the last reload changed, and whether newer files were rejected.
/// Objects are `named` for loopback clients only.
fn in_force(shared: &GatewayState, named: bool) -> String {
    let mut text = format!("revision {} is in force\n", shared.state.current().revision);
    if let Some(change) = shared.state.last_change() {
        text.push_str(&describe_change(&change, named));
    }
    let current = shared.state.current();
    for cluster in current.unknown_clusters() {
        text.push_str(&format!(
            "the policies of cluster {cluster} are not known: its own files have errors, and there is no \
            earlier version; its requests are answered with 503\n"
        ));
    }
    text.push_str(&describe_held_back(&current.held_back, named));
    text.push_str(&describe_held_objects(&current.held_objects, named));
    for (cluster, known) in current.registrations() {
        text.push_str(&describe_webhook_configurations(cluster, known, named));
    }
    for (cluster, left_out) in current.upstreams.left_out() {
        text.push_str(&format!(
            "cluster {cluster}: {}\n",
            webhooks::describe_left_out(left_out)
        ));
    }
    if let Some(failure) = shared.state.last_failure() {
        if failure.is_hanging {
            text.push_str(
                "the files on disk are not in force: a reload has not finished; the log names the \
                 file that it is reading\n",
            );
            return text;
        }
        let faults = count(&failure.faults);
        text.push_str(&format!(
            "the files on disk are not in force: they have {faults}; see the log\n"
        ));
    }
    text
}

/// Describes the clusters whose files are held back and, if `named`, their faults.
fn describe_held_back(held_back: &HeldBack, named: bool) -> String {
    let mut text = String::new();
    for (cluster, faults) in held_back {
        let count = count(faults);
        text.push_str(&format!(
            "the files of cluster {cluster} are not in force as they are: they have {count}; see the log\n"
        ));
        for fault in faults.iter().filter(|_| named) {
            text.push_str(&format!("  {fault}\n"));
        }
    }
    text
}

/// Describes how many objects `reload.refuse` holds back and, if `named`, which ones and why.
fn describe_held_objects(refused: &Faults, named: bool) -> String {
    let mut text = match refused.len() {
        0 => return String::new(),
        1 => "1 object of the files is held back by `reload.refuse`; see the log\n".to_owned(),
        count => format!("{count} objects of the files are held back by `reload.refuse`; see the log\n"),
    };
    for fault in refused.iter().filter(|_| named) {
        text.push_str(&format!("  {fault}\n"));
    }
    text
}

fn count(faults: &Faults) -> String {
    let errors = faults.iter().filter(|fault| fault.severity == Severity::Error);
    match errors.count() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    }
}

fn describe_change(change: &Change, named: bool) -> String {
    let mut text = format!("the last reload: {}\n", change.describe(named));
    const REMOVED: &str = "Denies, validating policies and webhooks that are no longer in force";
    match change.vanished.as_slice() {
        [] => {}
        vanished if named => {
            let names: Vec<String> = vanished.iter().map(ToString::to_string).collect();
            text.push_str(&format!("{REMOVED}: {}\n", names.join(", ")));
        }
        vanished => text.push_str(&format!("{REMOVED}: {}\n", vanished.len())),
    }
    text
}

/// Whether the client is on this machine.
fn is_local(peer: Option<SocketAddr>) -> bool {
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

/// One check of a probe.
struct ProbeCheck {
    name: &'static str,
    fault: Option<&'static str>,
}

/// Passes whenever the process responds.
const PING: ProbeCheck = ProbeCheck {
    name: "ping",
    fault: None,
};

fn answer(request: &HttpRequest, probe: &str, checks: &[ProbeCheck], detail: &str) -> HttpResponse {
    let passed = checks.iter().all(|check| check.fault.is_none());
    let verbose = request
        .query_string()
        .split('&')
        .any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let status = if passed {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut response = HttpResponse::build(status);
    response
        .content_type("text/plain; charset=utf-8")
        .insert_header(("Cache-Control", "no-cache, private"));
    if passed && !verbose {
        return response.body("ok");
    }
    let mut text = String::new();
    for check in checks {
        match check.fault {
            None => text.push_str(&format!("[+]{} ok\n", check.name)),
            Some(fault) => text.push_str(&format!("[-]{} failed: {fault}\n", check.name)),
        }
    }
    text.push_str(detail);
    text.push_str(&format!(
        "{probe} check {}\n",
        if passed { "passed" } else { "failed" }
    ));
    response.body(text)
}

/// The connection limits of this listener; the oldest connection is closed for a new one.
const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 64,
    per_address: 64,
    // No client authenticates here.
    authentication_timeout: Duration::MAX,
};

/// The time in which the head of a request must arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the admin listener on a thread of its own. The receiver completes only if the listener
/// ends unexpectedly.
pub(crate) fn start(
    shared: &Data<GatewayState>,
    listener: TcpListener,
) -> io::Result<(Arbiter, oneshot::Receiver<()>)> {
    let arbiter = Arbiter::try_new()?;
    let shared = shared.clone();
    let (running, ended) = oneshot::channel::<()>();
    arbiter.spawn_fn(move || {
        drop(actix_rt::spawn(async move {
            serve(shared, listener).await;
            drop(running);
        }));
    });
    Ok((arbiter, ended))
}

async fn serve(shared: Data<GatewayState>, listener: TcpListener) {
    let app = App::new().app_data(shared).configure(routes).into_factory();
    let app = map_config(app, |()| AppConfig::default()).new_service(()).await;
    let Ok(app) = app.map(Rc::new) else {
        tracing::error!("the routes of the admin listener cannot be built");
        return;
    };
    let Some(http1) = http1::service::<TcpStream, _, _>(app).await else {
        tracing::error!("the admin listener cannot be served");
        return;
    };
    let http1 = Rc::new(http1);
    let connections = Connections::new(None);
    let serve = |accepted: AcceptedConnection| {
        let AcceptedConnection {
            stream,
            peer,
            tracked,
        } = accepted;
        let http1 = Rc::clone(&http1);
        actix_rt::spawn(async move {
            let status = Arc::clone(tracked.status());
            tracked.handshake_done(false);
            let connection = Connection::new(tracked, peer, None, HEAD_TIMEOUT);
            connection.head_began();
            let stream = http1::Stream::new(stream, connection);
            let serving = async {
                // An error concerns this connection only.
                let _ended = http1.call((stream, Some(peer))).await;
            };
            status.run(serving).await;
        });
        Ok(())
    };
    tokio::select! {
        () = connections.sweep_forever() => {}
        ended = accept::accept(listener, &connections, || LIMITS.into(), serve) => {
            if let Err(error) = ended {
                tracing::error!(%error, "the admin listener has ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Restriction;

    fn mk_status(origin: Origin) -> SourceStatus {
        SourceStatus {
            cluster: "east".into(),
            origin,
            objects: 3,
            faulty: 1,
            faults: Vec::new(),
            failures: 0,
            doubts: Vec::new(),
            outdated: Vec::new(),
            left_out: LeftOutCounts::default(),
        }
    }

    #[test]
    fn the_detail_says_what_is_not_as_in_the_api_server() {
        let status = SourceStatus {
            doubts: vec!["Role.rbac.authorization.k8s.io: the list lacks all".to_owned()],
            outdated: vec!["ConfigMap: for 90 s: no list".to_owned()],
            left_out: LeftOutCounts {
                policies: 2,
                ..LeftOutCounts::default()
            },
            ..mk_status(Origin::Live)
        };
        assert_eq!(
            describe(&status, false),
            "cluster east is synced: 3 objects are in force; 1 have errors\n  objects are missing without \
            evidence of their deletion, the known ones are in force: Role.rbac.authorization.k8s.io: the \
            list lacks all; if they were deleted, confirm it with `portcullis serve --accept-absence east`\n  not up to date: \
            ConfigMap: for 90 s: no list\n  2 policies are left out, so that what they restrict is not \
            restricted\n"
        );
    }

    #[test]
    fn an_unknown_cluster_delays_readiness_for_a_while_and_no_longer() {
        let (soon, late) = (Duration::from_secs(29), Duration::from_secs(30));
        let (live, unknown) = (mk_status(Origin::Live), mk_status(Origin::None));
        assert!(unready_reason(&[live.clone(), unknown.clone()], soon).is_some());
        assert!(unready_reason(&[live.clone(), unknown], late).is_none());
        assert!(unready_reason(&[live, mk_status(Origin::Saved)], soon).is_none());
        assert!(unready_reason(&[], soon).is_none());
    }

    #[test]
    fn only_loopback_clients_see_names_of_objects() {
        for (peer, expected) in [
            ("127.0.0.1:1", true),
            ("127.8.8.8:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            assert_eq!(is_local(Some(peer.parse().unwrap())), expected, "{peer}");
        }
        assert!(!is_local(None));
    }

    #[test]
    fn the_detail_says_what_holds() {
        let table = [
            (
                Origin::None,
                "cluster east is not synced yet: only the files are in force; 1 have errors\n",
            ),
            (
                Origin::Saved,
                "cluster east is not synced yet: 3 saved objects are in force; 1 have errors\n",
            ),
            (
                Origin::Live,
                "cluster east is synced: 3 objects are in force; 1 have errors\n",
            ),
        ];
        for (origin, expected) in table {
            assert_eq!(describe(&mk_status(origin), true), expected);
        }
    }

    #[test]
    fn nobody_else_is_told_the_names_of_objects() {
        let mut faults = Faults::new();
        let place = portcullis_policy::field::Place {
            object: "AuthorizationPolicy/hidden".into(),
            ..Default::default()
        };
        faults.push(portcullis_policy::field::Fault::error(
            place,
            portcullis_policy::field::FaultKind::Invalid,
            "wrong",
        ));
        let status = SourceStatus {
            faults: vec![faults],
            ..mk_status(Origin::Live)
        };
        assert!(describe(&status, true).contains("hidden"));
        assert_eq!(
            describe(&status, false),
            "cluster east is synced: 3 objects are in force; 1 have errors\n"
        );
        let change = Change {
            vanished: vec![Restriction {
                kind: "AuthorizationPolicy",
                cluster: None,
                name: "hidden".into(),
            }],
            ..Change::default()
        };
        assert!(describe_change(&change, true).ends_with("no longer in force: AuthorizationPolicy/hidden\n"));
        assert!(describe_change(&change, false).ends_with("no longer in force: 1\n"));
    }
}
