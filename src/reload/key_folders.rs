//! Whether the folders of the listeners' private keys are safe.

use std::path::Path;

use crate::config::Config;
use crate::config::files::{KeyFolderOwner, unsafe_for_keys};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// A key in a folder to which others may write, or behind a link, is refused: who replaces it, and
/// its certificate, is the gateway.
pub(crate) fn faults(config: &Config) -> Faults {
    let root = FieldPath::root();
    let console = config.console.as_ref().and_then(|console| console.tls.as_ref());
    let keys = [
        Some((root.field("server"), &config.server.tls)),
        console.map(|tls| (root.field("console"), tls)),
    ];
    let mut faults = Faults::new();
    for (listener, tls) in keys.into_iter().flatten() {
        let folder = tls.private_key.parent().unwrap_or(Path::new("/"));
        if let Some(message) = unsafe_for_keys(folder, KeyFolderOwner::Any) {
            let path = listener.field("tls").field("privateKey");
            let place = Place::of_file(&config.file).at(path);
            faults.push(Fault::error(place, FaultKind::Invalid, message));
        }
    }
    faults
}
