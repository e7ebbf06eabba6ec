//! What every page has around its view.

use std::sync::Arc;

/// The views by path, and what they are called. One whose path has more segments belongs to the
/// view of the first.
const NAVIGATION: [(&str, &str); 8] = [
    ("/", "Now"),
    ("/live", "Live"),
    ("/who-can", "Who can"),
    ("/what-can", "What can"),
    ("/what-if", "What if"),
    ("/policies", "Policies"),
    ("/webhooks", "Webhooks"),
    ("/clusters", "Clusters"),
];

/// What surrounds a view: title, navigation, and what is in force.
#[derive(Debug, Clone)]
pub(crate) struct PageFrame {
    /// The heading, and the title of the window.
    pub(crate) title: String,
    /// The revision in force.
    pub(crate) revision: Arc<str>,
    /// The program's.
    pub(crate) version: &'static str,
    /// The path of the request.
    path: String,
}

/// A link to a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NavigationLink {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    /// Whether the page is of that view.
    pub(crate) is_current: bool,
}

// === impl PageFrame ===

impl PageFrame {
    pub(crate) fn new(title: impl Into<String>, path: &str, revision: &Arc<str>) -> Self {
        Self {
            title: title.into(),
            revision: Arc::clone(revision),
            version: env!("CARGO_PKG_VERSION"),
            path: path.to_owned(),
        }
    }

    /// The links to all views.
    pub(crate) fn links(&self) -> impl Iterator<Item = NavigationLink> {
        NAVIGATION.into_iter().map(|(path, label)| NavigationLink {
            path,
            label,
            is_current: match self.path.strip_prefix(path) {
                Some(rest) => rest.is_empty() || (path != "/" && rest.starts_with('/')),
                None => false,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_at_most_is_that_of_the_page() {
        for (path, expected) in [("/", 1), ("/nowhere", 0)] {
            let frame = PageFrame::new("T", path, &"r".into());
            let current = frame.links().filter(|link| link.is_current);
            assert_eq!(current.count(), expected, "{path}");
        }
        for (path, _) in NAVIGATION {
            let frame = PageFrame::new("T", path, &"r".into());
            let current: Vec<_> = frame.links().filter(|link| link.is_current).collect();
            assert_eq!(current.len(), 1, "{path}");
            assert_eq!(current[0].path, path);
        }
    }
}
