//! `/changes`: the last revisions in force, the objects that changed between two of them, and the
//! requests that these decide differently.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use serde::Serialize;
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::console::page::{Page, PageFrame, ViewError};
use crate::console::views::clusters::ClusterChoice;
use crate::console::{KnownRevision, combined_changes};
use crate::console::{ViewContext, ViewRequest};
use crate::identity::certificates::rfc3339;
use crate::state::{ChangedObjectKey, ObjectChange, ObjectChanges};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::authorization::proof::{self, ProofLimitError, WorkLimit};
use portcullis_policy::explain::difference::DifferenceReport;
use portcullis_policy::model::Deadline;

/// The last revisions in force, and the changes between two of them.
#[derive(Debug, Serialize)]
struct ChangesView {
    /// The newest first.
    revisions: Vec<RevisionRow>,
    from: String,
    to: String,
    objects: Vec<ObjectRow>,
    /// The number of further changed objects, which are not kept.
    #[serde(rename = "leftOut")]
    left_out: usize,
    /// Which requests of the chosen cluster are decided differently, as `portcullis diff` reports it.
    decisions: Option<DifferenceReport>,
    /// Why there are no `decisions`.
    undecided: &'static str,
}

/// A revision that was in force.
#[derive(Debug, Serialize)]
struct RevisionRow {
    revision: String,
    since: String,
    added: usize,
    changed: usize,
    removed: usize,
}

/// A changed object.
#[derive(Debug, Serialize)]
struct ObjectRow {
    object: String,
    cluster: Option<String>,
    change: &'static str,
    before: Option<String>,
    after: Option<String>,
    #[serde(skip)]
    lines: Vec<DiffLine>,
}

#[derive(Debug, PartialEq, Eq)]
struct DiffLine {
    /// `+`, `-` or a space.
    sign: char,
    text: String,
}

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangesPage<'a> {
    frame: PageFrame,
    view: &'a ChangesView,
    /// The index of `from` in `revisions`.
    from_place: usize,
    to_place: usize,
    clusters: &'a ClusterChoice,
    /// The decision changes as text.
    decisions: String,
}

/// The maximum number of parts of the decision changes on a page.
const MAX_PARTS: usize = 500;

pub(crate) fn view(context: &ViewContext<'_>, request: &ViewRequest) -> Result<Page, ViewError> {
    request.query.reject_unknown(&["from", "to", "cluster"])?;
    let clusters = ClusterChoice::new(context, &request.query)?;
    let known = visible_revisions(context);
    // A revision that was rolled back to occurs twice: the last one counts, and for `from` the last one up to
    // `to`.
    let place = |name: &str, end: usize, or: usize| match request.query.single(name)? {
        None => Ok(or),
        Some(wanted) => {
            let is_it = |revision: &KnownRevision| *revision.revision == *wanted;
            let place = known.iter().take(end).rposition(is_it);
            place.ok_or_else(|| match known.iter().any(is_it) {
                true => ViewError::Invalid("`from` is newer than `to`".to_owned()),
                false => ViewError::NotFound(format!("revision `{wanted}` is not kept")),
            })
        }
    };
    let to = place("to", known.len(), known.len().saturating_sub(1))?;
    let from = place("from", to + 1, to.saturating_sub(1))?;
    let changes = combined_changes(known.get(from + 1..=to).unwrap_or_default());
    let revision = |place: usize| known.get(place).map(|known| known.revision.to_string());
    let sides = [from, to].map(|place| known.get(place).and_then(|known| known.policies.as_ref()));
    let (decisions, undecided) = match sides {
        [Some(old), Some(new)] => {
            match decisions(context, [old, new].map(|side| side.for_cluster(&clusters.chosen))) {
                Ok(decisions) => (Some(decisions), ""),
                Err(_) => (
                    None,
                    "the difference is too large for a page: `portcullis diff` compares both",
                ),
            }
        }
        _ => (
            None,
            "only the last sets are kept completely: of an earlier set, only the names of its objects are \
            known",
        ),
    };
    let view = ChangesView {
        decisions,
        undecided,
        revisions: known.iter().rev().map(Into::into).collect(),
        from: revision(from).unwrap_or_default(),
        to: revision(to).unwrap_or_default(),
        left_out: changes.left_out.values().sum(),
        objects: changes.objects.into_iter().map(ObjectRow::from).collect(),
    };
    let expired = || Instant::now() >= context.deadline;
    let page = ChangesPage {
        frame: context.frame("Changes", request),
        from_place: known.len().saturating_sub(from + 1),
        to_place: known.len().saturating_sub(to + 1),
        view: &view,
        clusters: &clusters,
        decisions: view
            .decisions
            .as_ref()
            .map(|decisions| decisions.in_words(Deadline::new(&expired)).as_str().to_owned())
            .unwrap_or_default(),
    };
    Page::of(request.representation, &view, &page)
}

/// The requests that the policies `new` decide differently from `old`, at the present time.
fn decisions(
    context: &ViewContext<'_>,
    [old, new]: [&Arc<PolicySet>; 2],
) -> Result<DifferenceReport, ProofLimitError> {
    let expired = || Instant::now() >= context.deadline;
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline: Deadline::new(&expired),
    };
    let changes = proof::difference(old, new, context.now.into(), limit)?;
    Ok(DifferenceReport::new(&changes, &[], Vec::new()))
}

/// The revisions with the objects that this user may see: those of the visible clusters, and those for all
/// clusters.
fn visible_revisions(context: &ViewContext<'_>) -> Vec<KnownRevision> {
    let mut revisions = context.console.changes.revisions();
    if context.visible.only().is_none() {
        return revisions;
    }
    for revision in &mut revisions {
        let is_visible = |cluster: &Option<String>| {
            let cluster = cluster.as_deref();
            cluster.is_none_or(|cluster| context.visible.contains(cluster))
        };
        let objects = revision.changes.objects.iter();
        let objects = objects.filter(|(object, _)| is_visible(&object.cluster));
        let left_out = revision.changes.left_out.iter();
        let left_out = left_out.filter(|(cluster, _)| is_visible(cluster));
        revision.changes = Arc::new(ObjectChanges {
            objects: objects
                .map(|(object, change)| (object.clone(), change.clone()))
                .collect(),
            left_out: left_out
                .map(|(cluster, count)| (cluster.clone(), *count))
                .collect(),
        });
    }
    // A revision that changed only objects of other clusters is not shown, except the first.
    let mut is_first = true;
    let is_theirs = |changes: &ObjectChanges| changes.objects.is_empty() && changes.left_out.is_empty();
    revisions.retain(|revision| std::mem::take(&mut is_first) || !is_theirs(&revision.changes));
    revisions
}

// === impl RevisionRow ===

impl From<&KnownRevision> for RevisionRow {
    fn from(known: &KnownRevision) -> Self {
        let count = |kind: &str| {
            let changes = known.changes.objects.values();
            changes.filter(|change| change_kind(change) == kind).count()
        };
        Self {
            revision: known.revision.to_string(),
            since: rfc3339(known.since),
            added: count("added"),
            changed: count("changed"),
            removed: count("removed"),
        }
    }
}

impl RevisionRow {
    /// The time without fractions, `2026-11-27 18:04:05 UTC`, for which a list has room.
    fn since_second(&self) -> String {
        let second = self.since.get(..19).unwrap_or(&self.since);
        format!("{} UTC", second.replacen('T', " ", 1))
    }
}

const fn change_kind(change: &ObjectChange) -> &'static str {
    match (&change.before, &change.after) {
        (None, _) => "added",
        (_, None) => "removed",
        (Some(_), Some(_)) => "changed",
    }
}

// === impl ObjectRow ===

impl From<(ChangedObjectKey, ObjectChange)> for ObjectRow {
    fn from((object, change): (ChangedObjectKey, ObjectChange)) -> Self {
        let lines = diff_lines(
            change.before.as_deref().unwrap_or_default(),
            change.after.as_deref().unwrap_or_default(),
        );
        Self {
            object: object.object,
            cluster: object.cluster,
            change: change_kind(&change),
            before: change.before,
            after: change.after,
            lines,
        }
    }
}

/// How long two texts are compared before the rest counts as different, so that comparing all
/// objects of a change takes less time than a view may take.
const MAX_COMPARING_TIME: Duration = Duration::from_millis(20);

/// The difference between two texts, line by line.
fn diff_lines(before: &str, after: &str) -> Vec<DiffLine> {
    let difference = TextDiff::configure()
        .algorithm(Algorithm::Patience)
        .timeout(MAX_COMPARING_TIME)
        .diff_lines(before, after);
    difference
        .iter_all_changes()
        .map(|change| DiffLine {
            sign: match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Insert => '+',
                ChangeTag::Delete => '-',
            },
            text: change.value().trim_end_matches('\n').to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::console::VisibleClusters;
    use crate::console::tests::fixtures::TestConsole;
    use crate::state::tests::fixtures::{mk_snapshot_of, mk_watched, now};
    use crate::state::{UnsyncedCluster, WatchedObjects};

    fn deny(name: &str, verb: &str) -> String {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             effect: Deny\n  subjects: [{{kind: User, name: joe}}]\n  \
             resourceRules: [{{verbs: [{verb}], apiGroups: [''], resources: [pods]}}]\n"
        )
    }

    const SECRET: &str =
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: p, namespace: shop}\ndata: {k: VALUE}\n";

    /// A console that has seen these files, one after the other: those for all clusters, and those
    /// of two clusters.
    fn mk_console(files: &[[String; 3]]) -> TestConsole {
        let console = TestConsole::of_clusters("", &[("east", ""), ("west", "")]);
        for [all, east, west] in files {
            let clusters = [("east", east.as_str()), ("west", west.as_str())];
            let (_folder, snapshot) = mk_snapshot_of(all, &clusters, "");
            console.console.follow_changes(&snapshot, now());
        }
        console
    }

    fn objects(view: &serde_json::Value) -> Vec<String> {
        let objects = view["objects"].as_array().unwrap().iter();
        objects
            .map(|object| {
                format!(
                    "{} {}",
                    object["change"].as_str().unwrap(),
                    object["object"].as_str().unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn any_two_sets_are_compared() {
        let none = String::new;
        let console = mk_console(&[
            [deny("a", "get") + &deny("b", "get"), none(), none()],
            [deny("a", "list") + &deny("c", "get"), none(), none()],
            // No object changed, so there is no new revision.
            [
                deny("c", "get") + "# a comment\n" + &deny("a", "list"),
                none(),
                none(),
            ],
            [deny("a", "get") + &deny("c", "get"), none(), none()],
        ]);
        let last = console.json("/changes").unwrap();
        assert_eq!(last["revisions"].as_array().unwrap().len(), 4);
        assert_eq!(objects(&last), ["changed AuthorizationPolicy/a"]);
        let revision = |place: usize| last["revisions"][place]["revision"].as_str().unwrap().to_owned();
        let url = format!("/changes?from={}&to={}", revision(2), revision(0));
        let two = console.json(&url).unwrap();
        assert_eq!(
            objects(&two),
            ["removed AuthorizationPolicy/b", "added AuthorizationPolicy/c"],
            "what changed and changed back is the same"
        );
        let page = console.html(&format!("/changes?to={}", revision(1))).unwrap();
        assert!(page.contains("<del>- ") && page.contains("list"), "{page}");
        assert!(page.contains(", 2027-01-15 08:00:00 UTC</option>"), "{page}");
        let error = console.html(&format!("/changes?from={}&to={}", revision(0), revision(1)));
        assert_eq!(error.unwrap_err().status(), 400);
        assert_eq!(console.html("/changes?from=x").unwrap_err().status(), 404);
    }

    #[test]
    fn what_was_taken_back_is_compared_with_what_was_there_between() {
        let set = |verb: &str| [deny("a", verb), String::new(), String::new()];
        let console = mk_console(&[set("get"), set("list"), set("get")]);
        let last = console.json("/changes").unwrap();
        let revision = |place: usize| last["revisions"][place]["revision"].as_str().unwrap();
        assert_eq!(revision(0), revision(2), "the same files, the same revision");
        let page = console.html("/changes").unwrap();
        for chosen in [revision(0), revision(1)] {
            let option = format!("value=\"{chosen}\" selected>");
            assert_eq!(page.matches(&option).count(), 1, "{page}");
        }
        let back = format!("/changes?from={}&to={}", revision(2), revision(1));
        let back = console.json(&back).unwrap();
        assert!(
            back["objects"][0]["after"].as_str().unwrap().contains("- list"),
            "{back}"
        );
    }

    #[test]
    fn what_became_of_watched_objects_is_shown_as_they_are_written() {
        let console = TestConsole::of_clusters("", &[("east", ""), ("west", "")]);
        let mut number = 0;
        let mut follow = |east: WatchedObjects, west: &str| {
            let (_folder, mut snapshot) = mk_snapshot_of("", &[("east", ""), ("west", "")], "");
            number += 1;
            snapshot.revision = number.to_string().into();
            snapshot.index_inputs.watched = vec![Arc::new(east), Arc::new(mk_watched("west", west))];
            console.console.follow_changes(&snapshot, now());
        };
        let unsynced = WatchedObjects {
            cluster: "east".to_owned(),
            unsynced: Some(UnsyncedCluster {
                until: None,
                own_user: None,
            }),
            ..WatchedObjects::default()
        };
        follow(unsynced, "");
        // The first list of a cluster is no change.
        let before = deny("a", "get") + &deny("b", "get") + SECRET;
        follow(mk_watched("east", &before), "");
        let after = deny("a", "list") + &deny("c", "get") + &SECRET.replace("VALUE", "OTHER");
        follow(mk_watched("east", &after), "");
        follow(mk_watched("east", &after), &deny("of-west", "get"));
        let view = console.json("/changes").unwrap();
        assert_eq!(objects(&view), ["added AuthorizationPolicy/of-west"]);
        let revision = |place: usize| view["revisions"][place]["revision"].as_str().unwrap();
        let url = format!("/changes?from={}&to={}", revision(2), revision(1));
        let east = console.json(&url).unwrap();
        let expected = [
            "changed AuthorizationPolicy/a",
            "removed AuthorizationPolicy/b",
            "added AuthorizationPolicy/c",
            "changed ConfigMap/shop/p",
        ];
        assert_eq!(objects(&east), expected);
        let side =
            |place: usize, side: &str| east["objects"][place][side].as_str().unwrap_or("none").to_owned();
        assert!(
            side(0, "before").contains("- get") && side(0, "after").contains("- list"),
            "{east}"
        );
        assert!(
            side(1, "before").contains("name: b") && side(1, "after") == "none",
            "{east}"
        );
        assert_eq!(east["objects"][0]["cluster"], "east");
        assert!(
            !east.to_string().contains("OTHER") && !east.to_string().contains("VALUE"),
            "{east}"
        );
        // A user who may only see the other cluster sees nothing of this one.
        let west = console.seeing(VisibleClusters::One("west".into()));
        let view = west.json("/changes").unwrap();
        assert_eq!(objects(&view), ["added AuthorizationPolicy/of-west"]);
        assert!(!view.to_string().contains("east"), "{view}");
    }

    #[test]
    fn what_a_change_grants_is_said_of_each_cluster() {
        let allow = |verb: &str| deny("a", verb).replace("effect: Deny", "effect: Allow");
        let none = String::new;
        let console = mk_console(&[[none(), allow("get"), none()], [none(), allow("list"), none()]]);
        let view = console.json("/changes?cluster=east").unwrap();
        let verbs = |side: &str| view["decisions"][side][0]["box"]["verbs"].clone();
        assert_eq!(
            (verbs("gains"), verbs("losses")),
            (
                serde_json::json!({"in": ["list"]}),
                serde_json::json!({"in": ["get"]})
            ),
            "{view}"
        );
        let page = console.html("/changes?cluster=east").unwrap();
        assert!(page.contains("such as: joe: list pods"), "{page}");
        let west = console.json("/changes?cluster=west").unwrap();
        assert_eq!(west["decisions"]["same"], true, "{west}");
        let east = console.seeing(VisibleClusters::One("west".into()));
        assert_eq!(east.html("/changes?cluster=east").unwrap_err().status(), 400);
    }

    #[test]
    fn a_parameter_is_named_and_not_shown() {
        let none = String::new;
        let console = mk_console(&[
            [SECRET.to_owned(), none(), none()],
            [SECRET.replace("VALUE", "OTHER"), none(), none()],
        ]);
        let view = console.json("/changes").unwrap();
        assert_eq!(objects(&view), ["changed ConfigMap/shop/p"]);
        assert!(
            !view.to_string().contains("OTHER") && !view.to_string().contains("VALUE"),
            "{view}"
        );
    }

    #[test]
    fn who_sees_one_cluster_sees_its_changes_and_those_of_all() {
        let none = String::new;
        let console = mk_console(&[
            [none(), deny("of-east", "get"), none()],
            [deny("of-all", "get"), deny("of-east", "get"), none()],
            [
                deny("of-all", "get"),
                deny("of-east", "get"),
                deny("of-west", "get"),
            ],
        ]);
        let console = console.seeing(VisibleClusters::One("east".into()));
        let view = console.json("/changes").unwrap();
        assert_eq!(objects(&view), ["added AuthorizationPolicy/of-all"]);
        assert_eq!(view["revisions"].as_array().unwrap().len(), 3);
        let page = console.html("/changes").unwrap();
        assert!(
            !page.contains("west") && !view.to_string().contains("west"),
            "{page}"
        );
    }

    #[test]
    fn the_objects_of_others_push_none_of_one_cluster_out() {
        let many = |prefix: &str| -> String {
            let names = (0..300).map(|number| deny(&format!("{prefix}-{number:03}"), "get"));
            names.collect()
        };
        let none = String::new;
        let console = mk_console(&[[none(), none(), none()], [none(), many("a"), many("z")]]);
        let console = console.seeing(VisibleClusters::One("west".into()));
        let view = console.json("/changes").unwrap();
        assert_eq!((objects(&view).len(), &view["leftOut"]), (100, &200.into()));
    }

    #[test]
    fn the_changes_of_others_push_none_of_one_cluster_out() {
        let none = String::new;
        let east = |number: usize| deny("of-east", &format!("v{number}"));
        let mut files = vec![[none(), none(), none()], [none(), none(), deny("of-west", "get")]];
        files.extend((0..30).map(|number| [none(), east(number), deny("of-west", "get")]));
        let console = mk_console(&files);
        let revisions = |view: &serde_json::Value| view["revisions"].as_array().unwrap().len();
        // Of 30 changes of one cluster, 19 are kept, and the number of the others for a comparison
        // that starts before them.
        let view = console.json("/changes").unwrap();
        assert_eq!(revisions(&view), 1 + 1 + 19);
        let of_west = view["revisions"][19]["revision"].as_str().unwrap().to_owned();
        let since = console.json(&format!("/changes?from={of_west}")).unwrap();
        assert_eq!(objects(&since), ["changed AuthorizationPolicy/of-east"]);
        assert_eq!(since["leftOut"], 11);
        let console = console.seeing(VisibleClusters::One("west".into()));
        let view = console.json("/changes").unwrap();
        assert_eq!(revisions(&view), 2);
        assert_eq!(objects(&view), ["added AuthorizationPolicy/of-west"]);
    }

    #[test]
    fn of_a_large_change_an_object_is_shown_with_both_of_its_sides() {
        let none = String::new;
        let removed: String = (0..250)
            .map(|number| deny(&format!("p{number:03}"), "get"))
            .collect();
        let view = mk_console(&[
            [removed + &deny("z", "get"), none(), none()],
            [deny("z", "list"), none(), none()],
        ]);
        let shown = objects(&view.json("/changes").unwrap());
        assert_eq!(shown.last().unwrap(), "changed AuthorizationPolicy/z");
    }

    #[test]
    fn only_the_last_sets_are_kept_and_the_first_objects_of_a_large_change() {
        let many = |verb| {
            (0..300)
                .map(|number| deny(&format!("p{number:03}"), verb))
                .collect::<String>()
        };
        let none = String::new;
        let mut files: Vec<[String; 3]> = (0..25)
            .map(|at| [deny(&format!("x{at}"), "get"), none(), none()])
            .collect();
        files.push([many("get"), none(), none()]);
        let console = mk_console(&files);
        let view = console.json("/changes").unwrap();
        let oldest = view["revisions"][19]["revision"].as_str().unwrap();
        let earlier = console.json(&format!("/changes?from={oldest}")).unwrap();
        let undecided = earlier["undecided"].as_str().unwrap();
        assert!(undecided.starts_with("only the last sets"), "{earlier}");
        assert_eq!(view["revisions"].as_array().unwrap().len(), 20);
        assert_eq!(view["leftOut"], 100);
        assert_eq!(view["objects"].as_array().unwrap().len(), 201);
    }
}
