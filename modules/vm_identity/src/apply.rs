//! The one write.

use std::fs;
use std::path::Path;

use ansible_module::{ErrorCode, Failure};
use host::{New, write_atomic};

/// Of the temporary files that `host::write_atomic` makes.
const TEMPORARY: &str = ".anvil-";

/// Like the other variables files of an inventory: nothing in it is a secret.
const READABLE: New = New { mode: 0o644 };

/// Replaces the file whole; a reader sees the old one or the new one.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    path.parent().into_iter().for_each(remove_leftovers);
    match write_atomic(path, text.as_bytes(), READABLE) {
        Ok(_) => Ok(()),
        Err(error) => {
            let failure = |what: &str| {
                Failure::new(ErrorCode::INTERNAL, format!("{what}: {error}"))
                    .with("file", path.display().to_string())
            };
            Err(if error.is_untouched() {
                failure("the identity is not written").nothing_sent()
            } else {
                failure("the identity is written, but a power cut may take it away")
            })
        }
    }
}

/// Temporary files of runs that were killed. Nobody else is writing: the inventory is locked.
fn remove_leftovers(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPORARY)) {
        let _ = fs::remove_file(entry.path());
    }
}
