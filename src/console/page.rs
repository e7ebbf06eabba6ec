//! The parts that all pages share: representations, errors, the frame around a view, and assets.

use std::fmt::{self, Write};
use std::sync::Arc;

use askama::Template;
use askama::filters::{Escaper, Html};
use serde::Serialize;
use thiserror::Error;

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// For people.
    Html,
    /// For programs.
    Json,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The HTTP status.
    pub status: u16,
    /// The format of the body.
    pub representation: Representation,
    /// The body, in UTF-8.
    pub body: String,
}

/// Why a view cannot be shown.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ViewError {
    /// There is nothing at this path, or no longer.
    #[error("{0}")]
    NotFound(String),
    /// The query or the form is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The view exceeded its deadline.
    #[error("the query took too long for a page: narrow it down")]
    TooLate,
    /// Too many requests of others are waiting.
    #[error("the console is busy: try again in a moment")]
    Busy,
    /// The user may not see the view, or not in this way.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason, and the remedy.
        message: String,
    },
    /// An internal error of the console.
    #[error("the page cannot be shown: {0}")]
    Internal(String),
}

/// Shows invisible characters by their code points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleText;

/// Shows invisible characters by their code points, except line breaks and tabs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleLines;

/// Shows all characters unchanged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExactText;

/// The name of a decision on pages, which differs from that in JSON and in the decision log.
pub(crate) fn decision_label(decision: &(impl fmt::Display + ?Sized)) -> String {
    match decision.to_string() {
        name if name == "noOpinion" => "no opinion".to_owned(),
        name => name,
    }
}

// === impl Representation ===

impl Representation {
    /// The representation for the value of the header `Accept`: JSON if it is named, and HTML is
    /// not named or has a lower quality.
    #[must_use]
    pub fn of_accept(accept: &str) -> Self {
        let quality = |wanted: &str| {
            let mut ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
            ranges.find_map(|mut range| {
                let is_it = range.next()?.eq_ignore_ascii_case(wanted);
                let quality = range.find_map(|parameter| parameter.strip_prefix("q="));
                is_it.then(|| quality.map_or(Some(1.0), |text| text.parse::<f32>().ok()))?
            })
        };
        match (quality("application/json"), quality("text/html")) {
            (Some(json), html) if json > html.unwrap_or(0.0) => Self::Json,
            _ => Self::Html,
        }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

// === impl Page ===

impl Page {
    /// The page of `view`: HTML from `template`, or JSON.
    pub(crate) fn of(
        representation: Representation,
        view: &impl Serialize,
        template: &impl Template,
    ) -> Result<Self, ViewError> {
        match representation {
            Representation::Html => Self::html(template),
            Representation::Json => Self::json(view),
        }
    }

    /// An HTML page from `template`.
    pub(crate) fn html(template: &impl Template) -> Result<Self, ViewError> {
        let body = template.render();
        Ok(Self {
            status: 200,
            representation: Representation::Html,
            body: body.map_err(|error| ViewError::Internal(error.to_string()))?,
        })
    }

    /// A JSON page with `view`.
    pub(crate) fn json(view: &impl Serialize) -> Result<Self, ViewError> {
        let body = serde_json::to_string_pretty(view);
        Ok(Self {
            status: 200,
            representation: Representation::Json,
            body: body.map_err(|error| ViewError::Internal(error.to_string()))? + "\n",
        })
    }
}

/// The HTML page for an error.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: PageFrame,
    message: String,
}

/// The JSON page for an error.
#[derive(Serialize)]
struct ErrorView<'a> {
    error: &'a str,
}

// === impl ViewError ===

impl ViewError {
    /// The HTTP status of the error.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::Invalid(_) => 400,
            Self::TooLate | Self::Busy => 503,
            Self::Refused { status, .. } => *status,
            Self::Internal(_) => 500,
        }
    }

    /// The page for the error. `revision` is shown at the bottom; it is empty for users who may not
    /// see it.
    #[must_use]
    pub fn page(&self, representation: Representation, path: &str, revision: &str) -> Page {
        let message = self.to_string();
        let title = match self.status() {
            401 => "Not logged in",
            404 => "Not found",
            400 => "This query cannot be answered",
            500 | 503 => "Not now",
            _ => "Refused",
        };
        let view = ErrorView { error: &message };
        let template = ErrorPage {
            frame: PageFrame::new(title, path, &revision.into()),
            message: message.clone(),
        };
        let page = Page::of(representation, &view, &template);
        let page = page.unwrap_or_else(|_| Page {
            status: 500,
            representation,
            body: String::new(),
        });
        Page {
            status: self.status(),
            ..page
        }
    }
}

/// The paths and names of the views. A longer path belongs to the view whose path it begins with.
const NAVIGATION: [(&str, &str); 9] = [
    ("/", "Now"),
    ("/live", "Live"),
    ("/who-can", "Who can"),
    ("/what-can", "What can"),
    ("/what-if", "What if"),
    ("/policies", "Policies"),
    ("/webhooks", "Webhooks"),
    ("/clusters", "Clusters"),
    ("/changes", "Changes"),
];

/// The frame of a page: title, navigation and status.
#[derive(Debug, Clone)]
pub(crate) struct PageFrame {
    /// The heading, and the title of the window.
    pub(crate) title: String,
    /// The revision in force.
    pub(crate) revision: Arc<str>,
    /// The version of this program.
    pub(crate) version: &'static str,
    /// The status of the gateway; `None` on pages for errors.
    pub(crate) status: Option<GatewayStatus>,
    /// The path of the request.
    path: String,
}

/// The content of the header of each page. A user who may only see one cluster only sees its
/// status.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayStatus {
    pub(crate) revision: String,
    /// The time since which it has been in force; only for users who may see all clusters.
    pub(crate) since: Option<String>,
    /// The time of the last failed reload, while the files on disk are not in force.
    pub(crate) failed_at: Option<String>,
    /// The number of errors in files and in watched objects.
    pub(crate) errors: usize,
    /// The number of watched clusters.
    pub(crate) clusters: usize,
    /// The number of watched clusters whose objects are saved ones, unknown, or not up to date.
    pub(crate) clusters_behind: usize,
}

/// A link to a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NavigationLink {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    /// Whether the page belongs to that view.
    pub(crate) is_current: bool,
}

// === impl PageFrame ===

impl PageFrame {
    pub(crate) fn new(title: impl Into<String>, path: &str, revision: &Arc<str>) -> Self {
        Self {
            title: title.into(),
            revision: Arc::clone(revision),
            version: env!("CARGO_PKG_VERSION"),
            status: None,
            path: path.to_owned(),
        }
    }

    /// Adds the status.
    pub(crate) fn with_status(self, status: GatewayStatus) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    /// The links of the navigation.
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

// Static files: the style sheet, and scripts.
//
// `VENDORED.toml` lists those of third parties, with version, licence, source and hash.

/// A file under `/assets/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asset {
    /// The last segment of the path.
    pub name: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    pub content: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset {
            name: $name,
            content_type: $content_type,
            content: include_bytes!(concat!("assets/", $name)),
        }
    };
}

const ASSETS: [Asset; 9] = [
    asset!("style.css", CSS),
    asset!("console.js", SCRIPT),
    asset!("live.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("htmx.min.js", SCRIPT),
    asset!("htmx-sse.min.js", SCRIPT),
    asset!("uplot.min.js", SCRIPT),
    asset!("uplot.min.css", CSS),
];

#[must_use]
pub(crate) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

// === impl VisibleText ===

impl Escaper for VisibleText {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        write(dest, string, is_invisible)
    }
}

// === impl VisibleLines ===

impl Escaper for VisibleLines {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        write(dest, string, |character| {
            !matches!(character, '\n' | '\t') && is_invisible(character)
        })
    }
}

// === impl ExactText ===

impl Escaper for ExactText {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        Html.write_escaped_str(dest, string)
    }
}

fn write<W: Write>(mut dest: W, string: &str, is_hidden: impl Fn(char) -> bool) -> fmt::Result {
    let mut rest = string;
    while let Some(place) = rest.find(&is_hidden) {
        let (before, from) = rest.split_at(place);
        Html.write_escaped_str(&mut dest, before)?;
        let mut characters = from.chars();
        if let Some(hidden) = characters.next() {
            write!(dest, "{}", hidden.escape_unicode())?;
        }
        rest = characters.as_str();
    }
    Html.write_escaped_str(dest, rest)
}

/// Whether a character is invisible or changes how its neighbours are displayed: control and format
/// characters, line separators, and characters that Unicode ignores by default.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::sha::sha256;
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    #[test]
    fn json_is_sent_to_whom_prefers_it() {
        for (accept, expected) in [
            ("", Representation::Html),
            ("*/*", Representation::Html),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Representation::Html),
            ("application/json", Representation::Json),
            ("Application/JSON ; q=0.5", Representation::Json),
            ("text/html;q=0.4, application/json;q=0.5", Representation::Json),
            ("text/html, application/json", Representation::Html),
            ("application/json;q=0", Representation::Html),
            ("application/json;q=x", Representation::Html),
            ("application/jsonp", Representation::Html),
        ] {
            assert_eq!(Representation::of_accept(accept), expected, "{accept}");
        }
    }

    #[test]
    fn what_an_error_repeats_of_the_request_is_text() {
        let hostile = "<script>alert(1)</script>";
        let error = ViewError::NotFound(hostile.to_owned());
        let page = error.page(Representation::Html, hostile, "r");
        assert_eq!(page.status, 404);
        assert!(page.body.contains("&#60;script&#62;"), "{}", page.body);
        assert!(!page.body.contains("<script>"), "{}", page.body);
        let page = error.page(Representation::Json, "/", "r");
        assert_eq!(page.body, "{\n  \"error\": \"<script>alert(1)</script>\"\n}\n");
    }

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

    const VENDORED: &str = include_str!("assets/VENDORED.toml");

    /// The tables of `VENDORED.toml`, which only uses `name = "text"`.
    fn entries() -> Vec<BTreeMap<&'static str, &'static str>> {
        let tables = VENDORED.split("[[file]]").skip(1);
        let entry = |table: &'static str| {
            let pairs = table.lines().filter_map(|line| line.split_once(" = "));
            pairs
                .map(|(name, value)| (name, value.trim_matches('"')))
                .collect()
        };
        tables.map(entry).collect()
    }

    #[test]
    fn what_others_wrote_is_as_they_published_it() {
        let entries = entries();
        assert_eq!(entries.len(), 4);
        for entry in &entries {
            let asset = find(entry["path"]).unwrap();
            let digest: String = sha256(asset.content)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(digest, entry["sha256"], "{}", asset.name);
            assert!(["MIT", "0BSD"].contains(&entry["licence"]), "{}", asset.name);
            assert!(entry["source"].contains(entry["version"]), "{}", asset.name);
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/assets");
            let licence = fs::read_to_string(folder.join(entry["licence-path"])).unwrap();
            assert!(licence.contains("Permission"), "{licence}");
        }
        let own = ["style.css", "icon.svg", "console.js", "live.js", "charts.js"];
        for asset in ASSETS.iter().filter(|asset| !own.contains(&asset.name)) {
            assert!(
                entries.iter().any(|entry| entry["path"] == asset.name),
                "VENDORED.toml does not say where {} is from",
                asset.name
            );
        }
    }

    #[test]
    fn only_the_files_of_the_table_are_found() {
        assert!(find("style.css").is_some());
        for name in ["", "VENDORED.toml", "../assets/style.css", "STYLE.CSS"] {
            assert_eq!(find(name), None, "{name}");
        }
    }

    fn shown(escaper: impl Escaper, text: &str) -> String {
        let mut shown = String::new();
        escaper.write_escaped_str(&mut shown, text).unwrap();
        shown
    }

    #[test]
    fn what_changes_how_a_name_is_read_is_shown_by_its_number() {
        for (text, expected) in [
            ("jane", "jane"),
            ("Zoë \u{5d0}\u{5d1} 山 e\u{301}", "Zoë \u{5d0}\u{5d1} 山 e\u{301}"),
            ("\u{202e}enaj", "\\u{202e}enaj"),
            ("a\u{2066}<b>\u{2069}", "a\\u{2066}&#60;b&#62;\\u{2069}"),
            ("a\u{200b}b\u{200d}\u{feff}", "a\\u{200b}b\\u{200d}\\u{feff}"),
            ("a\0\x1b[2J\u{85}\u{7f}", "a\\u{0}\\u{1b}[2J\\u{85}\\u{7f}"),
            ("a\nb", "a\\u{a}b"),
            ("\u{e0041}\u{3164}", "\\u{e0041}\\u{3164}"),
        ] {
            assert_eq!(shown(VisibleText, text), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_stay_lines_and_fields_stay_as_they_are() {
        let text = "a\n\tb\r\u{202e}<";
        assert_eq!(shown(VisibleLines, text), "a\n\tb\\u{d}\\u{202e}&#60;");
        assert_eq!(shown(ExactText, text), "a\n\tb\r\u{202e}&#60;");
    }

    /// The ranges of Unicode 16 contain the characters that change direction or have no width, and
    /// not the letters, marks and signs next to them.
    #[test]
    fn the_neighbours_of_what_is_hidden_are_not() {
        for visible in [
            "\u{ac}", "\u{ae}", "\u{606}", "\u{200a}", "\u{2010}", "\u{2027}", "\u{202f}", "\u{205f}",
            "\u{2070}",
        ] {
            assert_eq!(shown(VisibleText, visible), visible);
        }
        for number in (0x200b..=0x200f).chain(0x2028..=0x202e).chain(0x2060..=0x206f) {
            let hidden = char::from_u32(number).unwrap();
            assert_eq!(
                shown(VisibleText, &hidden.to_string()),
                format!("\\u{{{number:x}}}")
            );
        }
    }
}
