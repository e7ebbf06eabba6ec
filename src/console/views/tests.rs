//! Who sees one cluster learns nothing of another, in any view.

use serde_json::Value;

use crate::console::page::Representation;
use crate::console::tests::fixtures::TestConsole;
use crate::console::{LiveStream, ViewQuery, VisibleClusters};
use portcullis_policy::model::Decision;

/// A policy, a role with its binding, a webhook and a validating policy of a cluster.
fn manifests(cluster: &str) -> String {
    format!(
        "---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: stop-{cluster}}}
spec:
  effect: Deny
  notAfter: '2027-01-20T00:00:00Z'
  subjects: [{{kind: User, name: somebody-{cluster}}}]
  resourceRules: [{{verbs: [get], apiGroups: [''], resources: [pods]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: reader-{cluster}}}
rules: [{{verbs: [get], apiGroups: [''], resources: [pods]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: readers-{cluster}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-{cluster}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader-{cluster}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: scanner-{cluster}}}
webhooks:
- {{name: w.{cluster}.example.com, clientConfig: {{url: 'https://{cluster}.example.com'}}, sideEffects: None,
   admissionReviewVersions: [v1], rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: few-{cluster}}}
spec:
  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}
  validations: [{{expression: 'true'}}]
"
    )
}

fn line(cluster: &str, user: &str) -> String {
    format!(
        r#"{{"time":"2027-01-15T08:00:00.000000Z","revision":"r","cluster":"{cluster}","caller":"{cluster}","endpoint":"authorize","user":"{user}","groups":[],"attributes":{{"verb":"get","resource":"pods","namespace":"n"}},"decision":"deny","cause":{{"kind":"AuthorizationPolicy","name":"stop-{cluster}"}},"reason":"of {cluster}","shadow":[],"durationSeconds":0.1}}"#
    )
}

/// What the caller of `east` sees, where there are many more decisions of `west`.
fn mk_console() -> TestConsole {
    let clusters = [("east", manifests("east")), ("west", manifests("west"))];
    let clusters = clusters.each_ref().map(|(name, text)| (*name, text.as_str()));
    let console = TestConsole::of_clusters(&manifests("all"), &clusters);
    let at = |seconds| crate::state::tests::fixtures::now() + std::time::Duration::from_secs(seconds);
    console.console.sample(&console.metrics, at(0));
    for number in 0..700 {
        let cluster = if number % 7 == 0 { "east" } else { "west" };
        let line = line(cluster, &format!("somebody-{cluster}"));
        console.console.push(Decision::Deny, cluster, line.as_bytes());
    }
    console.console.sample(&console.metrics, at(10));
    console.seeing(VisibleClusters::One("east".into()))
}

const VIEWS: [&str; 28] = [
    "/",
    "/status",
    "/live/complete?q=user:",
    "/live/complete?q=cluster:",
    "/live?q=ns:n+somebody",
    "/live",
    "/live?cluster=west",
    "/live?user=somebody-west",
    "/live?policy=stop-west",
    "/live/1",
    "/live/100",
    "/live/101",
    "/live/650",
    "/who-can?verb=get&resource=pods",
    "/who-can?verb=get&resource=pods&cluster=west",
    "/what-can?user=reader-west",
    "/what-can?user=reader-east&cluster=east",
    "/what-can?user=reader-west&cluster=west",
    "/what-if?user=reader-west&verb=get&resource=pods",
    "/what-if?user=reader-west&verb=get&resource=pods&cluster=west",
    "/policies",
    "/policies?cluster=west",
    "/policies/AuthorizationPolicy/-/stop-west",
    "/policies/AuthorizationPolicy/-/stop-east",
    "/policies/ClusterRoleBinding/-/readers-west?cluster=west",
    "/webhooks",
    "/webhooks?cluster=west",
    "/clusters",
];

/// What is said without what was asked, which is repeated.
fn without_question(text: &str, url: &str) -> String {
    let (_, query) = url.split_once('?').unwrap_or((url, ""));
    let asked = ViewQuery::parse(query);
    let asked = asked.pairs().map(|(_, value)| value.to_owned());
    let segments = url.split(['/', '?']).map(str::to_owned);
    let asked = asked
        .chain(segments)
        .filter(|asked| asked.contains("west") && asked != "west");
    let cluster = ["`west`", "cluster=west", r#""cluster": "west""#].map(str::to_owned);
    asked
        .chain(cluster.into_iter().filter(|_| url.contains("cluster=west")))
        .fold(text.to_owned(), |text, asked| text.replace(&asked, ""))
}

#[test]
fn no_view_shows_another_cluster() {
    let console = mk_console();
    for url in VIEWS {
        for representation in [Representation::Html, Representation::Json] {
            let text = match console.get(url, representation) {
                Ok(page) => page.body,
                Err(error) => error.to_string(),
            };
            // The word holds the name of a cluster.
            let text = without_question(&text, url).replace("newest", "new");
            for sign in ["west", "600", "700"] {
                assert!(!text.contains(sign), "{url} {representation:?}: {sign}: {text}");
            }
        }
    }
}

#[test]
fn what_is_counted_is_of_the_own_cluster() {
    let console = mk_console();
    let now = console.json("/").unwrap();
    let own = serde_json::json!([{"cluster": "east", "allow": 0, "deny": 100, "noOpinion": 0}]);
    assert_eq!(now["decisionsByCluster"], own);
    assert_eq!(now["endpoints"], Value::Array(Vec::new()));
    assert_eq!(now["samples"][0]["deny"], 10.0);
    let live = console.json("/live").unwrap();
    assert_eq!(live["newest"], 100);
    assert_eq!(live["decisions"][0]["sequence"], 100);
    assert!(console.html("/live/100").unwrap().contains("somebody-east"));
    let gone = console.html("/live/101").unwrap_err().to_string();
    assert!(gone.contains("the newest is 100"), "{gone}");
    let policies = console.json("/policies").unwrap();
    let names: Vec<&str> = policies["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert_eq!(row["counts"], Value::Null);
            row["name"].as_str().unwrap()
        })
        .collect();
    assert_eq!(names, ["stop-all", "stop-east", "few-all", "few-east"]);
}

#[test]
fn a_stream_has_the_decisions_of_the_own_cluster() {
    let console = mk_console();
    let decisions = console.console.decisions(&VisibleClusters::One("east".into()));
    let mut live = LiveStream::new(&ViewQuery::parse("after=0"), None, &decisions).unwrap();
    let events = live.advance(&decisions.since(0));
    assert!(
        events.contains("somebody-east") && !events.contains("west"),
        "{events}"
    );
    assert!(events.ends_with("event: seen\nid: 100\ndata:\n\n"), "{events}");
}

/// What a policy on trial meets is of the own cluster, too: its faults name no other's objects.
#[test]
fn a_policy_on_trial_meets_nothing_of_another_cluster() {
    let console = mk_console();
    let policy = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: stop-west}\nspec:\n  \
        effect: Deny\n  subjects: [{kind: User, name: somebody-east}]\n  \
        resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}]\n";
    let page = console.post(&[("policy", policy)], Representation::Json).unwrap();
    let found: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(found["objects"][0]["replaces"], false, "{found}");
    assert_eq!(found["recent"]["decided"], 100, "{found}");
    let text = page.body.replace("stop-west", "");
    assert!(!text.contains("west"), "{text}");
}

#[test]
fn who_may_sees_every_cluster() {
    let console = mk_console().seeing(VisibleClusters::All);
    assert_eq!(console.json("/live").unwrap()["newest"], 700);
    let clusters = console.json("/clusters").unwrap().to_string();
    assert!(
        clusters.contains("east") && clusters.contains("west"),
        "{clusters}"
    );
    assert!(
        console
            .html("/policies?cluster=west")
            .unwrap()
            .contains("stop-west")
    );
}
