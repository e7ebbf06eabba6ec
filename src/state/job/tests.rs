//! Files that change, and what is read of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use notify::EventKind;
use notify::event::ModifyKind;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::config::files::observed_by_this_thread;
use crate::state::tests::fixtures::mk_snapshot;
use crate::state::{Change, NoManifestSource, ReloadFailure};

/// A gateway's files, and what is in force of them.
struct WatchedSet {
    folder: Arc<TempDir>,
    state: Arc<ReloadState>,
    watches: Option<Watches>,
    last: Fingerprint,
}

/// The role and a binding of it, which says what the number says.
fn manifest(name: &str, number: usize) -> String {
    match number {
        0 => String::new(),
        1 => "kind: RoleBinding\n".to_owned(),
        _ => format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
             metadata: {{name: {name}, namespace: team}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: user-{number}}}]\n"
        ),
    }
}

impl WatchedSet {
    /// Of a folder for every cluster, and one for each of so many clusters.
    fn new(clusters: usize) -> Self {
        let (folder, _) = mk_snapshot("", "");
        let root = folder.path().to_owned();
        let path = |name: &str| root.join(name);
        let mut configuration = fs::read_to_string(path("portcullis.yaml")).unwrap();
        configuration = configuration.replace("manifests: [manifests.yaml]\n", "manifests:\n- set\n");
        fs::create_dir(path("set")).unwrap();
        fs::write(path("set/a.yaml"), manifest("a", 2)).unwrap();
        for cluster in 0..clusters {
            configuration.push_str(&format!("- {{path: clusters/{cluster}, cluster: c{cluster}}}\n"));
            fs::create_dir_all(path(&format!("clusters/{cluster}"))).unwrap();
            for name in ["one", "two"] {
                let file = path(&format!("clusters/{cluster}/{name}.yaml"));
                fs::write(file, manifest(name, 2)).unwrap();
            }
        }
        fs::write(path("portcullis.yaml"), configuration).unwrap();
        Self::of(Arc::new(folder))
    }

    /// Of a folder that is there.
    fn of(folder: Arc<TempDir>) -> Self {
        let path = |name: &str| folder.path().join(name);
        let snapshot = load::load(
            &path("portcullis.yaml"),
            &NoManifestSource,
            None,
            SystemTime::now(),
        );
        let snapshot = snapshot.0.unwrap_or_else(|| panic!("{}", snapshot.1));
        let watches = Watches {
            watcher: None,
            watched: BTreeSet::new(),
            filter: Arc::default(),
            names: SetNames::default(),
        };
        let mut world = Self {
            folder,
            state: ReloadState::new(snapshot, Arc::new(NoManifestSource)),
            watches: Some(watches),
            last: Fingerprint::none(),
        };
        let mut first = world.job(ReloadExtent::Everything);
        world.last = first.fingerprint(&world.state.current(), false);
        first.watches.take_touched();
        world.watches = Some(first.watches);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn job(&mut self, extent: ReloadExtent) -> ReloadJob {
        ReloadJob {
            state: Arc::clone(&self.state),
            path: self.path("portcullis.yaml"),
            watches: self.watches.take().unwrap(),
            last: self.last.clone(),
            extent,
        }
    }

    /// The watches tell of `names`, or, without any, everything is to be read. How many
    /// files and folders are read then, and whether anything was loaded.
    fn reload(&mut self, names: &[&str]) -> (usize, bool) {
        let mut event = notify::Event::new(EventKind::Modify(ModifyKind::Any));
        event.paths = names.iter().map(|name| self.path(name)).collect();
        let job = if names.is_empty() {
            self.job(ReloadExtent::Everything)
        } else {
            self.job(ReloadExtent::Changed)
        };
        job.watches.filter().note(&event);
        let before = observed_by_this_thread();
        let result = job.run();
        let observed = observed_by_this_thread() - before;
        (self.watches, self.last) = (Some(result.watches), result.seen);
        let is_loaded = result.loaded.is_some();
        match result.loaded {
            Some(LoadedSnapshot {
                snapshot: Some(snapshot),
                ..
            }) => self.state.replace(snapshot, Change::default()),
            Some(LoadedSnapshot { at, faults, .. }) => self.state.record_failure(ReloadFailure {
                at,
                faults: Arc::new(faults),
                is_hanging: false,
            }),
            None => {}
        }
        (observed, is_loaded)
    }

    /// What a load from nothing gives, where it gives something for every cluster.
    fn rebuilt(&self) -> Option<Vec<String>> {
        let path = self.path("portcullis.yaml");
        let (snapshot, _) = load::load(&path, &NoManifestSource, None, SystemTime::now());
        let whole = snapshot.filter(|snapshot| snapshot.unknown_clusters().is_empty());
        Some(told(&whole?))
    }
}

/// The revision, and what holds.
fn told(snapshot: &Snapshot) -> Vec<String> {
    let objects = snapshot.objects_in_force();
    let objects = objects.map(|object| {
        let cluster = object.cluster().unwrap_or_default();
        format!("{cluster} {} {}", object.identity(), object.digest())
    });
    let of_clusters = snapshot.policies.clusters.keys().map(|cluster| {
        let bindings = snapshot.policies.for_cluster(cluster).bindings();
        format!("{cluster}: {:?}", bindings.collect::<Vec<_>>())
    });
    let mut of_clusters: Vec<String> = of_clusters.collect();
    of_clusters.sort();
    let all = [snapshot.revision.to_string()].into_iter().chain(objects);
    all.chain(of_clusters).collect()
}

#[test]
fn a_change_in_one_cluster_reads_its_file_and_leaves_the_sets_of_others() {
    let reads = [3, 30].map(|clusters| {
        let mut world = WatchedSet::new(clusters);
        let before = Arc::clone(&world.state.current());
        // As an editor does it.
        fs::write(world.path("clusters/1/4913"), manifest("two", 3)).unwrap();
        fs::rename(world.path("clusters/1/4913"), world.path("clusters/1/two.yaml")).unwrap();
        let (reads, is_loaded) = world.reload(&["clusters/1/4913", "clusters/1/two.yaml"]);
        assert!(is_loaded);
        let after = Arc::clone(&world.state.current());
        assert_eq!(Some(told(&after)), world.rebuilt());
        for cluster in 0..clusters {
            let cluster = format!("c{cluster}");
            let [before, after] = [&before, &after].map(|one| one.policies.for_cluster(&cluster));
            assert_eq!(Arc::ptr_eq(before, after), cluster != "c1", "{cluster}");
        }
        assert!(Arc::ptr_eq(&before.authenticator, &after.authenticator));
        assert!(!world.reload(&["clusters/1/two.yaml"]).1);
        reads
    });
    assert_eq!(reads[0], reads[1]);
    assert!(reads[0] <= 10, "{reads:?}");
}

#[test]
fn what_led_nowhere_is_told_of_with_the_next_change() {
    let mut world = WatchedSet::new(1);
    symlink("nothing", world.path("set/b.yaml")).unwrap();
    world.reload(&["set/b.yaml"]);
    fs::write(world.path("set/a.yaml"), manifest("a", 3)).unwrap();
    world.reload(&["set/a.yaml"]);
    assert!(world.state.last_failure().is_some());
}

/// What somebody does with files.
#[derive(Debug, Clone)]
enum FileStep {
    /// Writes it again.
    Write(usize, usize),
    /// Puts another in its place.
    Rename(usize, usize),
    Remove(usize),
    /// Has the first be a link to the second.
    Link(usize, usize),
    /// The same, as another name of one file.
    Alias(usize, usize),
    /// Has the folder that a mounted one leads to be another.
    Swap(usize),
    /// Calls a folder otherwise.
    Move(bool),
}

const NAMES: [&str; 7] = [
    "set/a.yaml",
    "set/b.yaml",
    "set/sub/c.yaml",
    "set/mounted.yaml",
    "clusters/0/one.yaml",
    "clusters/1/one.yaml",
    "aside",
];

fn step() -> impl Strategy<Value = FileStep> {
    let (name, content) = (0..NAMES.len(), 0..4_usize);
    prop_oneof![
        6 => (name.clone(), content.clone()).prop_map(|(name, content)| FileStep::Write(name, content)),
        3 => (name.clone(), content.clone()).prop_map(|(name, content)| FileStep::Rename(name, content)),
        1 => name.clone().prop_map(FileStep::Remove),
        1 => (name.clone(), name.clone()).prop_map(|(one, other)| FileStep::Link(one, other)),
        1 => (name.clone(), name).prop_map(|(one, other)| FileStep::Alias(one, other)),
        2 => content.prop_map(FileStep::Swap),
        1 => any::<bool>().prop_map(FileStep::Move),
    ]
}

impl FileStep {
    /// Does of it what can be done; the names that watches would tell of.
    fn take(&self, root: &Path, number: usize) -> Vec<String> {
        let path = |name: &str| root.join(name);
        let text = |name: usize, content: usize| manifest(&format!("of-{name}"), content);
        match *self {
            Self::Write(name, content) => {
                let _ = fs::write(path(NAMES[name]), text(name, content));
                vec![NAMES[name].to_owned()]
            }
            Self::Rename(name, content) => {
                let aside = format!("{}~", NAMES[name]);
                let _ = fs::write(path(&aside), text(name, content));
                let _ = fs::rename(path(&aside), path(NAMES[name]));
                vec![aside, NAMES[name].to_owned()]
            }
            Self::Remove(name) => {
                let _ = fs::remove_file(path(NAMES[name]));
                vec![NAMES[name].to_owned()]
            }
            // No watch tells of what is written through another name outside of the folders.
            Self::Alias(name, to) if [name, to].map(|at| NAMES[at]).contains(&"aside") => {
                vec!["aside".to_owned()]
            }
            Self::Link(name, to) | Self::Alias(name, to) if name != to => {
                let _ = fs::remove_file(path(NAMES[name]));
                let _ = match self {
                    Self::Link(..) => symlink(path(NAMES[to]), path(NAMES[name])),
                    _ => fs::hard_link(path(NAMES[to]), path(NAMES[name])),
                };
                vec![NAMES[name].to_owned()]
            }
            Self::Link(..) | Self::Alias(..) => vec!["aside".to_owned()],
            Self::Swap(content) => {
                let real = format!("set/..{number}");
                fs::create_dir(path(&real)).unwrap();
                fs::write(path(&real).join("m.yaml"), manifest("mounted", content)).unwrap();
                symlink(format!("..{number}"), path("set/..new")).unwrap();
                fs::rename(path("set/..new"), path("set/..data")).unwrap();
                let _ = symlink("..data/m.yaml", path("set/mounted.yaml"));
                [&real, "set/..new", "set/..data", "set/mounted.yaml"]
                    .map(str::to_owned)
                    .into()
            }
            Self::Move(is_there) => {
                let (from, to) = if is_there {
                    ("set/sub", "moved")
                } else {
                    ("moved", "set/sub")
                };
                let _ = fs::rename(path(from), path(to));
                [from, to].map(str::to_owned).into()
            }
        }
    }
}

/// After each step, what changed gives the set that everything gives, read from nothing.
fn check_steps(steps: impl IntoIterator<Item = FileStep>) -> Result<(), TestCaseError> {
    let mut world = WatchedSet::new(2);
    fs::create_dir(world.path("set/sub")).unwrap();
    world.reload(&["set/sub"]);
    let mut reading_everything = WatchedSet::of(Arc::clone(&world.folder));
    for (number, step) in steps.into_iter().enumerate() {
        let names = step.take(world.folder.path(), number);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.reload(&names);
        reading_everything.reload(&[]);
        let [ours, theirs] = [&world, &reading_everything]
            .map(|world| (world.state.last_failure().is_some(), told(&world.state.current())));
        prop_assert_eq!(&ours, &theirs, "{:?}", step);
        // A link that leads nowhere is found with the next change.
        if let Some(expected) = world.rebuilt() {
            prop_assert_eq!(ours, (false, expected), "{:?}", step);
        }
    }
    Ok(())
}

/// A link out of the cluster's folder holds the cluster back, and the same content in its place
/// does not.
#[test]
fn a_file_in_place_of_a_link_is_a_change() {
    let steps = [
        FileStep::Link(4, 5),
        FileStep::Write(4, 2),
        FileStep::Rename(4, 2),
    ];
    check_steps(steps).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_changes_in_files_gives_the_set_of_a_load_from_nothing(steps in vec(step(), 1..12)) {
        check_steps(steps)?;
    }
}
