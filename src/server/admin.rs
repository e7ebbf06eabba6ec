//! The admin listener: probes and metrics, plain HTTP.
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 as long as the process answers |
//! | `/readyz`, `/healthz` | 200 when reviews are answered; 503 while starting and draining |
//! | `/metrics` | Prometheus' text format |
//!
//! With `?verbose` a probe lists its checks, as at a kube-apiserver, and which
//! files are in force. A reload that failed does not make the gateway unready:
//! the last good files serve.

use actix_web::http::StatusCode;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use super::gateway::Shared;
use super::lifecycle::Phase;
use crate::field::Severity;

/// The routes of the admin listener.
pub(super) fn routes(config: &mut ServiceConfig) {
    config
        .route("/metrics", web::get().to(metrics))
        .route("/livez", web::get().to(livez))
        .route("/readyz", web::get().to(readyz))
        .route("/healthz", web::get().to(readyz));
}

async fn metrics(shared: Data<Shared>) -> HttpResponse {
    // After a reload the series of new policies begin here, if no request came first.
    shared.counters(&shared.state.current());
    match shared.metrics.encode() {
        Ok(text) => HttpResponse::Ok()
            .content_type("text/plain; version=0.0.4; charset=utf-8")
            .body(text),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be encoded");
            HttpResponse::InternalServerError().finish()
        }
    }
}

async fn livez(request: HttpRequest) -> HttpResponse {
    answer(&request, "livez", &[PING], "")
}

async fn readyz(request: HttpRequest, shared: Data<Shared>) -> HttpResponse {
    let serving = Check {
        name: "serving",
        fault: match shared.lifecycle.phase() {
            Phase::Starting => Some("starting"),
            Phase::Serving => None,
            Phase::Draining => Some("draining"),
        },
    };
    answer(&request, "readyz", &[PING, serving], &in_force(&shared))
}

/// Which files are in force, and whether newer ones were refused.
fn in_force(shared: &Shared) -> String {
    let revision = format!("revision {} is in force", shared.state.current().revision);
    match shared.state.last_failure() {
        None => format!("{revision}\n"),
        Some(failure) => {
            let faults = failure
                .faults
                .iter()
                .filter(|fault| fault.severity == Severity::Error)
                .count();
            format!("{revision}; the last reload failed: {faults} faults, which the log names\n")
        }
    }
}

/// One thing that a probe looks at.
struct Check {
    name: &'static str,
    fault: Option<&'static str>,
}

/// The process answers.
const PING: Check = Check {
    name: "ping",
    fault: None,
};

fn answer(request: &HttpRequest, probe: &str, checks: &[Check], detail: &str) -> HttpResponse {
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
