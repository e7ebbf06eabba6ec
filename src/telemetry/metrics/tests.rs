//! Series at the start, and as they move.

use super::*;

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.encode().unwrap()).unwrap()
}

#[test]
fn what_is_known_at_start_is_there_with_0() {
    let text = text(&Metrics::new().unwrap());
    for line in [
        r#"portcullis_http_requests_total{code="429",endpoint="authorize"} 0"#,
        r#"portcullis_http_requests_total{code="404",endpoint="other"} 0"#,
        r#"portcullis_authorization_decisions_total{decision="noOpinion"} 0"#,
        r#"portcullis_admission_decisions_total{decision="deny",phase="mutate"} 0"#,
        r#"portcullis_decision_duration_seconds_bucket{endpoint="authorize",le="0.000001"} 0"#,
        r#"portcullis_authentication_attempts_total{method="jwt",result="failure"} 0"#,
        r#"portcullis_reloads_total{result="success"} 0"#,
        "portcullis_last_reload_success_timestamp_seconds 0",
        "portcullis_last_reload_successful 0",
        "portcullis_log_dropped_total 0",
        r#"portcullis_in_flight_requests{endpoint="validate"} 0"#,
        "portcullis_decision_log_dropped_total 0",
        concat!(
            r#"portcullis_build_info{version=""#,
            env!("CARGO_PKG_VERSION"),
            r#""} 1"#
        ),
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains(r#"admission_decisions_total{decision="noOpinion""#));
}

#[test]
fn recording_moves_the_series_and_no_other() {
    let metrics = Metrics::new().unwrap();
    metrics.http_request(Some(Endpoint::Authorize), 200);
    metrics.http_request(Some(Endpoint::Authorize), 418);
    metrics.authorization(Decision::Deny, Duration::from_nanos(700));
    metrics.admission(Phase::Mutate, false, Duration::from_secs(60));
    metrics.authentication(AuthenticationMethod::Bearer, Outcome::Failure);
    metrics.reload(Outcome::Success, SystemTime::UNIX_EPOCH + Duration::from_secs(5));
    let moved: Vec<String> = text(&metrics)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.contains("build_info"))
        .filter(|line| !line.contains("_bucket") && !line.contains("_sum"))
        .filter(|line| !line.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        moved,
        [
            r#"portcullis_admission_decisions_total{decision="deny",phase="mutate"} 1"#,
            r#"portcullis_authentication_attempts_total{method="bearer",result="failure"} 1"#,
            r#"portcullis_authorization_decisions_total{decision="deny"} 1"#,
            r#"portcullis_decision_duration_seconds_count{endpoint="authorize"} 1"#,
            r#"portcullis_decision_duration_seconds_count{endpoint="mutate"} 1"#,
            r#"portcullis_http_requests_total{code="200",endpoint="authorize"} 1"#,
            r#"portcullis_http_requests_total{code="418",endpoint="authorize"} 1"#,
            "portcullis_last_reload_success_timestamp_seconds 5",
            "portcullis_last_reload_successful 1",
            r#"portcullis_reloads_total{result="success"} 1"#,
        ]
    );
}

#[test]
fn series_follow_the_configuration() {
    let metrics = Metrics::new().unwrap();
    let first = metrics.policies([
        (CauseKind::AuthorizationPolicy, "a"),
        (CauseKind::AuthorizationPolicy, "b"),
    ]);
    first
        .iter()
        .for_each(|policy| policy.record(PolicyResult::ShadowDeny));
    metrics.policies([(CauseKind::AuthorizationPolicy, "b")]);
    metrics.certificates([(["old.crt", "", "server"], SystemTime::UNIX_EPOCH)]);
    metrics.certificates([(
        ["new.crt", "jane", "caller"],
        SystemTime::UNIX_EPOCH + Duration::from_secs(9),
    )]);
    let cluster = |cluster| ClusterState {
        cluster,
        synced: true,
        objects: 12,
        faulty: 1,
        failures: 3,
        unconfirmed_absences: 4,
        outdated_kinds: 5,
        left_out: [
            ("rbac", 0),
            ("policies", 6),
            ("parameters", 7),
            ("accessRequests", 0),
        ],
    };
    metrics.clusters([cluster("gone"), cluster("east")]);
    metrics.cluster_webhooks_left_out([("gone", 9)]);
    metrics.clusters([cluster("east")]);
    metrics.cluster_webhooks_left_out([("east", 8)]);
    metrics.upstreams(["old", "hook"]);
    for upstream in metrics.upstreams(["hook"]) {
        upstream.record(Outcome::Success, Duration::ZERO);
        upstream.refused();
        upstream.breaker_open(true);
    }
    let text = text(&metrics);
    for line in [
        r#"portcullis_cluster_synced{cluster="east"} 1"#,
        r#"portcullis_cluster_objects{cluster="east"} 12"#,
        r#"portcullis_cluster_invalid_objects{cluster="east"} 1"#,
        r#"portcullis_cluster_watch_failures_total{cluster="east"} 3"#,
        r#"portcullis_cluster_unconfirmed_absences{cluster="east"} 4"#,
        r#"portcullis_cluster_outdated_kinds{cluster="east"} 5"#,
        r#"portcullis_cluster_left_out_objects{cluster="east",purpose="policies"} 6"#,
        r#"portcullis_cluster_left_out_objects{cluster="east",purpose="webhooks"} 8"#,
        r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="b",result="shadowDeny"} 1"#,
        r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="b",result="match"} 0"#,
        r#"portcullis_certificate_expiry_timestamp_seconds{file="new.crt",name="jane",use="caller"} 9"#,
        r#"portcullis_upstream_requests_total{result="success",webhook="hook"} 1"#,
        r#"portcullis_upstream_requests_total{result="failure",webhook="hook"} 1"#,
        r#"portcullis_upstream_duration_seconds_count{webhook="hook"} 1"#,
        r#"portcullis_upstream_breaker_open{webhook="hook"} 1"#,
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains(r#"name="a""#) && !text.contains("old.crt") && !text.contains("gone"));
    assert!(!text.contains(r#"webhook="old""#), "{text}");
}

#[test]
fn one_revision_is_in_force_at_a_time() {
    let metrics = Metrics::new().unwrap();
    metrics.configuration("0123456789ab");
    metrics.configuration("ba9876543210");
    let text = text(&metrics);
    let series: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("portcullis_configuration_info{"))
        .collect();
    assert_eq!(
        series,
        [r#"portcullis_configuration_info{revision="ba9876543210"} 1"#]
    );
}

#[test]
fn a_policy_of_several_clusters_ends_first_where_it_ends_first() {
    let metrics = Metrics::new().unwrap();
    let kind = CauseKind::AuthorizationPolicy;
    let (first, last) = (
        Time::parse("2026-01-01T00:00:00Z").unwrap(),
        Time::parse("2027-01-01T00:00:00Z").unwrap(),
    );
    metrics.policy_expirations([(kind, "a", last), (kind, "a", first), (kind, "b", last)]);
    let ends = |text: &str| {
        text.matches("portcullis_policy_expiration_timestamp_seconds{")
            .count()
    };
    let all = text(&metrics);
    assert_eq!(ends(&all), 2);
    assert!(
        all.contains(r#"{kind="AuthorizationPolicy",name="a"} 1767225600"#),
        "{all}"
    );
    metrics.policy_expirations([]);
    assert_eq!(ends(&text(&metrics)), 0);
}

#[test]
fn every_series_is_documented_with_its_labels_and_no_other() {
    let code = include_str!("families.rs");
    let written = code.split("make.").skip(1).map(|call| {
        let arguments = call.split_once("(\"").map_or("", |(_, arguments)| arguments);
        let (name, rest) = arguments.split_once('"').unwrap_or_default();
        let labels = rest.split_once("&[\"").map(|(_, labels)| labels);
        match labels.and_then(|labels| labels.split_once("\"]")) {
            Some((labels, _)) => format!("portcullis_{name}{{{}}}", labels.replace("\", \"", ",")),
            None => format!("portcullis_{name}"),
        }
    });
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented = rows.filter_map(|row| row.split_once('`').map(|(name, _)| name.to_owned()));
    let own = documented.filter(|name| name.starts_with("portcullis_"));
    let (mut written, mut own): (Vec<_>, Vec<_>) = (written.collect(), own.collect());
    written.sort();
    own.sort();
    assert_eq!(written, own);
    assert!(own.len() > 20, "{own:?}");
}

#[test]
fn series_of_watched_objects_are_bounded_and_those_of_files_are_not() {
    let metrics = Metrics::new().unwrap();
    let names: Vec<String> = (0..1500).map(|number| format!("p{number:04}")).collect();
    let kind = CauseKind::AuthorizationPolicy;
    let policies = || names.iter().map(|name| (kind, name.as_str()));
    let series = |family: &str, name: &str| {
        let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
        let of_family = text.lines().filter(|line| line.starts_with(family));
        of_family
            .filter(|line| line.contains(name))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // The last of all, but somebody who runs the gateway has named it.
    metrics.configured(["p1499".to_owned(), "p1498".to_owned()].into());
    let counters = metrics.policies(policies());
    counters
        .iter()
        .for_each(|counters| counters.record(PolicyResult::Match));
    let family = "portcullis_policy_evaluations_total{";
    assert_eq!(series(family, "result=\"match\"").len(), 1000 + 2 + 1);
    for (name, count) in [("p0000", 1), ("p0999", 1), ("p1499", 1), ("other", 498)] {
        let expected =
            format!("{family}kind=\"AuthorizationPolicy\",name=\"{name}\",result=\"match\"}} {count}");
        assert_eq!(
            series(family, &format!("name=\"{name}\",result=\"match\"")),
            [expected]
        );
    }
    assert!(series(family, "p1000").is_empty());
    // The earlier the name, the later the end.
    let ends: Vec<Time> = (0..1500)
        .map(|number| Time::parse(&format!("{}-01-01T00:00:00Z", 3600 - number)).unwrap())
        .collect();
    metrics.policy_expirations(
        names
            .iter()
            .zip(&ends)
            .map(|(name, end)| (kind, name.as_str(), *end)),
    );
    let family = "portcullis_policy_expiration_timestamp_seconds{";
    assert_eq!(series(family, "").len(), 1003);
    let first = format!(" {}", ends[1497].as_seconds());
    assert!(series(family, "other")[0].ends_with(&first), "{first}");
    let webhooks: Vec<String> = names.iter().map(|name| format!("{name}/hook")).collect();
    let recorders = metrics.upstreams(webhooks.iter().map(String::as_str));
    recorders.iter().for_each(UpstreamRecorder::refused);
    let family = "portcullis_upstream_requests_total{result=\"failure\"";
    assert_eq!(series(family, "").len(), 1003);
    assert!(series(family, "\"p1499/hook\"")[0].ends_with(" 1"));
    assert!(series(family, "\"other\"")[0].ends_with(" 498"));
    metrics.shadow_webhooks(webhooks.iter().cloned());
    webhooks
        .iter()
        .for_each(|webhook| metrics.shadow_webhook(webhook, Decision::Deny));
    let family = "portcullis_shadow_webhook_decisions_total{decision=\"deny\"";
    assert_eq!(series(family, "").len(), 1003);
    assert!(series(family, "\"other\"")[0].ends_with(" 498"));
    // They end with the policies.
    metrics.policies([(kind, "p0000")]);
    assert!(series("portcullis_policy_evaluations_total{", "other").is_empty());
}
