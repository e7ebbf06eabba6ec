//! Turns a request into a response. Costly views are rendered one at a time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use actix_web::body::{BoxBody, SizedStream};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{StatusCode, header};
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::guard::ConsoleGuard;
use super::live::{LiveStreams, StreamAuthority};
use crate::console::page::Asset;
use crate::console::{
    ConsoleState, LiveStream, Page, Representation, ViewContext, ViewError, ViewQuery, ViewRequest,
    VisibleClusters, page, views,
};
use crate::server::accept::Connection;
use crate::server::gateway::GatewayState;
use crate::state::Snapshot;

/// The most time to render a view.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a form.
const MAX_FORM_BYTES: usize = 1 << 20;

/// The time in which a form must arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that all requests of the listener share.
pub(crate) struct ConsoleService {
    pub(crate) shared: Data<GatewayState>,
    pub(crate) console: Arc<ConsoleState>,
    pub(crate) guard: ConsoleGuard,
    /// Limits the costly views that are rendered at once.
    pub(crate) costly: CostlyViews,
    /// Limits the other views that are rendered at once.
    pub(crate) usual: CheapViews,
    /// The open streams of decisions.
    pub(crate) streams: Rc<LiveStreams>,
    /// Bounds the large responses that clients have not read yet.
    pub(crate) unread: UnreadAnswers,
}

/// Answers every request of the listener.
pub(crate) async fn answer(
    request: HttpRequest,
    body: Payload,
    service: Data<Rc<ConsoleService>>,
) -> HttpResponse {
    let snapshot = Arc::clone(&service.shared.state.current());
    let accept = request.headers().get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let representation = Representation::of_accept(accept.unwrap_or_default());
    let path = request.uri().path();
    let answered = respond(&service, &request, body, &snapshot, representation).await;
    let mut response = answered.unwrap_or_else(|error| {
        // An error for a client without access contains no revision.
        let is_refused = matches!(error, ViewError::Refused { .. });
        let revision = if is_refused { "" } else { &snapshot.revision };
        let page = error.page(representation, path, revision);
        error_response(&error, page, snapshot.authenticator.challenge())
    });
    secure(response.headers_mut());
    response
}

async fn respond(
    service: &ConsoleService,
    request: &HttpRequest,
    body: Payload,
    snapshot: &Arc<Snapshot>,
    representation: Representation,
) -> Result<HttpResponse, ViewError> {
    let connection = request.conn_data::<Rc<Connection>>();
    let connection = connection.ok_or_else(|| ViewError::Internal("there is no connection".to_owned()))?;
    let visible = service
        .guard
        .check(request, connection, &service.shared, snapshot)?;
    let path = request.uri().path();
    if let Some(name) = path.strip_prefix("/assets/") {
        let asset = page::find(name);
        let missing = || ViewError::NotFound(format!("there is no file `{name}`"));
        return asset.map(asset_response).ok_or_else(missing);
    }
    let query = request.uri().query().unwrap_or_default();
    if path == "/live/events" {
        return service.stream(request, query, visible, snapshot);
    }
    let mut wanted = ViewRequest::new(path, query, representation);
    if request.method() == "POST" {
        wanted.form = Some(form(request, body).await?);
    }
    let page = service.view(snapshot, visible, wanted).await?;
    view(page, &service.unread)
}

/// Reads the form in the body.
async fn form(request: &HttpRequest, mut body: Payload) -> Result<ViewQuery, ViewError> {
    let refused = |status, message: &str| ViewError::Refused {
        status,
        message: message.to_owned(),
    };
    let too_large = || refused(413, "the form is larger than 1 MiB");
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(refused(
            415,
            "the form must be of type application/x-www-form-urlencoded",
        ));
    }
    // Reject a form by its announced length before it is received.
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > MAX_FORM_BYTES as u64) {
        return Err(too_large());
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|_| refused(400, "the form was not received completely"))?;
            if bytes.len() + chunk.len() > MAX_FORM_BYTES {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_| refused(400, "the form is not UTF-8"))
    };
    let read = timeout(FORM_TIMEOUT, reading).await;
    let text = read.map_err(|_| refused(408, "the form did not arrive in time"))??;
    Ok(ViewQuery::parse(&text))
}

// === impl ConsoleService ===

impl ConsoleService {
    /// The stream of decisions that a page requests.
    fn stream(
        &self,
        request: &HttpRequest,
        query: &str,
        visible: VisibleClusters,
        snapshot: &Arc<Snapshot>,
    ) -> Result<HttpResponse, ViewError> {
        let last_event = request.headers().get("last-event-id");
        let last_event = last_event.and_then(|value| value.to_str().ok());
        let decisions = self.console.decisions(&visible);
        let live = LiveStream::new(&ViewQuery::parse(query), last_event, &decisions)?;
        let authority = self.guard.has_tls.then(|| StreamAuthority {
            state: Arc::clone(&self.shared.state),
            at_start: Arc::clone(&snapshot.authenticator),
        });
        Ok(self.streams.open((visible, decisions), live, authority))
    }

    /// Renders the requested view on another thread than that of the connections.
    async fn view(
        &self,
        snapshot: &Arc<Snapshot>,
        visible: VisibleClusters,
        wanted: ViewRequest,
    ) -> Result<Page, ViewError> {
        let turn = if views::is_costly(&wanted.path) {
            (Some(self.costly.enter(&visible).await?), None)
        } else {
            (None, Some(self.usual.enter()?))
        };
        let (shared, console) = (self.shared.clone(), Arc::clone(&self.console));
        let snapshot = Arc::clone(snapshot);
        // Dropped with this future when the client disconnects.
        let asker = Arc::new(());
        let is_awaited = Arc::downgrade(&asker);
        let made = web::block(move || {
            // Held while the view waits for a thread or is rendered, even if the client has
            // disconnected.
            let _turn = turn;
            if is_awaited.strong_count() == 0 {
                return Err(ViewError::Busy);
            }
            let context = ViewContext {
                snapshot: &snapshot,
                state: &shared.state,
                metrics: &shared.metrics,
                console: &console,
                decisions: &console.decisions(&visible),
                visible: &visible,
                now: SystemTime::now(),
                deadline: Instant::now() + VIEW_TIMEOUT,
            };
            views::render(&context, &wanted)
        });
        let broken = |_| ViewError::Internal("it was interrupted; see the log".to_owned());
        made.await.map_err(broken)?
    }
}

/// The longest wait for the turn of a costly view: until the current view and one of another viewer
/// are done.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// The most costly views that are rendered or waiting for those who see the same clusters.
const MAX_PER_VIEWER: usize = 8;

/// The most other views that are rendered or waiting for a thread at once.
const MAX_USUAL: usize = 64;

/// The queue for rendering costly views.
#[derive(Debug)]
pub(crate) struct CostlyViews {
    turn: Arc<Semaphore>,
    queues: ViewerQueues,
}

/// The waiting costly views, by the clusters that their viewers see.
type ViewerQueues = Arc<Mutex<HashMap<VisibleClusters, ViewerQueue>>>;

/// The waiting costly views of those who see the same clusters.
#[derive(Debug)]
struct ViewerQueue {
    count: usize,
    /// Held by the view that is the next of these viewers, while it waits for its turn among all.
    turn_in_group: Arc<Semaphore>,
}

/// Limits the views that are not costly.
#[derive(Debug)]
pub(crate) struct CheapViews(Arc<Semaphore>);

/// The permission to render one costly view, until it is dropped.
pub(crate) struct CostlyTurn {
    _turns: [OwnedSemaphorePermit; 2],
    _place: CostlyPlace,
}

/// The place of one costly view among those of viewers who see the same clusters.
struct CostlyPlace {
    visible: VisibleClusters,
    first: Arc<Semaphore>,
    queues: ViewerQueues,
}

// === impl CheapViews ===

impl CheapViews {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_USUAL)))
    }

    /// Returns a permit to render one view.
    ///
    /// # Errors
    ///
    /// Too many views are being rendered.
    fn enter(&self) -> Result<OwnedSemaphorePermit, ViewError> {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        permit.map_err(|_| ViewError::Busy)
    }
}

// === impl CostlyViews ===

impl CostlyViews {
    pub(crate) fn new() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            queues: ViewerQueues::default(),
        }
    }

    /// Waits for the turn of a costly view of someone who sees `visible`. Of the viewers who see
    /// the same clusters only one at a time waits for the common turn, so that a viewer waits for
    /// at most one view of each other group.
    ///
    /// # Errors
    ///
    /// Too many of these viewers are waiting, or the turn does not come within [`MAX_WAIT`].
    pub(crate) async fn enter(&self, visible: &VisibleClusters) -> Result<CostlyTurn, ViewError> {
        let place = self.place(visible).ok_or(ViewError::Busy)?;
        let turns = async {
            let first = Arc::clone(&place.first).acquire_owned().await.ok()?;
            Some([first, Arc::clone(&self.turn).acquire_owned().await.ok()?])
        };
        let turns = timeout(MAX_WAIT, turns).await;
        Ok(CostlyTurn {
            _turns: turns.ok().flatten().ok_or(ViewError::Busy)?,
            _place: place,
        })
    }

    fn place(&self, visible: &VisibleClusters) -> Option<CostlyPlace> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(visible.clone()).or_insert_with(|| ViewerQueue {
            count: 0,
            turn_in_group: Arc::new(Semaphore::new(1)),
        });
        if queue.count >= MAX_PER_VIEWER {
            return None;
        }
        queue.count += 1;
        Some(CostlyPlace {
            visible: visible.clone(),
            first: Arc::clone(&queue.turn_in_group),
            queues: Arc::clone(&self.queues),
        })
    }
}

// === impl CostlyPlace ===

impl Drop for CostlyPlace {
    fn drop(&mut self) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get_mut(&self.visible) {
            queue.count -= 1;
            if queue.count == 0 {
                queues.remove(&self.visible);
            }
        }
    }
}

// Responses, and the header fields that all of them have.
//
// A response stays in memory until the client has read its last byte, which the client may delay.
// Therefore large responses share a bounded amount of memory, and are handed to their connection in
// pieces.

/// The security headers of every response: scripts and styles are loaded from the console only and
/// never inline, the console is not shown in a frame, and other origins cannot read it.
const FIELDS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With `no-referrer`, forms would be sent with `Origin: null`.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    ("vary", "Accept"),
];

/// Adds the headers of every response.
pub(crate) fn secure(headers: &mut HeaderMap) {
    for (name, value) in FIELDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// The response with `page`.
///
/// # Errors
///
/// [`ViewError::Busy`] if clients have not read too many large responses.
pub(crate) fn view(page: Page, unread: &UnreadAnswers) -> Result<HttpResponse, ViewError> {
    let body = unread.body(page.body).ok_or(ViewError::Busy)?;
    Ok(head(page.status, page.representation).body(body))
}

fn head(status: u16, representation: Representation) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut head = HttpResponse::build(status);
    head.content_type(representation.content_type());
    head
}

/// The response for an error; `challenge` is sent with a 401.
fn error_response(error: &ViewError, error_page: Page, challenge: &str) -> HttpResponse {
    let mut response = head(error_page.status, error_page.representation).body(error_page.body);
    let field = match error.status() {
        401 => Some((header::WWW_AUTHENTICATE, HeaderValue::from_str(challenge).ok())),
        405 => Some((header::ALLOW, Some(HeaderValue::from_static("GET")))),
        503 => Some((header::RETRY_AFTER, Some(HeaderValue::from_static("1")))),
        _ => None,
    };
    if let Some((name, Some(value))) = field {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The response with `asset`, which changes only with a new version of the program.
fn asset_response(asset: &Asset) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(asset.content_type)
        .insert_header((header::CACHE_CONTROL, "private, max-age=600"))
        .body(asset.content)
}

/// The most bytes of all large responses together.
const MAX_UNREAD_BYTES: usize = 64 << 20;

/// A response of up to this size is not counted: the connection limit bounds their number.
const SMALL_BYTES: usize = 64 << 10;

/// The bytes that a connection is handed at once.
const PIECE_BYTES: usize = 16 << 10;

/// The memory for large responses that are not read yet.
pub(crate) struct UnreadAnswers(Arc<Semaphore>);

// === impl UnreadAnswers ===

impl UnreadAnswers {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_UNREAD_BYTES)))
    }

    /// A body with `text`; `None` if the memory is used up.
    pub(crate) fn body(&self, text: String) -> Option<BoxBody> {
        let text = Bytes::from(text);
        if text.len() <= SMALL_BYTES {
            return Some(BoxBody::new(text));
        }
        // A response larger than the whole bound is sent when it can have all of it.
        let room = u32::try_from(text.len().min(MAX_UNREAD_BYTES)).ok()?;
        let held = Arc::clone(&self.0).try_acquire_many_owned(room).ok()?;
        let length = u64::try_from(text.len()).ok()?;
        let pieces = stream::unfold((text, held), |(mut rest, held)| async move {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            (!piece.is_empty()).then(|| (Ok::<_, Infallible>(piece), (rest, held)))
        });
        Some(BoxBody::new(SizedStream::new(length, pieces)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::{BodySize, MessageBody as _, to_bytes};

    #[test]
    fn the_views_of_one_cluster_leave_others_their_turn() {
        let views = CostlyViews::new();
        let one = VisibleClusters::One("east".into());
        let places: Vec<_> = (0..MAX_PER_VIEWER).map(|_| views.place(&one).unwrap()).collect();
        assert!(views.place(&one).is_none());
        assert!(views.place(&VisibleClusters::All).is_some());
        assert!(views.place(&VisibleClusters::One("west".into())).is_some());
        drop(places);
        assert!(views.place(&one).is_some());
        assert!(views.queues.lock().unwrap().is_empty());
    }

    #[actix_web::test]
    async fn who_comes_later_waits_for_one_view_of_those_before() {
        let views = Rc::new(CostlyViews::new());
        let order = Rc::new(Mutex::new(Vec::new()));
        let enter = |cluster: &'static str| {
            let (views, order) = (Rc::clone(&views), Rc::clone(&order));
            actix_rt::spawn(async move {
                let turn = views.enter(&VisibleClusters::One(cluster.into())).await;
                order.lock().unwrap().push(cluster);
                drop(turn.unwrap_or_else(|_| panic!("{cluster} had no turn")));
            })
        };
        let made = views.enter(&VisibleClusters::All).await;
        let waiting: Vec<_> = ["east", "east", "east", "west"].map(enter).into();
        tokio::task::yield_now().await;
        drop(made);
        for view in waiting {
            view.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["east", "west", "east", "east"]);
    }

    fn mk_text(length: usize) -> String {
        let mut text = "0123456789ab".repeat(length / 12 + 1);
        text.truncate(length);
        text
    }

    #[actix_web::test]
    async fn an_answer_is_sent_as_it_is() {
        let unread = UnreadAnswers::new();
        for length in [0, 1, SMALL_BYTES, SMALL_BYTES + 1, 10 * PIECE_BYTES, 1 << 20] {
            let text = mk_text(length);
            let body = unread.body(text.clone()).unwrap();
            assert_eq!(body.size(), BodySize::Sized(u64::try_from(length).unwrap()));
            assert!(to_bytes(body).await.unwrap() == text, "{length}");
        }
        assert_eq!(unread.0.available_permits(), MAX_UNREAD_BYTES);
    }

    #[actix_web::test]
    async fn what_nobody_reads_is_bounded() {
        let unread = UnreadAnswers::new();
        let half = || unread.body(mk_text(MAX_UNREAD_BYTES / 2));
        let (one, two) = (half().unwrap(), half().unwrap());
        assert!(unread.body(mk_text(SMALL_BYTES + 1)).is_none());
        assert!(
            unread.body(mk_text(SMALL_BYTES)).is_some(),
            "a small one has room"
        );
        // A response that was read or dropped frees its memory.
        to_bytes(one).await.unwrap();
        assert!(half().is_some());
        drop(two);
        // A response larger than the bound takes all of it.
        let huge = unread.body(mk_text(MAX_UNREAD_BYTES + 1)).unwrap();
        assert!(unread.body(mk_text(SMALL_BYTES + 1)).is_none());
        drop(huge);
        assert_eq!(unread.0.available_permits(), MAX_UNREAD_BYTES);
    }
}
