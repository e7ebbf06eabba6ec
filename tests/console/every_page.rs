//! Every view: accessible, within its width, and without anything that its policy forbids.

use crate::chromium::Browser;
use crate::pages::{self, VIEWS};
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
    let (Some(browser), Some(servers)) = (Browser::start(), servers::shared()) else {
        return;
    };
    let Some(axe_core) = pages::axe_core() else { return };
    ask_for_everything(&servers);
    pages::check_all(&browser, &servers, &axe_core);
}

#[test]
fn every_view_is_reached_by_a_link() {
    let (Some(browser), Some(servers)) = (Browser::start(), servers::shared()) else {
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
    for (_, path) in VIEWS {
        let path = path.split('?').next().unwrap();
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
    for (_, path) in VIEWS {
        assert!(servers.json(path).is_object(), "{path}");
    }
}
