//! What holds for every page, whatever it shows.

use std::path::Path;

use serde_json::{Value, json};

use crate::chromium::{self, Browser};
use crate::harness::eventually;
use crate::servers::Servers;

/// A URL of each view but that of one decision, with something to show.
const VIEWS: [(&str, &str); 12] = [
    ("now", "/"),
    ("live", "/live"),
    ("search", "/live?q=user%3Acarol+denied&namespace=shop"),
    ("who-can", "/who-can?verb=get&resource=pods&namespace=shop"),
    (
        "what-can",
        "/what-can?user=alice&groups=developers&namespace=shop",
    ),
    (
        "what-if",
        "/what-if?user=carol&group=contractors&verb=get&resource=secrets&namespace=shop",
    ),
    ("policies", "/policies"),
    (
        "policy",
        "/policies/AuthorizationPolicy/-/contractors-see-no-secrets",
    ),
    ("webhooks", "/webhooks"),
    ("clusters", "/clusters"),
    ("changes", "/changes"),
    ("missing", "/live/nothing"),
];

/// Every view with a name and its path, that of a denial too, for which Carol has asked.
pub(crate) fn views(servers: &Servers) -> Vec<(&'static str, String)> {
    let denial = newest(servers, "user=carol&resource=secrets&decision=deny");
    let views = VIEWS.into_iter().map(|(name, path)| (name, path.to_owned()));
    views.chain([("decision", denial)]).collect()
}

/// The page of the newest decision that passes a filter.
pub(crate) fn newest(servers: &Servers, filter: &str) -> String {
    let mut shown = Value::Null;
    let has_come = || {
        shown = servers.json(&format!("/live?{filter}"));
        shown["decisions"][0].is_object()
    };
    assert!(eventually(has_come), "no decision of {filter}: {shown:#}");
    format!("/live/{}", shown["decisions"][0]["sequence"])
}

/// Text as a part of a URL or of a form.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The widths that a page must fit: a small telephone, and a desk.
pub(crate) const WIDTHS: [u32; 2] = [360, 1280];

/// Rules of axe-core: WCAG 2.2 A and AA, and its best practices.
const AXE: &str = "
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(
    results => done(results.violations.map(violation => ({
        rule: violation.id,
        help: violation.help,
        nodes: violation.nodes.map(node => node.target.join(' ') + ': ' + node.failureSummary),
    }))),
    error => done([{rule: 'axe', help: String(error), nodes: []}]));
";

/// axe-core, as `tests/console/fetch-axe` leaves it.
///
/// Without it, says what is not run, and returns `None`.
///
/// # Panics
/// Without it, when `PORTCULLIS_REQUIRE_CHROMIUM` is `1`.
pub(crate) fn axe_core() -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let file = target.join("console/axe.js");
    let read = std::fs::read_to_string(&file);
    read.map_err(|error| {
        let file = file.display();
        chromium::not_run(&format!("{file}: {error}; tests/console/fetch-axe fetches it"));
    })
    .ok()
}

/// What axe-core finds wrong with the page.
fn accessibility(browser: &Browser, axe_core: &str) -> Vec<String> {
    browser.script(axe_core, &[]);
    let found = browser.script_with_callback(AXE, &[]);
    found
        .as_array()
        .unwrap()
        .iter()
        .map(|found| format!("{found:#}"))
        .collect()
}

/// What the browser objected to, since the page was opened.
pub(crate) fn objections(browser: &Browser) -> Vec<String> {
    let violations = browser.script("return window.__violations;", &[]);
    let texts = violations.as_array().unwrap().iter().map(Value::to_string);
    let log = browser.log().into_iter();
    // That a page is not there, Chromium logs, too.
    let log = log.filter(|line| !line.contains("the server responded with a status of 40"));
    texts.chain(log).collect()
}

/// How far the page is wider than the window, in pixels.
fn overflow(browser: &Browser) -> i64 {
    let measured = browser.script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth;",
        &[],
    );
    measured.as_i64().unwrap()
}

/// Whatever is wrong with the page that is open.
pub(crate) fn faults(browser: &Browser, axe_core: &str, width: u32) -> Vec<String> {
    let mut found = accessibility(browser, axe_core);
    found.extend(objections(browser));
    let overflow = overflow(browser);
    if overflow > 0 {
        let widest = browser.script(WIDEST, &[json!(width)]);
        found.push(format!("{overflow} px too wide: {widest}"));
    }
    found
}

/// Fails with whatever is wrong with any view, in light and in the dark, at each width.
pub(crate) fn check_all(browser: &Browser, servers: &Servers, axe_core: &str) {
    let (mut wrong, views) = (Vec::new(), views(servers));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in WIDTHS {
            browser.resize(width, 800);
            for (name, path) in &views {
                browser.open(&servers.url(path));
                let place = format!("{name} {path} ({scheme}, {width} px)");
                wrong.extend(
                    faults(browser, axe_core, width)
                        .into_iter()
                        .map(|found| format!("{place}: {found}")),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The elements that stand out, without those around them.
const WIDEST: &str = "
const out = Array.from(document.body.querySelectorAll('*')).filter(
    element => element.getBoundingClientRect().right > arguments[0] && !element.closest('[role=region]'));
return out.slice(-3).map(element => element.outerHTML.slice(0, 200));
";
