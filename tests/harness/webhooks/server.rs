//! The server: hyper over openssl, on a thread of its own.

use super::{Answer, Builder, Called, Tls, lock};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use openssl::nid::Nid;
use openssl::ssl::{
    AlpnError, NameType, Ssl, SslAcceptor, SslMethod, SslRef, SslVerifyMode, select_next_proto,
};
use openssl::x509::X509;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_openssl::SslStream;

type Body = BoxBody<Bytes, io::Error>;
type Calls = Arc<Mutex<Vec<Called>>>;

/// What every connection needs.
struct Shared {
    acceptor: SslAcceptor,
    builder: Builder,
    calls: Calls,
    held: watch::Receiver<bool>,
}

/// Serves until the runtime is dropped.
pub(super) fn start(
    builder: Builder,
    address: SocketAddr,
    calls: Calls,
    held: watch::Receiver<bool>,
) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
    let shared = Arc::new(Shared {
        acceptor: acceptor(&builder),
        builder,
        calls,
        held,
    });
    runtime.spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(Arc::clone(&shared), stream, number));
            number += 1;
        }
    });
    runtime
}

fn acceptor(builder: &Builder) -> SslAcceptor {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    let identity = &builder.identity;
    acceptor.set_certificate(&identity.certificate).unwrap();
    acceptor.set_private_key(&identity.key).unwrap();
    if let Some(authority) = &builder.client_authority {
        let authority = X509::from_pem(authority).unwrap();
        acceptor.cert_store_mut().add_cert(authority).unwrap();
        acceptor.set_verify(SslVerifyMode::PEER);
    }
    let protocols: &[u8] = if builder.http2 {
        b"\x02h2\x08http/1.1"
    } else {
        b"\x08http/1.1"
    };
    acceptor.set_alpn_select_callback(move |_, offered| {
        select_next_proto(protocols, offered).ok_or(AlpnError::NOACK)
    });
    acceptor.build()
}

/// One connection. Whatever fails on it is the caller's to notice.
async fn serve(shared: Arc<Shared>, stream: TcpStream, number: usize) {
    // What is dropped unfinished is reset, not ended.
    let _is_set = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    let ssl = Ssl::new(shared.acceptor.context()).unwrap();
    let mut stream = SslStream::new(ssl, stream).unwrap();
    if Pin::new(&mut stream).accept().await.is_err() {
        return;
    }
    let tls = facts(stream.ssl());
    let service = service_fn(move |request| respond(Arc::clone(&shared), request, number, tls.clone()));
    let _ended = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn facts(ssl: &SslRef) -> Tls {
    let client = ssl.peer_certificate();
    let client = client.as_ref().and_then(|certificate| {
        let entry = certificate
            .subject_name()
            .entries_by_nid(Nid::COMMONNAME)
            .next()?;
        entry.data().to_string().ok()
    });
    Tls {
        server_name: ssl.servername(NameType::HOST_NAME).map(str::to_owned),
        protocol: ssl
            .selected_alpn_protocol()
            .map(|protocol| String::from_utf8_lossy(protocol).into_owned()),
        client,
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    connection: usize,
    tls: Tls,
) -> io::Result<Response<Body>> {
    let called = read(request, connection, tls).await?;
    let mut routes = shared.builder.routes.iter();
    let behaviour = routes.find(|(path, _)| *path == called.path);
    lock(&shared.calls).push(called.clone());
    let behaviour = behaviour.map(|(_, behaviour)| behaviour);
    let answer = match behaviour.or(shared.builder.otherwise.as_ref()) {
        Some(behaviour) => behaviour(&called),
        None => Answer::http(404, "no webhook"),
    };
    let mut held = shared.held.clone();
    // An error means that the test has ended.
    drop(held.wait_for(|is_held| !is_held).await);
    send(answer, &called).await
}

async fn read(request: Request<Incoming>, connection: usize, tls: Tls) -> io::Result<Called> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let headers = head.headers.iter();
    Ok(Called {
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: headers
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        connection,
        tls,
    })
}

async fn send(mut answer: Answer, called: &Called) -> io::Result<Response<Body>> {
    while let Answer::Late(pause, then) = answer {
        sleep(pause).await;
        answer = *then;
    }
    let (status, headers, bytes) = answer.reply(called);
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let length = bytes.len();
    let body = match answer {
        Answer::Hang => std::future::pending().await,
        Answer::Trickle(pause, _) => trickle(bytes, pause),
        Answer::Reset => torn(bytes),
        _ => return Ok(response.body(whole(bytes)).unwrap()),
    };
    Ok(response.header("content-length", length).body(body).unwrap())
}

fn whole(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes))
        .map_err(|never| match never {})
        .boxed()
}

fn trickle(bytes: Vec<u8>, pause: Duration) -> Body {
    let bytes = stream::iter(bytes).then(move |byte| async move {
        sleep(pause).await;
        Ok(Frame::data(Bytes::from(vec![byte])))
    });
    BodyExt::boxed(StreamBody::new(bytes))
}

fn torn(bytes: Vec<u8>) -> Body {
    let half = Bytes::from(bytes[..bytes.len() / 2].to_vec());
    let end = Err(io::ErrorKind::ConnectionReset.into());
    let parts = [Ok(Frame::data(half)), end];
    // The half is on its way before the end comes.
    let parts = stream::iter(parts).then(|part| async {
        sleep(Duration::from_millis(20)).await;
        part
    });
    BodyExt::boxed(StreamBody::new(parts))
}
