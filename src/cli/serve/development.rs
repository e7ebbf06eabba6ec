//! The development set-up, served when nothing is configured.

use std::path::{Path, PathBuf};

use crate::cli::output::{self, Format};
use crate::cli::{Error, init, loading};
use crate::config::files::{KeyFolderOwner, unsafe_for_keys};
use portcullis_policy::explain::Lines;

/// The configuration of the development set-up, made now unless it is there.
///
/// # Errors
///
/// It cannot be made; its folder is a link, or others may write to it; a folder that an interrupted start left behind is named.
pub(crate) fn set_up(format: Format) -> Result<PathBuf, Error> {
    let configuration = PathBuf::from(loading::DEVELOPMENT);
    let folder = configuration.parent().unwrap_or(Path::new(""));
    // Another's would be served with the keys that are in it.
    if let Some(why) = unsafe_for_keys(folder, KeyFolderOwner::Own) {
        return Err(Error::Usage(why));
    }
    if configuration.is_file() {
        return Ok(configuration);
    }
    let files = init::write(&init::absolute(folder)?, &init::SetUp::development())?;
    if format == Format::Text {
        let text = format!(
            "created a development set-up in {}: {} files",
            folder.display(),
            files.len()
        );
        output::print(format, &Lines::from_iter([text]), &())?;
    }
    Ok(configuration)
}
