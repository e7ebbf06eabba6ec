//! The thread for probes and metrics, with its own connection limit, so that they are
//! answered whatever happens on the other listener.

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::Arbiter;
use actix_service::{IntoServiceFactory as _, Service as _, ServiceFactory as _, map_config};
use actix_web::App;
use actix_web::dev::AppConfig;
use actix_web::web::Data;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::config::ConnectionLimits;
use crate::server::accept::{self, Accepted};
use crate::server::connection::Connection;
use crate::server::connections::Connections;
use crate::server::gateway::Shared;
use crate::server::http1;

/// Connections at once: at most so many, the oldest makes way for another.
const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 64,
    per_address: 64,
    // Nobody proves anything here.
    authentication_timeout: Duration::MAX,
};

/// How long a head may take.
const HEAD: Duration = Duration::from_secs(5);

/// Starts it on `listener`; the receiver gets nothing, and that only if it ends by itself.
pub(crate) fn start(
    shared: &Data<Shared>,
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

async fn serve(shared: Data<Shared>, listener: TcpListener) {
    let app = App::new()
        .app_data(shared)
        .configure(super::routes)
        .into_factory();
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
    let serve = |accepted: Accepted| {
        let Accepted {
            stream,
            peer,
            tracked,
        } = accepted;
        let http1 = Rc::clone(&http1);
        actix_rt::spawn(async move {
            let status = Arc::clone(tracked.status());
            tracked.handshake_done(false);
            let connection = Connection::new(tracked, peer, None, HEAD);
            connection.head_began();
            let stream = http1::Stream::new(stream, connection);
            let serving = async {
                // An error is of this connection and nobody else's.
                let _ended = http1.call((stream, Some(peer))).await;
            };
            status.run(serving).await;
        });
        Ok(())
    };
    tokio::select! {
        () = connections.watch() => {}
        ended = accept::accept(listener, &connections, || LIMITS.into(), serve) => {
            if let Err(error) = ended {
                tracing::error!(%error, "the admin listener has ended");
            }
        }
    }
}
