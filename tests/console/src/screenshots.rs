//! The pictures of `docs/console.md`, taken again with `PORTCULLIS_WRITE_SCREENSHOTS=1`.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::chromium::Browser;
use crate::every_page::ask_for_everything;
use crate::harness::eventually;
use crate::pages;
use crate::servers::{NAMESPACE, Servers};

/// A picture: of a view by its name, in a scheme, so many pixels wide and high.
struct Picture {
    name: &'static str,
    view: &'static str,
    scheme: &'static str,
    width: u32,
    height: u32,
}

const PICTURES: [Picture; 13] = [
    Picture::on_a_desk("now", 1350),
    Picture::on_a_desk("live", 800),
    Picture::on_a_desk("decision", 900),
    Picture::on_a_desk("who-can", 800),
    Picture::on_a_desk("what-can", 800),
    Picture::on_a_desk("what-if", 900),
    Picture::on_a_desk("policies", 800),
    Picture::on_a_desk("webhooks", 560),
    Picture::on_a_desk("clusters", 480),
    Picture::on_a_desk("policy", 800),
    Picture::on_a_desk("changes", 560),
    Picture {
        scheme: "dark",
        name: "decision-dark",
        ..Picture::on_a_desk("decision", 800)
    },
    Picture {
        name: "live-narrow",
        width: 360,
        ..Picture::on_a_desk("live", 800)
    },
];

/// Each chart is there.
const DRAWN: &str =
    "document.querySelectorAll('[data-chart]').length === document.querySelectorAll('canvas').length";

/// Shows files where an installation has them, and not in the folder of a test.
const INSTALLED: &str = "
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(arguments[0], arguments[1]);
";

/// A policy that comes, and then changes.
const FREEZE: &str = "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: freeze}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: [delete], apiGroups: [apps], resources: [deployments], namespaces: [shop]}]
";

/// Keeps the pictures smaller than the program.
const MAX_PICTURE_BYTES: usize = 150 << 10;

impl Picture {
    /// In light, of the view of this name.
    const fn on_a_desk(view: &'static str, height: u32) -> Self {
        Self {
            name: view,
            view,
            scheme: "light",
            width: 1280,
            height,
        }
    }
}

fn folder() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/console")).to_owned()
}

#[test]
fn each_view_has_its_picture() {
    if std::env::var("PORTCULLIS_WRITE_SCREENSHOTS").is_ok_and(|value| value == "1") {
        let Some(browser) = Browser::start() else { return };
        let Some(servers) = Servers::presentable() else {
            return;
        };
        take(&browser, &servers);
    }
    let page = std::fs::read_to_string(folder().with_extension("md")).unwrap();
    for Picture { name, .. } in PICTURES {
        let bytes = std::fs::read(folder().join(format!("{name}.png"))).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"), "{name}");
        assert!(bytes.len() <= MAX_PICTURE_BYTES, "{name}: {} bytes", bytes.len());
        assert!(page.contains(&format!("(console/{name}.png)")), "{name}");
    }
}

fn take(browser: &Browser, servers: &Servers) {
    for number in 0..12 {
        ask_for_everything(servers);
        servers.create_config_map("dora", &format!("settings-{number}"), &json!({}));
        let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/web-{number}");
        servers.cluster.status("alice", &pod);
    }
    // Figures of Now are taken every ten seconds.
    let has_figures = || {
        servers.json("/")["samples"]
            .as_array()
            .is_some_and(|samples| samples.len() > 1)
    };
    assert!(eventually(has_figures), "no figures of the last minutes");
    // The last of all, so that the denial that is shown is one of this run.
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets/payment-keys");
    assert_eq!(servers.cluster.status("carol", &secrets), 403);
    // A change of files, for the difference of two revisions.
    let file = servers.gateway.manifests().join("freeze.yaml");
    std::fs::write(&file, FREEZE).unwrap();
    assert!(eventually(|| servers
        .json("/policies")
        .to_string()
        .contains("freeze")));
    std::fs::write(&file, FREEZE.replace("[delete]", "[delete, patch]")).unwrap();
    let has_changed = || {
        servers.json("/changes")["revisions"]
            .as_array()
            .is_some_and(|all| all.len() > 2)
    };
    assert!(eventually(has_changed), "the change of a file is not in force");
    std::fs::create_dir_all(folder()).unwrap();
    let views = pages::views(servers);
    for picture in PICTURES {
        let (_, path) = views.iter().find(|(name, _)| *name == picture.view).unwrap();
        browser.prefer(picture.scheme);
        browser.resize(picture.width, picture.height);
        browser.open(&servers.url(path));
        browser.wait_until(DRAWN);
        let home = servers.gateway.manifests().parent().unwrap();
        browser.script(INSTALLED, &[json!(home), json!("/etc/portcullis")]);
        let file = folder().join(format!("{}.png", picture.name));
        std::fs::write(file, browser.screenshot()).unwrap();
    }
}
