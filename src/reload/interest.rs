//! Decides which changes in the watched folders affect the loaded files.

use std::collections::HashSet;
use std::path::PathBuf;

use notify::EventKind;
use notify::event::ModifyKind;

use crate::config::{DecisionLog, LogPath, files};

/// Which of the events in the watched folders matter. A decision log beside the
/// configuration must not have everything read again with each of its lines.
#[derive(Debug, Default)]
pub(super) struct Interest {
    files: HashSet<PathBuf>,
    log: Option<PathBuf>,
}

// === impl Interest ===

impl Interest {
    /// The changes of `files` matter, those of the log do not.
    pub(super) fn new(files: impl Iterator<Item = PathBuf>, log: Option<&DecisionLog>) -> Self {
        Self {
            files: files.collect(),
            log: log.and_then(|log| match &log.path {
                LogPath::File(path) => Some(path.clone()),
                LogPath::Stdout => None,
            }),
        }
    }

    pub(super) fn is_concerned(&self, event: &notify::Event) -> bool {
        let writes = matches!(
            event.kind,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
        );
        let matters = |path: &PathBuf| {
            let is_log = self.log.as_ref() == Some(path);
            // A name that comes or goes may be a link that leads to another set.
            !is_log && (!writes || self.files.contains(path) || files::is_manifest(path))
        };
        !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(matters))
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{AccessKind, CreateKind, DataChange, RenameMode};

    use super::*;
    use crate::config::LogTrace;

    #[test]
    fn only_events_that_can_change_the_set_matter() {
        let log = DecisionLog {
            path: LogPath::File("/etc/p/decisions.json".into()),
            trace: LogTrace::None,
        };
        let interest = Interest::new(["/etc/p/token".into()].into_iter(), Some(&log));
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
            (rename, "/etc/p/..data", true),
            (EventKind::Access(AccessKind::Any), "/etc/p/token", false),
        ] {
            let event = notify::Event::new(kind).add_path(path.into());
            assert_eq!(interest.is_concerned(&event), matters, "{kind:?} {path}");
        }
    }
}
