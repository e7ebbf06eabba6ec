//! A user who chooses a name chooses a text, and nothing that a page runs.

use serde_json::json;
use thirtyfour::Key;

use crate::chromium::Browser;
use crate::pages::{self, encode};
use crate::policies::{MARKUP, MARKUP_NAME};
use crate::servers::{self, NAMESPACE, Servers};

/// Requests whose names are markup: of a user, a group, a path, a namespace, an object; a denial
/// whose reason is, refusals whose message is, of a policy and of a webhook.
fn ask(servers: &Servers) {
    for path in [
        format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
        format!("/api/v1/namespaces/{NAMESPACE}/services"),
        format!("/api/v1/namespaces/{}/secrets", encode(MARKUP_NAME)),
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", encode(MARKUP_NAME)),
        format!("/{}", encode(MARKUP)),
    ] {
        servers.get_as(MARKUP, &path);
    }
    let labels = json!({"labels": {"hostile": "label"}, "annotations": {"a": MARKUP}});
    let refused = servers.create_config_map("dora", "hostile", &labels);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let guarded = servers.create_config_map("dora", "guarded", &labels);
    assert_eq!(guarded.status, 403, "{}", guarded.text());
}

/// What the markup would have made of the page.
const PLANTED: &str = "return [document.querySelectorAll('.planted').length, window.__pwned ?? null];";

/// Would be read as another name: the end in front of the start, and parts that nobody sees.
const DISGUISED: &str = "eve\u{202e}nimda\u{202c}\u{200b}\u{2066}";

/// The characters of such names that a page shows as they are, outside of what can be edited.
const UNSEEN: &str = "
const page = document.querySelector('main').cloneNode(true);
for (const field of page.querySelectorAll('textarea')) field.remove();
return page.textContent.match(/[\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff]/g) ?? [];
";

fn assert_harmless(browser: &Browser, place: &str) {
    assert_eq!(browser.script(PLANTED, &[]), json!([0, null]), "{place}");
    let objections = pages::objections(browser);
    assert!(objections.is_empty(), "{place}: {objections:#?}");
}

#[test]
fn names_that_are_markup_are_shown_as_text_everywhere() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask(&servers);
    let user = encode(MARKUP);
    let more = [
        "/who-can?verb=get&resource=services&namespace=shop".to_owned(),
        format!("/who-can?verb={user}&resource={user}&namespace={user}"),
        format!("/what-can?user={user}&namespace=shop"),
        format!("/what-if?user={user}&verb=get&resource=secrets&namespace=shop"),
        format!("/what-if?user={user}&group={user}&verb={user}&resource={user}&name={user}&namespace={user}"),
        "/policies/AuthorizationPolicy/-/hostile".to_owned(),
        "/policies/ValidatingAdmissionPolicy/-/hostile".to_owned(),
        format!("/policies/{user}/{user}/{user}"),
        format!("/live/{user}"),
        format!("/{user}"),
        format!("/?{user}={user}"),
    ];
    let decisions = [
        format!("user={user}&resource=secrets&decision=deny"),
        format!("user={user}&resource=services"),
        format!("user={user}&verb=get"),
        "user=dora&resource=configmaps&decision=deny".to_owned(),
    ];
    let decisions = decisions.map(|filter| pages::newest(&servers, &filter));
    let mut shown = 0;
    let views = pages::views(&servers).into_iter().map(|(_, path)| path);
    for path in views.chain(more).chain(decisions) {
        browser.open(&servers.url(&path));
        let headings = browser.script("return document.querySelectorAll('h1').length;", &[]);
        assert_eq!(headings, 1, "{path}");
        assert_harmless(&browser, &path);
        shown += usize::from(browser.text().contains("<img class=planted"));
    }
    assert!(shown >= 8, "the names are to be seen: {shown}");
}

/// Rows that come by the stream are put into the page by a script.
#[test]
fn names_that_come_while_the_page_is_open_are_text_too() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    let user = format!("{MARKUP} of the stream");
    browser.open(&servers.url("/live"));
    browser.wait_until("document.querySelector('[data-live]') !== null");
    for resource in ["secrets", "pods"] {
        let resource = json!({"verb": MARKUP, "group": MARKUP, "resource": resource, "namespace": MARKUP, "name": MARKUP});
        let spec = json!({"user": user, "groups": [MARKUP, "contractors"], "resourceAttributes": resource});
        servers.cluster.review(&spec);
    }
    browser.wait_until("document.body.innerText.split('of the stream').length > 2");
    assert_harmless(&browser, "/live");
}

/// Characters that turn the text around, or have no width, are shown as what they are.
#[test]
fn a_name_that_disguises_itself_is_seen_through() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.open(&servers.url("/live"));
    browser.wait_until("document.querySelector('[data-live]') !== null");
    let resource = json!({"verb": "get", "resource": "secrets", "namespace": DISGUISED, "name": DISGUISED});
    let spec =
        json!({"user": DISGUISED, "groups": [DISGUISED, "contractors"], "resourceAttributes": resource});
    servers.cluster.review(&spec);
    browser.wait_until("document.body.innerText.includes('nimda')");
    assert_eq!(
        browser.script(UNSEEN, &[]),
        json!([]),
        "a row that the stream brought"
    );
    assert!(browser.text().contains("eve\\u{202e}nimda"), "{}", browser.text());
    let user = encode(DISGUISED);
    for path in [
        pages::newest(&servers, &format!("user={user}")),
        format!("/live?user={user}"),
        format!("/who-can?verb={user}&resource=secrets"),
        format!("/what-can?user={user}&groups=contractors"),
        format!("/what-if?user={user}&verb=get&resource=secrets&namespace={user}"),
        format!("/live/{user}"),
    ] {
        browser.open(&servers.url(&path));
        assert_eq!(browser.script(UNSEEN, &[]), json!([]), "{path}");
    }
    // The program that asks gets the name as it is.
    let shown = servers.json(&format!("/live?user={user}"));
    assert_eq!(shown["decisions"][0]["line"]["user"], DISGUISED);
}

/// A form repeats what was filled in.
#[test]
fn markup_that_is_filled_in_is_repeated_as_text() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.open(&servers.url("/what-if"));
    for field in ["user", "verb", "resource", "namespace", "name"] {
        let selector = format!("main input[name={field}]");
        browser.fill(&selector, MARKUP);
    }
    browser.press(Key::Enter);
    browser.wait_until("location.search.includes('user=')");
    assert_eq!(
        browser.script(
            "return document.querySelector('main input[name=user]').value;",
            &[]
        ),
        MARKUP
    );
    assert_harmless(&browser, "/what-if");
}
