use super::*;
use crate::state::NoManifestSource;
use crate::state::tests::fixtures;

#[test]
fn the_authorization_configuration_is_read_for_warnings_alone() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = "apiVersion: v1\nkind: Config\n";
    std::fs::write(folder.path().join("webhook.kubeconfig"), kubeconfig).unwrap();
    let beside = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
        - {type: Webhook, name: portcullis, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, \
        matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, \
        connectionInfo: {type: KubeConfigFile, kubeConfigFile: webhook.kubeconfig}, \
        matchConditions: [{expression: \"request.user != 'a'\"}]}}\n";
    std::fs::write(folder.path().join("authorization-configuration.yaml"), beside).unwrap();
    let path = folder.path().join("portcullis.yaml");
    let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
        server: {address: '127.0.0.1:0', tls: {certificate: a, privateKey: b}}\n";
    let (config, faults) = config::parse(&path, text, folder.path());
    let config = config.unwrap_or_else(|| panic!("{faults}"));
    let with_warnings = options(&config, Some(SystemTime::UNIX_EPOCH));
    assert_eq!(with_warnings.api_server_webhooks.len(), 1);
    assert!(options(&config, None).api_server_webhooks.is_empty());
}

#[test]
fn a_single_file_takes_away_no_more_than_it_may() {
    let deny = |name: &str| {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{effect: Deny, subjects: [{{kind: User, name: joe}}], \
             nonResourceRules: [{{verbs: [get], paths: [/x]}}]}}\n"
        )
    };
    let all = ["a", "b", "c"].map(deny).concat();
    let (folder, snapshot) = fixtures::mk_snapshot(&all, "reload: {maxRemoved: 1}\n");
    let file = folder.path().join("manifests.yaml");
    for (left, is_taken) in [(deny("a"), false), (deny("a") + &deny("b"), true)] {
        std::fs::write(&file, left).unwrap();
        let files = BTreeSet::from([file.clone()]);
        let reloaded = reload_files(&snapshot, &NoManifestSource, &files, fixtures::now());
        assert_eq!(reloaded.is_some(), is_taken);
    }
}
