//! `portcullis serve`, and `portcullis` alone: the parts of a gateway, put together.
//!
//! ```text
//! configuration --reload::load--> Snapshot --> State --.--> Server --until SIGTERM--> drained
//!                                               ^      |
//!                              Reloader --------'   metrics, decision log
//!                                 ^-- SIGHUP
//! ```

mod development;
mod try_it;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::output::{self, Format};
use super::{Error, Verdict, loading};
use crate::config::LogPath;
use crate::reload::{self, Reloader, State, Trigger};
use crate::server::{self, Addresses, Gateway, Server};
use crate::telemetry::decision_log::Destination;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::{DecisionLog, Metrics, logging};

/// Serve until SIGTERM; read everything again at SIGHUP.
///
/// Logs go to standard error: PORTCULLIS_LOG filters them (`info`,
/// `portcullis::reload=debug`), PORTCULLIS_LOG_FORMAT=json makes each a line of JSON.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Serve {
    /// The configuration; without it a development set-up in `.portcullis/` is served, and made
    /// on the first start.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where the gateway is, for programs.
#[derive(Debug, Serialize)]
struct Serving {
    config: PathBuf,
    server: String,
    admin: String,
}

// === impl Serve ===

impl Serve {
    pub(super) fn run(self, format: Format) -> Result<Verdict, Error> {
        logging::start().map_err(|error| Error::Usage(error.to_string()))?;
        let path = match &self.config {
            Some(path) => loading::readable(path).map(|()| path.clone())?,
            None => development::set_up(format)?,
        };
        let now = SystemTime::now();
        let (snapshot, faults) = reload::load(&path, None, now);
        let Some(snapshot) = snapshot else {
            output::complain(Error::Faulty {
                path: path.display().to_string(),
                faults,
            });
            return Ok(Verdict::Unsound);
        };
        for warning in faults.iter() {
            tracing::warn!("{warning}");
        }
        let metrics = Arc::new(Metrics::new().map_err(|error| Error::Serve(error.into()))?);
        metrics.loaded(now);
        let decision_log = open_log(
            snapshot.config.decision_log.as_ref().map(|log| &log.path),
            &metrics,
        )?;
        let revision = Arc::clone(&snapshot.revision);
        let state = State::new(snapshot);
        let reloader = reloader(&state, &path, &metrics)?;
        let gateway = Gateway {
            state,
            metrics,
            decision_log: decision_log.clone(),
        };
        let server = Server::bind(gateway).map_err(|error| Error::Serve(error.into()))?;
        let addresses = server.addresses();
        tracing::info!(server = %addresses.server, admin = %addresses.admin, %revision, "serving");
        announce(format, path, addresses, self.config.is_none())?;
        server
            .run(told_to_stop(reloader.trigger(), decision_log))
            .map_err(|error| Error::Serve(error.into()))?;
        tracing::info!("stopped");
        Ok(Verdict::Sound)
    }
}

fn open_log(path: Option<&LogPath>, metrics: &Metrics) -> Result<Option<DecisionLog>, Error> {
    let Some(path) = path else { return Ok(None) };
    let destination = match path {
        LogPath::Stdout => Destination::Stdout,
        LogPath::File(path) => Destination::File(path.clone()),
    };
    let log = DecisionLog::open(destination, metrics.decision_log_dropped());
    log.map(Some).map_err(|source| match path {
        LogPath::Stdout => Error::Output(source),
        LogPath::File(path) => Error::file("write", path, source),
    })
}

/// Keeps `state` up to date, and counts how that goes.
fn reloader(state: &Arc<State>, path: &std::path::Path, metrics: &Arc<Metrics>) -> Result<Reloader, Error> {
    let metrics = Arc::clone(metrics);
    let observer = Box::new(move |attempt: Result<&State, &reload::Failure>| {
        let outcome = if attempt.is_ok() {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        metrics.reload(outcome, SystemTime::now());
    });
    Reloader::start(Arc::clone(state), path.to_owned(), observer).map_err(|error| Error::Serve(error.into()))
}

/// Ends at SIGTERM or SIGINT; SIGHUP reads files and opens the log anew.
async fn told_to_stop(trigger: Trigger, decision_log: Option<DecisionLog>) {
    let hang_up = || {
        trigger.reload();
        if let Some(log) = &decision_log {
            log.reopen();
        }
    };
    if let Err(error) = server::until_told(hang_up).await {
        tracing::error!(%error, "signals cannot be handled: stopping, since nothing could stop it later");
    }
}

/// Says where it serves, and of a development set-up what to try.
fn announce(format: Format, config: PathBuf, addresses: Addresses, development: bool) -> Result<(), Error> {
    let serving = Serving {
        config: config.clone(),
        server: addresses.server.to_string(),
        admin: addresses.admin.to_string(),
    };
    if development {
        let absolute = super::init::absolute(&config)?;
        return output::print(
            format,
            try_it::TryIt::new(&config, &absolute, addresses),
            &serving,
        );
    }
    output::print(format, "", &serving)
}
