//! A webhook on this machine, for the gateway to call.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openssl::ssl::{SslAcceptor, SslMethod, SslStream};
use serde_json::{Value, json};

use super::pki::Identity;

/// A webhook. It says yes unless told otherwise.
pub(crate) struct Webhook {
    authority: Identity,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A question that it got.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// With its query.
    pub(crate) path: String,
    pub(crate) review: Value,
}

/// `response` of the reply, without its uid.
type Answer = dyn Fn(&Asked) -> Value + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    is_held: bool,
}

// === impl Webhook ===

impl Webhook {
    /// Listens, and answers so.
    pub(crate) fn start(answer: impl Fn(&Asked) -> Value + Send + Sync + 'static) -> Self {
        let authority = Identity::authority("webhooks");
        let acceptor = acceptor(&authority.server("webhook"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            state: Mutex::default(),
            released: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, acceptor) = (Arc::clone(&of_thread), acceptor.clone());
                thread::spawn(move || {
                    // A gateway that closes ends it.
                    let _ended = serve(&shared, &acceptor, stream?);
                    io::Result::Ok(())
                });
            }
        });
        Self {
            authority,
            address,
            shared,
        }
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its authority, as `caBundle` has it.
    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(self.authority.certificate_pem())
    }

    /// `clientConfig` that leads here.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://{}{path}", self.address),
            "caBundle": self.ca_bundle(),
        })
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.state.lock().unwrap().asked.clone()
    }

    /// Holds its answers back from now on.
    pub(crate) fn hold(&self) {
        self.shared.state.lock().unwrap().is_held = true;
    }

    /// Lets them go.
    pub(crate) fn release(&self) {
        self.shared.state.lock().unwrap().is_held = false;
        self.shared.released.notify_all();
    }
}

// === impl Asked ===

impl Asked {
    /// The path alone.
    pub(crate) fn at(&self) -> &str {
        self.path.split('?').next().unwrap()
    }

    /// The object that it is about.
    pub(crate) fn object(&self) -> &Value {
        &self.review["request"]["object"]
    }
}

fn acceptor(identity: &Identity) -> SslAcceptor {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_private_key(&identity.key).unwrap();
    builder.set_certificate(&identity.certificate).unwrap();
    builder.build()
}

/// Answers what comes over one connection, until it is closed.
fn serve(shared: &Shared, acceptor: &SslAcceptor, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).map_err(io::Error::other)?;
    loop {
        let asked = receive(&mut stream)?;
        let body = shared.reply(&asked).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
    }
}

fn receive(stream: &mut SslStream<TcpStream>) -> io::Result<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Asked {
        path: head.split(' ').nth(1).unwrap().to_owned(),
        review: serde_json::from_slice(&body).unwrap(),
    })
}

// === impl Shared ===

impl Shared {
    /// The reply in the version asked.
    fn reply(&self, asked: &Asked) -> Value {
        let mut state = self.state.lock().unwrap();
        state.asked.push(asked.clone());
        while state.is_held {
            state = self.released.wait(state).unwrap();
        }
        drop(state);
        let mut response = (self.answer)(asked);
        if asked.review.get("spec").is_some() {
            return json!({"kind": "AdmissionReview", "apiVersion": asked.review["apiVersion"], "status": response});
        }
        response["uid"] = asked.review["request"]["uid"].clone();
        if let Some(patch) = response.get("patch").filter(|patch| patch.is_array()) {
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
            response["patchType"] = json!("JSONPatch");
        }
        json!({"kind": "AdmissionReview", "apiVersion": asked.review["apiVersion"], "response": response})
    }
}
