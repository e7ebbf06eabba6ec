//! Decides which changes in the watched folders affect the loaded files.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use notify::EventKind;
use notify::event::ModifyKind;

use crate::config::{ClusterEntry, Config, LogPath, files};

/// Which of the events in the watched folders matter. What the gateway writes itself, beside
/// files that it reads, must not have everything read again: a decision log with each of its
/// lines, the saved objects of a cluster with each change.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    files: HashSet<PathBuf>,
    written: HashSet<PathBuf>,
    touched: Touched,
}

/// What happened in the watched folders since somebody took it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Anything may have.
    #[default]
    Anything,
    /// Something to what has these names, and nothing else.
    Names(BTreeSet<PathBuf>),
}

/// Where more names than these were touched, everything is looked at.
const MOST_TOUCHED: usize = 1_000;

// === impl Interest ===

impl Interest {
    /// The changes of `files` matter, those of what a gateway of `config` writes do not.
    /// What was touched before still was.
    pub(crate) fn follow(&mut self, files: impl Iterator<Item = PathBuf>, config: &Config) {
        let log = config.decision_log.iter().filter_map(|log| match &log.path {
            LogPath::File(path) => Some(path.clone()),
            LogPath::Stdout => None,
        });
        self.files = files.collect();
        self.written = log
            .chain(config.clusters.iter().flat_map(ClusterEntry::saved_files))
            .collect();
    }

    /// Takes note of what happened. Whether it matters.
    pub(crate) fn note(&mut self, event: &notify::Event) -> bool {
        let is_concerned = self.is_concerned(event);
        if is_concerned {
            self.touched.add(event);
        }
        is_concerned
    }

    /// What was touched since this was asked for last.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::replace(&mut self.touched, Touched::NOTHING)
    }

    fn is_concerned(&self, event: &notify::Event) -> bool {
        let writes = matches!(
            event.kind,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
        );
        let matters = |path: &PathBuf| {
            let is_own = self.written.contains(path);
            // A name that comes or goes may be a link that leads to another set.
            !is_own && (!writes || self.files.contains(path) || files::is_manifest(path))
        };
        !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(matters))
    }
}

// === impl Touched ===

impl Touched {
    const NOTHING: Self = Self::Names(BTreeSet::new());

    fn add(&mut self, event: &notify::Event) {
        let Self::Names(names) = self else { return };
        names.extend(event.paths.iter().cloned());
        // Where events were lost, the one that says so has no names.
        if event.paths.is_empty() || event.need_rescan() || names.len() > MOST_TOUCHED {
            *self = Self::Anything;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use notify::event::{AccessKind, CreateKind, DataChange, RenameMode};

    use super::*;
    use crate::config;

    /// Watches a cluster, whose objects it saves, and has a decision log.
    const CONFIGURATION: &str = r"
apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}
callers: [{clientCertificate: {commonNames: [api]}}]
manifests: []
decisionLog: {path: decisions.json}
clusters: [{name: east, kubeconfig: east.kubeconfig, cacheFile: saved/east.json}]
";

    #[test]
    fn only_events_that_can_change_the_set_matter() {
        let (config, faults) = config::parse(Path::new("p.yaml"), CONFIGURATION, Path::new("/etc/p"));
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let mut interest = Interest::default();
        interest.follow(["/etc/p/token".into()].into_iter(), &config);
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let create = EventKind::Create(CreateKind::File);
        let rename = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        for (kind, path, matters) in [
            (write, "/etc/p/token", true),
            (write, "/etc/p/new.yaml", true),
            (write, "/etc/p/other.log", false),
            (write, "/etc/p/decisions.json", false),
            (create, "/etc/p/decisions.json", false),
            (create, "/etc/p/folder", true),
            (create, "/etc/p/saved/east.json.changes", false),
            (create, "/etc/p/saved/east.json.new", false),
            (rename, "/etc/p/saved/east.json", false),
            (create, "/etc/p/saved/west.json", true),
            (rename, "/etc/p/..data", true),
            (EventKind::Access(AccessKind::Any), "/etc/p/token", false),
        ] {
            let event = notify::Event::new(kind).add_path(path.into());
            assert_eq!(interest.note(&event), matters, "{kind:?} {path}");
        }
    }

    #[test]
    fn names_are_known_as_long_as_events_tell_them() {
        let event = |path: Option<&str>| notify::Event {
            paths: path.into_iter().map(PathBuf::from).collect(),
            ..notify::Event::new(EventKind::Create(CreateKind::File))
        };
        let names = |names: &[&str]| Touched::Names(names.iter().map(PathBuf::from).collect());
        let mut interest = Interest::default();
        assert_eq!(interest.take_touched(), Touched::Anything);
        assert_eq!(interest.take_touched(), names(&[]));
        for path in ["/b.yaml", "/a.yaml", "/b.yaml"] {
            assert!(interest.note(&event(Some(path))));
        }
        assert_eq!(interest.take_touched(), names(&["/a.yaml", "/b.yaml"]));
        assert!(interest.note(&event(Some("/a.yaml"))) && interest.note(&event(None)));
        assert_eq!(interest.take_touched(), Touched::Anything);
        let lost = event(Some("/a.yaml")).set_flag(notify::event::Flag::Rescan);
        assert!(interest.note(&lost));
        assert_eq!(interest.take_touched(), Touched::Anything);
        for name in 0..=MOST_TOUCHED {
            assert!(interest.note(&event(Some(&format!("/{name}.yaml")))));
        }
        assert_eq!(interest.take_touched(), Touched::Anything);
    }
}
