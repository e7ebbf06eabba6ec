//! The parameters of a URL's query or of a form; links from decisions to the views of objects and
//! to *What if*; and the pages of a long list.

use super::page::ViewError;
use portcullis_policy::explain::logged::{LoggedDecision, LoggedObject};

/// Parameters, in the order of writing. A parameter can have several values. Empty values count as
/// absent, because a form sends all of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewQuery(Vec<(String, String)>);

// === impl ViewQuery ===

impl ViewQuery {
    /// Parses `application/x-www-form-urlencoded`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        let written = pairs.filter(|(_, value)| !value.is_empty());
        Self(
            written
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The value of `name`, if it has one.
    ///
    /// # Errors
    ///
    /// The parameter has several values.
    pub fn single<'q>(&'q self, name: &'q str) -> Result<Option<&'q str>, ViewError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(ViewError::Invalid(format!("`{name}` is given more than once"))),
        }
    }

    /// The value of `name` without surrounding spaces; empty if there is none.
    ///
    /// # Errors
    ///
    /// The parameter has several values.
    pub fn text<'q>(&'q self, name: &'q str) -> Result<&'q str, ViewError> {
        Ok(self.single(name)?.unwrap_or_default().trim())
    }

    /// All values of `name`.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let of_name = move |(found, value): &'q (String, String)| (found == name).then_some(value.as_str());
        self.0.iter().filter_map(of_name)
    }

    /// The non-empty lines in the values of `name`, for a field with one value per line.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<String> {
        let lines = self.all(name).flat_map(str::lines).map(str::trim);
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// All parameters with their values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rejects parameters that are not in `known`, because a filter with a misspelt parameter must
    /// not show everything.
    ///
    /// # Errors
    ///
    /// The first unknown parameter, with the known ones.
    pub fn reject_unknown(&self, known: &[&str]) -> Result<(), ViewError> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(ViewError::Invalid(format!(
                "`{name}` is not known: supported are {}",
                known
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// Encodes the parameters as the query of a URL.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(&self.0).finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for ViewQuery {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }
}

/// The URL of the view of an object in a decision for `cluster`.
pub(crate) fn object_link(object: &LoggedObject<'_>, cluster: &str) -> String {
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

/// The query of *What if* for the request of `decision`.
pub(crate) fn what_if_link(decision: &LoggedDecision<'_>) -> ViewQuery {
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

// The pages of a long list.

/// The number of rows of a page.
const ROWS: usize = 200;

/// The rows of a list that a page shows, and the links to other pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paging {
    /// The number of rows in the list.
    pub(crate) total: usize,
    /// The number of the first row on the page, from 1.
    pub(crate) first: usize,
    /// The number of the last row on the page.
    pub(crate) last: usize,
    /// The URL of the previous page.
    pub(crate) previous: Option<String>,
    /// The URL of the next page.
    pub(crate) next: Option<String>,
}

impl Paging {
    /// The page of `total` rows that the parameter `page` in `query` selects. `path` is that of the
    /// view.
    ///
    /// # Errors
    ///
    /// The page does not exist.
    pub(crate) fn new(total: usize, path: &str, query: &ViewQuery) -> Result<Self, ViewError> {
        let pages = total.div_ceil(ROWS).max(1);
        let page = match query.single("page")? {
            None => 1,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|page| (1..=pages).contains(page))
                .ok_or_else(|| {
                    ViewError::Invalid(format!("`page` is `{text}`: there are the pages 1 to {pages}"))
                })?,
        };
        let url = |page: usize| {
            let others = query.pairs().filter(|(name, _)| *name != "page");
            let page = page.to_string();
            let query: ViewQuery = others.chain([("page", page.as_str())]).collect();
            format!("{path}?{}", query.encode())
        };
        Ok(Self {
            total,
            first: ((page - 1) * ROWS + 1).min(total),
            last: (page * ROWS).min(total),
            previous: (page > 1).then(|| url(page - 1)),
            next: (page < pages).then(|| url(page + 1)),
        })
    }

    /// The rows of the page.
    pub(crate) fn rows<'r, T>(&self, all: &'r [T]) -> &'r [T] {
        all.get(self.first.saturating_sub(1)..self.last)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_written() {
        let query = ViewQuery::parse("user=a%20b&group=x&group=y&verb=&path=%2Fa%26b");
        assert_eq!(query.single("user"), Ok(Some("a b")));
        assert_eq!(query.single("verb"), Ok(None));
        assert_eq!(query.text("verb"), Ok(""));
        assert_eq!(ViewQuery::parse("user=+a+").text("user"), Ok("a"));
        assert_eq!(query.single("absent"), Ok(None));
        assert_eq!(query.all("group").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(
            query.single("group").unwrap_err().to_string(),
            "`group` is given more than once"
        );
        assert_eq!(query.encode(), "user=a+b&group=x&group=y&path=%2Fa%26b");
        assert_eq!(ViewQuery::parse(&query.encode()), query);
    }

    #[test]
    fn a_name_that_is_not_known_is_refused() {
        let query = ViewQuery::parse("user=a&usr=b");
        let error = query.reject_unknown(&["user", "verb"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`usr` is not known: supported are `user`, `verb`"
        );
        assert_eq!(query.reject_unknown(&["user", "usr"]), Ok(()));
        assert!(ViewQuery::parse("a=&b=").is_empty());
    }

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
            assert_eq!(object_link(named, cluster), expected);
        }
        assert_eq!(
            what_if_link(&decision).encode(),
            "user=j%22ne&uid=u-1&group=a&group=b&verb=get&resource=deployments.apps%2Fscale\
             &namespace=ns&name=web&cluster=east+%26+west"
        );
    }

    #[test]
    fn selectors_are_asked_about_again() {
        let line = br#"{"endpoint":"authorize","user":"a","attributes":{"verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b","c"]},{"key":"d","operator":"Exists"},{"key":"e","operator":"DoesNotExist"},{"key":"f","operator":"NotIn","values":["g"]}]},"extra":{"k":["v","w"]}}}"#;
        let query = what_if_link(&LoggedDecision::read(line).unwrap());
        assert_eq!(query.single("field-selector"), Ok(Some("spec.nodeName=n1")));
        assert_eq!(query.single("selector"), Ok(Some("a notin (b,c),d,!e,f!=g")));
        assert_eq!(query.all("extra").collect::<Vec<_>>(), ["k=v", "k=w"]);
    }

    #[test]
    fn a_list_is_shown_a_page_at_a_time() {
        let all: Vec<usize> = (1..=450).collect();
        for (total, query, first, last, previous, next) in [
            (0, "", 0, 0, None, None),
            (200, "a=1", 1, 200, None, None),
            (450, "a=1&page=1&b=%26", 1, 200, None, Some("/p?a=1&b=%26&page=2")),
            (450, "page=2", 201, 400, Some("/p?page=1"), Some("/p?page=3")),
            (450, "page=3", 401, 450, Some("/p?page=2"), None),
        ] {
            let paging = Paging::new(total, "/p", &ViewQuery::parse(query)).unwrap();
            assert_eq!((paging.first, paging.last), (first, last), "{query}");
            assert_eq!(paging.previous.as_deref(), previous, "{query}");
            assert_eq!(paging.next.as_deref(), next, "{query}");
            let rows = paging.rows(&all);
            assert_eq!(rows.first().copied().unwrap_or_default(), first);
            assert_eq!(rows.len(), if first == 0 { 0 } else { last - first + 1 });
        }
        for query in [
            "page=0",
            "page=4",
            "page=-1",
            "page=x",
            "page=99999999999999999999",
            "page=1&page=2",
        ] {
            assert!(
                Paging::new(450, "/p", &ViewQuery::parse(query)).is_err(),
                "{query}"
            );
        }
    }
}
