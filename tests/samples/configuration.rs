//! GatewayConfigurations.

use std::path::Path;
use std::time::Duration;

use portcullis::config::{self, Config};

use crate::project::{self, SetUp};

fn valid(path: &Path) -> Config {
    let (config, faults) = config::load(path);
    assert_eq!(faults.to_string(), "");
    config.unwrap()
}

#[test]
fn every_configuration_is_sound() {
    let set_up = SetUp::new();
    for path in [
        project::path("config/portcullis.yaml"),
        project::path("config/portcullis.full.yaml"),
        project::path("kubeconfig-examples/portcullis.yaml"),
        set_up.path("portcullis.yaml"),
    ] {
        valid(&path);
    }
}

#[test]
fn the_full_configuration_shows_the_defaults() {
    let smallest = valid(&project::path("config/portcullis.yaml"));
    let full = valid(&project::path("config/portcullis.full.yaml"));
    assert_eq!(full.server, smallest.server);
    assert_eq!(full.admin, smallest.admin);
    assert_eq!(full.authorization.never_deny, smallest.authorization.never_deny);
    let [webhook] = full.authorization.webhooks.as_slice() else {
        panic!("one example")
    };
    assert_eq!(webhook.authorized_ttl, Some(Duration::from_secs(300)));
    assert_eq!(webhook.unauthorized_ttl, Some(Duration::from_secs(30)));
    assert_eq!(full.admission, smallest.admission);
    let mut limits = full.limits;
    // Its default depends on the machine.
    assert_eq!(limits.watched_bytes.take(), Some(512 << 20));
    assert_eq!(limits, smallest.limits);
    assert_eq!(full.reload.poll_interval, smallest.reload.poll_interval);
    let (recording, usage) = (full.recording.unwrap().files, full.usage.unwrap());
    for (files, days) in [(recording, 1), (usage, 90)] {
        assert_eq!(
            (files.max_bytes, files.max_age),
            (1 << 30, Duration::from_secs(days * 86_400))
        );
    }
    assert!(smallest.recording.is_none() && smallest.usage.is_none());
    assert!(smallest.reload.last_good.is_none() && full.reload.last_good.is_some());
}

#[test]
fn the_full_configuration_has_every_section() {
    let text = project::text(&project::path("config/portcullis.full.yaml"));
    for section in [
        "server",
        "admin",
        "callers",
        "manifests",
        "authorization",
        "admission",
        "clusters",
        "limits",
        "reload",
        "decisionLog",
        "usage",
        "recording",
    ] {
        assert!(text.contains(&format!("\n{section}:")), "{section}");
    }
}
