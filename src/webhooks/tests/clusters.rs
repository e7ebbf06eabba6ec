//! Whose credentials and addresses a webhook is called with.

use super::*;

/// A gateway whose `upstreams` have a token for everybody, and which watches the clusters `west`,
/// `east` and `default`; `east` has `upstreams` of its own.
fn of_clusters(folder: &Path, east: &str) -> Config {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("own", "users: [{name: '*', user: {token: own}}]");
    write("of-east", "users: [{name: '*', user: {token: of-east}}]");
    let config = config_in(
        folder,
        &format!(
            "{{kubeconfig: own}}\nclusters: [{{name: west, kubeconfig: k, cacheFile: w}}, \
             {{name: default, kubeconfig: k, cacheFile: d}}, \
             {{name: east, kubeconfig: k, cacheFile: e, upstreams: {east}}}]"
        ),
    );
    assert_eq!(config.clusters.len(), 3);
    config
}

fn registered<'w>(webhook: &'w Arc<Webhook>, cluster: &'w str, is_watched: bool) -> ConfiguredWebhook<'w> {
    ConfiguredWebhook {
        webhook,
        cluster: Some(cluster),
        is_watched,
    }
}

fn call_for(upstreams: &Upstreams, cluster: &str, webhook: &Arc<Webhook>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let called = runtime.block_on(upstreams.call((cluster, webhook), "{}", PATIENCE, JANE, None, None));
    called.map(drop).map_err(|failure| failure.to_string())
}

#[test]
fn webhooks_of_a_cluster_use_its_own_credentials_and_addresses() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = no_files();
    let config = of_clusters(
        folder.path(),
        "{kubeconfig: of-east, allowedAddresses: [127.0.0.1]}",
    );
    let (read, faults) = Upstreams::read(&config, None, &mut HeldBack::new());
    assert_eq!(faults.to_string(), "");
    // The clusters have the very same webhook, and there is one of that name in files.
    let in_files = webhook("hook", pair.webhook.client.target.clone(), pair.authority.pem());
    let all = [
        ConfiguredWebhook::everywhere(&in_files),
        registered(&pair.webhook, "west", true),
        registered(&pair.webhook, "east", true),
        registered(&pair.webhook, "default", true),
    ];
    let upstreams = read.with(all, None);
    let refused = |cluster: &str| {
        let error = call_for(&upstreams, cluster, &pair.webhook).unwrap_err();
        assert!(error.contains("loopback or link-local"), "{cluster}: {error}");
    };
    refused("west");
    // Its credentials are those of `upstreams`, but others wrote the webhook.
    refused("default");
    assert_eq!(pair.server.received().len(), 0);
    call_for(&upstreams, "east", &pair.webhook).unwrap();
    for cluster in ["west", "east", "default", "elsewhere"] {
        call_for(&upstreams, cluster, &in_files).unwrap();
    }
    call_for(&upstreams, "elsewhere", &pair.webhook).unwrap_err();
    let shown: Vec<String> = pair
        .server
        .received()
        .iter()
        .map(|request| request.headers["authorization"].clone())
        .collect();
    assert_eq!(
        shown,
        [
            "Bearer of-east",
            "Bearer own",
            "Bearer own",
            "Bearer own",
            "Bearer own"
        ]
    );
}

#[test]
fn a_cluster_without_upstreams_shows_nothing_to_its_webhooks() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = no_files();
    let config = of_clusters(folder.path(), "{allowedAddresses: [127.0.0.0/8]}");
    let upstreams = Upstreams::read(&config, None, &mut HeldBack::new()).0;
    let upstreams = upstreams.with([registered(&pair.webhook, "east", true)], None);
    call_for(&upstreams, "east", &pair.webhook).unwrap();
    assert_eq!(pair.server.received()[0].headers.get("authorization"), None);
}

#[test]
fn upstreams_of_a_cluster_hold_for_its_own_files_too() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = no_files();
    let config = of_clusters(folder.path(), "{}");
    let upstreams = Upstreams::read(&config, None, &mut HeldBack::new()).0;
    let upstreams = upstreams.with(
        [
            registered(&pair.webhook, "east", false),
            registered(&pair.webhook, "west", false),
        ],
        None,
    );
    let error = call_for(&upstreams, "east", &pair.webhook).unwrap_err();
    assert!(error.contains("loopback or link-local"), "{error}");
    call_for(&upstreams, "west", &pair.webhook).unwrap();
    assert_eq!(pair.server.received()[0].headers["authorization"], "Bearer own");
}

#[test]
fn of_a_cluster_so_many_webhooks_are_called_and_the_failure_policy_of_the_others_decides() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = no_files();
    let config = of_clusters(folder.path(), "{allowedAddresses: [127.0.0.1]}");
    let (read, _) = Upstreams::read(&config, None, &mut HeldBack::new());
    let target = || pair.webhook.client.target.clone();
    let made = |place: usize| webhook(&format!("hook-{place}"), target(), pair.authority.pem());
    let webhooks: Vec<_> = (0..MAX_WEBHOOKS_OF_CLUSTER + 2).map(made).collect();
    let of_east = || webhooks.iter().map(|webhook| registered(webhook, "east", true));
    let of_west = registered(&webhooks[0], "west", true);
    let everywhere = webhook("everywhere", target(), pair.authority.pem());
    let rest = [of_west, ConfiguredWebhook::everywhere(&everywhere)];
    let upstreams = read.with(of_east().chain(rest), None);

    assert_eq!(upstreams.left_out().collect::<Vec<_>>(), [("east", 2)]);
    let warnings = upstreams.warnings(&config).to_string();
    assert!(
        warnings.contains("cluster/east") && warnings.contains("2 webhooks are not called"),
        "{warnings}"
    );
    let (called, left_out) = webhooks.split_at(MAX_WEBHOOKS_OF_CLUSTER);
    call_for(&upstreams, "east", called.last().unwrap()).unwrap();
    call_for(&upstreams, "east", &everywhere).unwrap();
    for webhook in left_out {
        let error = call_for(&upstreams, "east", webhook).unwrap_err();
        assert!(error.contains("not among the first 200 webhooks"), "{error}");
    }
    // One that goes makes room for another.
    let fewer = read.with(of_east().skip(2), Some(&upstreams));
    assert_eq!(fewer.left_out().count(), 0);
    call_for(&fewer, "east", &left_out[1]).unwrap();
}
