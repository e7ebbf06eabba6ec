//! Each view by keyboard alone: Tab reaches every control, and the focus is to be seen.

use std::collections::BTreeSet;

use serde_json::json;
use thirtyfour::Key;

use crate::every_page::ask_for_everything;
use crate::pages;
use crate::servers;

/// Numbers what can be used, which is not replaced from then on, and returns how many there are. Live takes
/// no more rows, as where nobody sees the page: they would push the focus out of view.
const NUMBER: &str = "
Object.defineProperty(document, 'hidden', { value: true, configurable: true });
document.dispatchEvent(new Event('visibilitychange'));
document.querySelectorAll('[data-refresh]').forEach(part => delete part.dataset.refresh);
const controls = Array.from(document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]'))
    .filter(element => element.checkVisibility() && !element.disabled);
controls.forEach((element, index) => element.dataset.number = index);
document.activeElement.blur();
return controls.length;
";

/// What has the focus: its number, and whether that is to be seen.
const FOCUSED: &str = "
const element = document.activeElement;
if (!element || element === document.body) return null;
const style = getComputedStyle(element);
const box = element.getBoundingClientRect();
return {
    number: element.dataset.number ?? null,
    html: element.outerHTML.slice(0, 120),
    seen: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== 'none',
    within: box.bottom > 0 && box.top < innerHeight && box.width > 0 && box.height > 0,
};
";

#[test]
fn tab_reaches_every_control_and_shows_where_it_is() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    ask_for_everything(&servers);
    browser.resize(1280, 800);
    for (_, path) in pages::views(&servers) {
        browser.open(&servers.url(&path));
        let controls = browser.script(NUMBER, &[]).as_u64().unwrap();
        assert!(controls >= 8, "{path}: {controls}");
        let mut reached = BTreeSet::new();
        for _ in 0..controls + 20 {
            browser.press(Key::Tab);
            let focused = browser.script(FOCUSED, &[]);
            let Some(number) = focused["number"].as_str() else {
                continue;
            };
            assert_eq!(
                focused["seen"], true,
                "{path}: the focus is not to be seen: {focused}"
            );
            assert_eq!(
                focused["within"], true,
                "{path}: the focus is out of view: {focused}"
            );
            reached.insert(number.parse::<u64>().unwrap());
            if reached.len() as u64 == controls {
                break;
            }
        }
        let missed: Vec<u64> = (0..controls).filter(|number| !reached.contains(number)).collect();
        assert!(reached.len() >= 8, "{path}: {reached:?}");
        let still_there = format!(
            "return [{missed:?}].flat().map(number => document.querySelector(`[data-number=\"${{number}}\"]`)?.outerHTML.slice(0, 120)).filter(Boolean);"
        );
        assert_eq!(browser.script(&still_there, &[]), json!([]), "{path}");
    }
}

#[test]
fn the_first_tab_stop_leads_past_the_navigation() {
    let Some((browser, servers)) = servers::in_a_browser() else {
        return;
    };
    browser.open(&servers.url("/"));
    browser.press(Key::Tab);
    browser.press(Key::Enter);
    let inside = "return document.activeElement.tagName;";
    assert_eq!(browser.script(inside, &[]), "MAIN");
}
