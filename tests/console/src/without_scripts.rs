//! Every view but the stream works where scripts are switched off.

use serde_json::json;
use thirtyfour::Key;

use crate::every_page::ask_for_everything;
use crate::pages;
use crate::servers;

#[test]
fn every_view_is_read_without_scripts() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask_for_everything(&servers);
    for (name, path) in pages::views(&servers) {
        browser.disable_scripts(false);
        browser.open(&servers.url(&path));
        let with = browser.text();
        browser.disable_scripts(true);
        browser.open(&servers.url(&path));
        let without = browser.text();
        // A page that is made by a script would be all but empty.
        assert!(without.len() * 2 > with.len(), "{name}: {without}");
        assert!(!without.contains("Loading"), "{name}: {without}");
    }
}

#[test]
fn questions_are_asked_without_scripts() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.disable_scripts(true);
    browser.open(&servers.url("/what-if"));
    for (field, text) in [
        ("user", "carol"),
        ("group", "contractors"),
        ("verb", "list"),
        ("resource", "secrets"),
        ("namespace", "shop"),
    ] {
        browser.fill(&format!("main [name={field}]"), text);
    }
    browser.press(Key::Enter);
    browser.wait_until("location.search.includes('user=carol')");
    assert!(
        browser.text().contains("contractors-see-no-secrets"),
        "{}",
        browser.text()
    );

    browser.open(&servers.url("/who-can"));
    for (field, text) in [("verb", "list"), ("resource", "pods")] {
        browser.fill(&format!("main [name={field}]"), text);
    }
    browser.press(Key::Enter);
    browser.wait_until("location.search.includes('resource=pods')");
    assert!(browser.text().contains("developers"), "{}", browser.text());
}

/// A manifest that is pasted, posted by a form. No webhook is asked about Services.
#[test]
fn a_manifest_is_judged_without_scripts() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.disable_scripts(true);
    browser.open(&servers.url("/what-if"));
    let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "is-refused", "namespace": "shop"}});
    browser.fill("main textarea[name=manifest]", &manifest.to_string());
    browser.click("main form[method=post] button");
    browser.wait_until("document.body.innerText.includes('this name is refused')");
}
