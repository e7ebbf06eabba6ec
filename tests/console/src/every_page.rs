//! Every view: accessible, within its width, and without anything that its policy forbids.

use crate::pages;
use crate::servers::{self, NAMESPACE, Servers};
use serde_json::json;

/// Requests of every kind, so that no view is empty.
pub(crate) fn ask_for_everything(servers: &Servers) {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    for (user, path, status) in [
        ("alice", pods.as_str(), 200),
        ("dora", &pods, 200),
        ("carol", &secrets, 403),
        ("alice", &secrets, 403),
    ] {
        assert_eq!(servers.cluster.status(user, path), status, "{user} {path}");
    }
    for name in ["plain", "other-refused", "guarded"] {
        servers.create_config_map("dora", name, &json!({}));
    }
}

#[test]
fn every_view_passes_axe_in_both_schemes_and_at_each_width() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    let Some(axe_core) = pages::axe_core() else { return };
    ask_for_everything(&servers);
    pages::check_all(&browser, &servers, &axe_core);
}

/// What stands on a page only after something was pasted: decision, steps, changes, faults.
#[test]
fn the_answer_to_a_manifest_passes_axe_too() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    let Some(axe_core) = pages::axe_core() else { return };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "is-refused", "namespace": NAMESPACE}});
    let policy = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: tried}\nspec:\n  effect: Deny\n  subjects: [{kind: User, name: alice}]\n  resourceRules: [{verbs: [gett], apiGroups: [''], resources: [pods]}]\n";
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in pages::WIDTHS {
            browser.resize(width, 800);
            browser.open(
                &servers.url("/what-if?user=alice&group=developers&verb=get&resource=pods&namespace=shop"),
            );
            browser.paste("main textarea[name=manifest]", &service.to_string());
            browser.paste("main textarea[name=policy]", policy);
            browser.click("main form[method=post] button");
            browser.wait_until("document.body.innerText.includes('this name is refused')");
            let found = pages::faults(&browser, &axe_core, width);
            assert!(found.is_empty(), "{scheme}, {width} px: {}", found.join("\n"));
        }
    }
}

#[test]
fn every_view_is_reached_by_a_link() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.open(&servers.url("/"));
    let links = browser.script(
        "return Array.from(document.querySelectorAll('nav a')).map(link => link.getAttribute('href'));",
        &[],
    );
    let links: Vec<&str> = links
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|link| link.as_str())
        .collect();
    for path in [
        "/",
        "/live",
        "/who-can",
        "/what-can",
        "/what-if",
        "/policies",
        "/webhooks",
        "/clusters",
        "/changes",
    ] {
        assert!(links.contains(&path), "{path} is not in {links:?}");
    }
    for link in links {
        browser.open(&servers.url(link));
        let headings = "return [document.querySelectorAll('h1').length, document.querySelectorAll('nav a[aria-current=page]').length, document.title.length > 0];";
        assert_eq!(browser.script(headings, &[]), json!([1, 1, true]), "{link}");
    }
}

/// By `Accept`, each is for programs what it is for people.
#[test]
fn every_view_is_json_too() {
    let Some(servers) = servers::shared() else { return };
    ask_for_everything(&servers);
    for (name, path) in pages::views(&servers) {
        if name != "missing" {
            assert!(servers.json(&path).is_object(), "{path}");
        }
    }
}
