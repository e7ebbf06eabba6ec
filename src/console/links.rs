//! Where a decision leads: to the view of an object that it names, and to *What if*.

use super::query::ViewQuery;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};

/// The path of the view of an object that a decision for `cluster` names.
pub(crate) fn object(object: &LoggedObject<'_>, cluster: &str) -> String {
    let part = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let namespace = match &*object.namespace {
        "" => "-".to_owned(),
        namespace => part(namespace),
    };
    let path = match &*object.kind {
        "Webhook" => "/webhooks".to_owned(),
        kind => format!("/policies/{}/{namespace}/{}", part(kind), part(&object.name)),
    };
    match cluster {
        "" => path,
        cluster => format!("{path}?cluster={}", part(cluster)),
    }
}

/// The same request as the query of *What if*.
pub(crate) fn what_if(decision: &LoggedDecision<'_>) -> ViewQuery {
    let attributes = &decision.attributes;
    let resource = decision.resource();
    let labels = attributes
        .label_selector
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let fields = attributes
        .field_selector
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let extra: Vec<String> = attributes
        .extra
        .iter()
        .flat_map(|(key, values)| values.iter().map(move |value| format!("{key}={value}")))
        .collect();
    let mut pairs: Vec<(&str, &str)> = vec![("user", &decision.user)];
    if !decision.is_admission() {
        pairs.push(("uid", &decision.uid));
    }
    pairs.extend(decision.groups.iter().map(|group| ("group", &**group)));
    let verb = if decision.is_admission() {
        "operation"
    } else {
        "verb"
    };
    pairs.extend([
        (verb, decision.verb()),
        ("resource", &*resource),
        ("namespace", &*attributes.namespace),
        ("name", &*attributes.name),
        ("path", &*attributes.path),
        ("selector", &*labels),
        ("field-selector", &*fields),
        ("cluster", &*decision.cluster),
    ]);
    pairs.extend(extra.iter().map(|extra| ("extra", extra.as_str())));
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_decision_names_is_found_in_its_cluster() {
        let line = br#"{"cluster":"east & west","endpoint":"authorize","uid":"u-1","user":"j\"ne","groups":["a","b"],"attributes":{"verb":"get","namespace":"ns","group":"apps","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","cause":{"kind":"RoleBinding","namespace":"a/b","name":"p"},"shadow":[{"kind":"Webhook","name":"c/w"}]}"#;
        let decision = LoggedDecision::read(line).unwrap();
        let (cause, shadow) = (decision.cause.as_ref().unwrap(), &decision.shadow[0]);
        for (named, cluster, expected) in [
            (
                cause,
                &*decision.cluster,
                "/policies/RoleBinding/a%2Fb/p?cluster=east+%26+west",
            ),
            (cause, "", "/policies/RoleBinding/a%2Fb/p"),
            (shadow, "east", "/webhooks?cluster=east"),
        ] {
            assert_eq!(object(named, cluster), expected);
        }
        assert_eq!(
            what_if(&decision).encode(),
            "user=j%22ne&uid=u-1&group=a&group=b&verb=get&resource=deployments.apps%2Fscale\
             &namespace=ns&name=web&cluster=east+%26+west"
        );
    }

    #[test]
    fn selectors_are_asked_about_again() {
        let line = br#"{"endpoint":"authorize","user":"a","attributes":{"verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b","c"]},{"key":"d","operator":"Exists"},{"key":"e","operator":"DoesNotExist"},{"key":"f","operator":"NotIn","values":["g"]}]},"extra":{"k":["v","w"]}}}"#;
        let query = what_if(&LoggedDecision::read(line).unwrap());
        assert_eq!(query.one("field-selector"), Ok(Some("spec.nodeName=n1")));
        assert_eq!(query.one("selector"), Ok(Some("a notin (b,c),d,!e,f!=g")));
        assert_eq!(query.all("extra").collect::<Vec<_>>(), ["k=v", "k=w"]);
    }
}
