//! The server: hyper over openssl, on threads of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use openssl::ssl::{AlpnError, Ssl, SslAcceptor, SslMethod, select_next_proto};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tokio_openssl::SslStream;

use super::cluster::{StoredCluster, event};
use super::{Asked, Behaviour, Identity, KINDS, StoredKind};

type Body = BoxBody<Bytes, std::io::Error>;
type Clusters = Arc<[StoredCluster]>;

/// No cluster has this version.
const FAR_AHEAD: u64 = 1 << 60;

/// A page of no limit.
const WHOLE: usize = usize::MAX;

/// Serves until the runtime is dropped.
pub(super) fn start(
    identity: &Identity,
    clusters: Clusters,
    farewells: &watch::Sender<()>,
) -> (Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let acceptor = acceptor(identity);
    let address = (Ipv4Addr::LOCALHOST, 0);
    let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
    let address = listener.local_addr().unwrap();
    let farewells = farewells.subscribe();
    runtime.spawn(async move {
        let mut number = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let mut farewell = farewells.clone();
            farewell.mark_unchanged();
            let serving = serve(acceptor.clone(), Arc::clone(&clusters), stream, number, farewell);
            tokio::spawn(serving);
            number += 1;
        }
    });
    (runtime, address)
}

/// As an API server, which prefers HTTP/2.
fn acceptor(identity: &Identity) -> SslAcceptor {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_certificate(&identity.certificate).unwrap();
    acceptor.set_private_key(&identity.key).unwrap();
    acceptor.set_alpn_select_callback(|_, offered| {
        select_next_proto(b"\x02h2\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    acceptor.build()
}

/// One connection. Whatever fails on it is the caller's to notice.
async fn serve(
    acceptor: SslAcceptor,
    clusters: Clusters,
    stream: TcpStream,
    number: usize,
    mut farewell: watch::Receiver<()>,
) {
    let _is_set = stream.set_nodelay(true);
    let mut stream = SslStream::new(Ssl::new(acceptor.context()).unwrap(), stream).unwrap();
    if Pin::new(&mut stream).accept().await.is_err() {
        return;
    }
    let service = service_fn(move |request| {
        let clusters = Arc::clone(&clusters);
        async move { Ok::<_, std::io::Error>(respond(&clusters, &request, number).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ended = connection.as_mut() => return,
        Ok(()) = farewell.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

async fn respond(clusters: &Clusters, request: &Request<Incoming>, connection: usize) -> Response<Body> {
    let path = request.uri().path().trim_start_matches('/');
    let (cluster, path) = path.split_once('/').unwrap_or((path, ""));
    let Some(number) = cluster
        .parse::<usize>()
        .ok()
        .filter(|number| *number < clusters.len())
    else {
        return answer(404, whole("no such cluster".into()));
    };
    let query = request.uri().query().unwrap_or_default();
    let (behaviour, behaved) = clusters[number].ask(Asked {
        path: path.to_owned(),
        query: query.to_owned(),
        connection,
    });
    if behaviour == Behaviour::Hangs {
        return std::future::pending().await;
    }
    let lacks_groups = behaviour == Behaviour::EmptyListsWithoutGroups && matches!(path, "api" | "apis");
    if behaviour == Behaviour::NotFound || lacks_groups {
        return page_not_found();
    }
    if let Some(resources) = discovery(path, behaviour) {
        return answer(200, whole(resources.into()));
    }
    if let Some(text) = clusters[number].document(path) {
        return answer(200, whole(text.into()));
    }
    let kind = KINDS.iter().find(|kind| path == list_path(kind));
    let is_served =
        |kind: &&StoredKind| !is_lacking(kind, behaviour) && !is_deleted(kind.group_version, behaviour);
    let Some(kind) = kind.filter(is_served) else {
        return not_found();
    };
    let watched = WatchedObjects {
        clusters: Arc::clone(clusters),
        number,
        kind,
        behaved,
    };
    let parameters = Parameters::of(query);
    if parameters.is_watch {
        watched.events(behaviour, &parameters)
    } else {
        watched.list(behaviour, &parameters)
    }
}

/// What is asked for.
struct Parameters {
    is_watch: bool,
    limit: usize,
    from: Option<String>,
    version: u64,
    timeout: Duration,
}

/// A kind of one cluster.
struct WatchedObjects {
    clusters: Clusters,
    number: usize,
    kind: &'static StoredKind,
    behaved: usize,
}

/// A watch that goes on.
struct Events {
    watched: WatchedObjects,
    version: u64,
    news: watch::Receiver<u64>,
    end: tokio::time::Instant,
}

// === impl Parameters ===

impl Parameters {
    fn of(query: &str) -> Self {
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(field, _)| *field == name).map(|(_, value)| value)
        };
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
        Self {
            is_watch: field("watch").is_some_and(|value| value == "true"),
            limit: number("limit").map_or(WHOLE, |limit| usize::try_from(limit).unwrap()),
            from: field("continue").map(|token| token.replace("%20", " ").replace('+', " ")),
            version: number("resourceVersion").unwrap_or_default(),
            timeout: Duration::from_secs(number("timeoutSeconds").unwrap_or(1_800)),
        }
    }
}

// === impl WatchedObjects ===

impl WatchedObjects {
    fn cluster(&self) -> &StoredCluster {
        &self.clusters[self.number]
    }

    fn list(&self, behaviour: Behaviour, parameters: &Parameters) -> Response<Body> {
        match behaviour {
            Behaviour::EndlessLists => answer(200, whole(self.endless_page(parameters).into())),
            Behaviour::EndlessBodies => answer(200, endless(self.head(1, None), ",".into())),
            Behaviour::AnotherEtcd => self.empty_list(1),
            Behaviour::EmptyLists => self.empty_list(self.cluster().version()),
            Behaviour::EmptyListsWithoutGroups => self.empty_list(FAR_AHEAD),
            Behaviour::DefinitionDeleted if self.kind.kind == "CustomResourceDefinition" => {
                self.empty_list(self.cluster().version())
            }
            _ => answer(200, whole(self.page(parameters).into())),
        }
    }

    fn empty_list(&self, version: u64) -> Response<Body> {
        answer(200, whole((self.head(version, None) + "]}").into()))
    }

    fn head(&self, version: u64, next: Option<&str>) -> String {
        let StoredKind {
            group_version, kind, ..
        } = self.kind;
        let next = next.map_or_else(String::new, |next| format!(r#","continue":"{next}""#));
        format!(
            r#"{{"kind":"{kind}List","apiVersion":"{group_version}","metadata":{{"resourceVersion":"{version}"{next}}},"items":["#
        )
    }

    fn page(&self, parameters: &Parameters) -> String {
        let page = self
            .cluster()
            .page(self.kind, parameters.limit, parameters.from.as_deref());
        let mut text = self.head(page.version, page.next.as_deref());
        for (index, item) in page.items.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(item);
        }
        text + "]}"
    }

    fn endless_page(&self, parameters: &Parameters) -> String {
        let before: usize = parameters.from.as_ref().map_or(0, |from| from.parse().unwrap());
        let end = before + parameters.limit.min(100);
        let items: Vec<String> = (before..end)
            .map(|index| self.invented(index).to_string())
            .collect();
        format!("{}{}]}}", self.head(1, Some(&end.to_string())), items.join(","))
    }

    /// One more object, of 10 KB.
    fn invented(&self, index: usize) -> Value {
        let StoredKind {
            group_version, kind, ..
        } = self.kind;
        let namespace = if self.kind.is_namespaced { "invented" } else { "" };
        json!({
            "apiVersion": group_version,
            "kind": kind,
            "metadata": {
                "name": format!("invented-{index}"),
                "namespace": namespace,
                "resourceVersion": (index + 2).to_string(),
                "annotations": {"example.com/padding": "x".repeat(10_000)},
            },
        })
    }

    fn events(self, behaviour: Behaviour, parameters: &Parameters) -> Response<Body> {
        match behaviour {
            Behaviour::EndsWatches => answer(200, whole(Bytes::new())),
            Behaviour::WrongEvents => answer(200, whole(wrong_events().into())),
            Behaviour::AnotherEtcd | Behaviour::EmptyLists | Behaviour::EmptyListsWithoutGroups => {
                answer(200, whole(expired().into()))
            }
            Behaviour::EndlessEvents => {
                let lines = stream::iter(0..).map(move |index| {
                    let line = event("ADDED", &self.invented(index));
                    Ok(Frame::data(Bytes::from(line)))
                });
                answer(200, BodyExt::boxed(StreamBody::new(lines)))
            }
            _ => answer(200, BodyExt::boxed(StreamBody::new(self.follow(parameters)))),
        }
    }

    fn follow(
        self,
        parameters: &Parameters,
    ) -> impl Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + Sync + use<> {
        let events = Events {
            news: self.cluster().news(),
            version: parameters.version,
            end: tokio::time::Instant::now() + parameters.timeout,
            watched: self,
        };
        stream::unfold(events, Events::next)
    }
}

// === impl Events ===

impl Events {
    /// Some lines, and what comes after them; nothing when it is over.
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, std::io::Error>, Self)> {
        loop {
            self.news.borrow_and_update();
            let cluster = self.watched.cluster();
            if !cluster.behaves_as_at(self.watched.behaved) {
                return None;
            }
            let (lines, version) = cluster.events_since(self.watched.kind, self.version);
            self.version = version;
            if !lines.is_empty() {
                let lines: String = lines.iter().map(|line| &**line).collect();
                return Some((Ok(Frame::data(Bytes::from(lines))), self));
            }
            match timeout_at(self.end, self.news.changed()).await {
                Ok(Ok(())) => {}
                _ => return None,
            }
        }
    }
}

fn list_path(kind: &StoredKind) -> String {
    let root = if kind.group_version.contains('/') {
        "apis"
    } else {
        "api"
    };
    format!("{root}/{}/{}", kind.group_version, kind.plural)
}

/// What is served at `path`, if that is the place of all groups, or of one and its version.
fn discovery(path: &str, behaviour: Behaviour) -> Option<String> {
    if matches!(path, "api" | "apis") {
        return Some(groups(path, behaviour));
    }
    let group_version = path.strip_prefix("apis/").or_else(|| path.strip_prefix("api/"))?;
    if is_deleted(group_version, behaviour) {
        return None;
    }
    let kinds: Vec<_> = KINDS
        .iter()
        .filter(|kind| kind.group_version == group_version && !is_lacking(kind, behaviour))
        .collect();
    let resources: Vec<_> = kinds
        .iter()
        .map(|kind| {
            json!({
                "name": kind.plural,
                "singularName": "",
                "namespaced": kind.is_namespaced,
                "kind": kind.kind,
                "verbs": ["get", "list", "watch"],
            })
        })
        .collect();
    let list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    });
    KINDS
        .iter()
        .any(|kind| kind.group_version == group_version)
        .then(|| list.to_string())
}

/// Whether what is served leaves out the kind, although it is among the groups.
fn is_lacking(kind: &StoredKind, behaviour: Behaviour) -> bool {
    behaviour == Behaviour::LacksPolicies && kind.kind == "AuthorizationPolicy"
}

/// Whether there is no such group any more.
fn is_deleted(group_version: &str, behaviour: Behaviour) -> bool {
    let deletes = [Behaviour::DefinitionDeleted, Behaviour::OlderDiscovery];
    deletes.contains(&behaviour) && group_version.starts_with("portcullis.dev/")
}

/// All groups, of which one is served without anything in it.
fn groups(path: &str, behaviour: Behaviour) -> String {
    let mut versions: Vec<&str> = KINDS
        .iter()
        .map(|kind| kind.group_version)
        .chain(["apps/v1"])
        .collect();
    versions.dedup();
    versions.retain(|version| version.contains('/') == (path == "apis") && !is_deleted(version, behaviour));
    if behaviour == Behaviour::OlderDiscovery {
        let kind = if path == "apis" {
            "APIGroupList"
        } else {
            "APIVersions"
        };
        let groups: Vec<Value> = versions
            .iter()
            .map(|version| group(version)["metadata"].clone())
            .collect();
        return json!({"kind": kind, "versions": ["v1"], "groups": groups}).to_string();
    }
    let items: Vec<Value> = versions.into_iter().map(group).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
        .to_string()
}

fn group(group_version: &str) -> Value {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let kinds = KINDS.iter().filter(|kind| kind.group_version == group_version);
    let resources: Vec<Value> = kinds
        .map(|kind| {
            json!({
                "resource": kind.plural,
                "responseKind": {"group": group, "version": version, "kind": kind.kind},
                "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
                "verbs": ["get", "list", "watch"],
            })
        })
        .collect();
    json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": resources}]})
}

/// No event, an event of no type, an object of another kind, no object, and another kind's
/// object without a version.
fn wrong_events() -> String {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "wrong", "namespace": "wrong", "resourceVersion": "7"},
    });
    [
        "no event\n".to_owned(),
        event("INVENTED", &secret),
        event("ADDED", &secret),
        event("ADDED", &json!(["a", "list"])),
        event("MODIFIED", &json!({"metadata": {"name": "unversioned"}})),
    ]
    .concat()
}

/// The event of a watch whose version the API server does not have any more.
fn expired() -> String {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Expired",
        "message": "too old resource version",
        "code": 410,
    });
    event("ERROR", &status)
}

/// As Go's mux and load balancers answer.
fn page_not_found() -> Response<Body> {
    Response::builder()
        .status(404)
        .header("content-type", "text/plain; charset=utf-8")
        .body(whole("404 page not found\n".into()))
        .unwrap()
}

fn not_found() -> Response<Body> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server could not find the requested resource",
        "reason": "NotFound",
        "code": 404,
    });
    answer(404, whole(status.to_string().into()))
}

fn answer(status: u16, body: Body) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body)
        .unwrap()
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// `head`, and then one invented object after the other, without end.
fn endless(head: String, separator: String) -> Body {
    let object = json!({"metadata": {"name": "same", "annotations": {"padding": "x".repeat(60_000)}}});
    let more = Bytes::from(format!("{object}{separator}"));
    let more = stream::repeat_with(move || Ok(Frame::data(more.clone())));
    let first = stream::iter([Ok(Frame::data(Bytes::from(head)))]);
    BodyExt::boxed(StreamBody::new(first.chain(more)))
}
