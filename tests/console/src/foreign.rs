//! Pages of others, in the browser of somebody who can open the console: they learn nothing
//! from it, and cannot make it answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::servers::{self, Servers};

/// A name that leads to this machine, as an attacker's name server would have it.
const NAME: &str = "rebound.example";

/// What a page of another origin tries, and what came of each.
const ATTEMPTS: &str = r#"
const [target, done] = [arguments[0], arguments[arguments.length - 1]];
const read = options => fetch(target + (options.path ?? '/'), options).then(
    answer => answer.type === 'opaque' ? 'opaque' : answer.text(),
    () => 'failed');
const loads = (tag, attributes) => new Promise(resolve => {
    const element = document.createElement(tag);
    element.onload = () => resolve('loaded');
    element.onerror = () => resolve('failed');
    Object.assign(element, attributes);
    document.body.append(element);
});
const streams = new Promise(resolve => {
    const source = new EventSource(target + '/live/events');
    source.onopen = () => resolve('loaded');
    source.onerror = () => { source.close(); resolve('failed'); };
});
const framed = new Promise(resolve => {
    const frame = document.createElement('iframe');
    frame.onload = () => {
        let text = 'failed';
        try { text = frame.contentDocument?.body?.innerText ?? 'failed'; } catch (error) {}
        resolve(text);
    };
    frame.src = target + '/';
    document.body.append(frame);
});
const form = new URLSearchParams({user: 'alice', verb: 'get', resource: 'pods'});
Promise.all([
    read({mode: 'cors'}),
    read({mode: 'cors', credentials: 'include', headers: {Accept: 'application/json'}}),
    read({mode: 'cors', path: '/what-if', method: 'POST', body: form}),
    read({mode: 'same-origin'}),
    loads('script', {src: target + '/assets/console.js'}),
    loads('link', {rel: 'stylesheet', href: target + '/assets/style.css'}),
    loads('img', {src: target + '/assets/icon.svg'}),
    streams,
    framed,
]).then(done, error => done(String(error)));
"#;

/// Serves an empty page to everybody for as long as the test runs.
fn serve_page() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |mut stream: TcpStream| {
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
            line.clear();
        }
        let body = "<!DOCTYPE html><title>elsewhere</title><body>";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
        // A browser that has gone needs no answer.
        let _gone = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    address
}

/// The browser's argument by which it finds this machine under the foreign name.
fn resolver() -> String {
    format!("--host-resolver-rules=MAP {NAME} 127.0.0.1")
}

/// What nobody may learn: the page's own heading, the revision, a policy.
fn assert_learns_nothing(servers: &Servers, learned: &Value, place: &str) {
    let learned = learned.to_string();
    let revision = servers.json("/")["revision"].as_str().unwrap().to_owned();
    for secret in [
        "In force",
        "Decisions a second",
        "contractors-see-no-secrets",
        &revision,
    ] {
        assert!(!learned.contains(secret), "{place}: {learned}");
    }
}

#[test]
fn a_page_of_another_origin_reads_nothing() {
    let Some((browser, servers)) = servers::in_a_browser_with(&[&resolver()]) else {
        return;
    };
    let page = serve_page();
    // The same machine with another port, a name of this machine, and a name of somebody else.
    for host in ["127.0.0.1", "localhost", NAME] {
        let place = format!("http://{host}:{}/", page.port());
        browser.open(&place);
        let console = format!("http://{}", servers.console);
        let came_of_it = browser.script_with_callback(ATTEMPTS, &[json!(console)]);
        assert_learns_nothing(&servers, &came_of_it, &place);
        let expected = json!(vec!["failed"; 9]);
        assert_eq!(came_of_it, expected, "{place}");
    }
}

/// DNS rebinding: the console's own page under a name of somebody else, of whose origin it
/// would be.
#[test]
fn under_a_foreign_name_nothing_is_to_be_read() {
    let Some((browser, servers)) = servers::in_a_browser_with(&[&resolver()]) else {
        return;
    };
    let place = format!("http://{NAME}:{}", servers.console.port());
    for path in ["/", "/live", "/policies", "/assets/style.css"] {
        browser.open(&format!("{place}{path}"));
        let text = browser.text();
        assert!(text.contains("only for this machine"), "{path}: {text}");
        assert_learns_nothing(&servers, &json!(text), path);
    }
    let reads = "const done = arguments[arguments.length - 1]; fetch('/', {headers: {Accept: 'application/json'}}).then(answer => answer.text().then(text => done([answer.status, text])), error => done(String(error)));";
    let answer = browser.script_with_callback(reads, &[]);
    assert_eq!(answer[0], 421, "{answer}");
    assert_learns_nothing(&servers, &answer, &place);
}

/// A link from elsewhere opens the console, as it should, and tells the page that has it nothing.
#[test]
fn a_link_from_elsewhere_opens_a_view() {
    let Some((browser, servers)) = servers::in_a_browser_with(&[&resolver()]) else {
        return;
    };
    browser.open(&format!("http://{NAME}:{}/", serve_page().port()));
    let target = servers.url("/policies");
    let add = "const link = document.createElement('a'); link.href = arguments[0]; link.id = 'out'; link.textContent = 'out'; document.body.append(link);";
    browser.script(add, &[json!(target)]);
    browser.click("#out");
    browser.wait_until("document.querySelector('h1')?.innerText === 'Policies'");
    assert_eq!(browser.url(), target);
}

/// A form of another site is not judged: its page could show that what was pasted is allowed.
#[test]
fn a_form_of_another_site_is_refused() {
    let Some((browser, servers)) = servers::in_a_browser_with(&[&resolver()]) else {
        return;
    };
    for host in ["localhost", NAME] {
        browser.open(&format!("http://{host}:{}/", serve_page().port()));
        let post = "const form = document.createElement('form'); form.method = 'post'; form.action = arguments[0]; const field = document.createElement('input'); field.name = 'manifest'; field.value = 'a: b'; form.append(field); document.body.append(form); form.submit();";
        browser.script(post, &[json!(servers.url("/what-if"))]);
        browser.wait_until("document.querySelector('.fault') !== null");
        let text = browser.text();
        assert!(text.contains("another site sent this request"), "{host}: {text}");
        assert_learns_nothing(&servers, &json!(text), host);
    }
}
