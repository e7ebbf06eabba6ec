//! What holds for every page, whatever it shows.

use std::path::Path;

use serde_json::{Value, json};

use crate::chromium::{self, Browser};
use crate::servers::Servers;

/// A URL of each view, with something to show.
pub(crate) const VIEWS: [(&str, &str); 1] = [("now", "/")];

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
    texts.chain(browser.log()).collect()
}

/// How far the page is wider than the window, in pixels.
pub(crate) fn overflow(browser: &Browser) -> i64 {
    let measured = browser.script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth;",
        &[],
    );
    measured.as_i64().unwrap()
}

/// Fails with whatever is wrong with any view, in light and in the dark, at each width.
pub(crate) fn check_all(browser: &Browser, servers: &Servers, axe_core: &str) {
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in WIDTHS {
            browser.resize(width, 800);
            for (_, path) in VIEWS {
                browser.open(&servers.url(path));
                let place = format!("{path} ({scheme}, {width} px)");
                let of_page = accessibility(browser, axe_core)
                    .into_iter()
                    .chain(objections(browser));
                wrong.extend(of_page.map(|found| format!("{place}: {found}")));
                let overflow = overflow(browser);
                if overflow > 0 {
                    let widest = browser.script(WIDEST, &[json!(width)]);
                    wrong.push(format!("{place}: {overflow} px too wide: {widest}"));
                }
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
