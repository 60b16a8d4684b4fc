//! What is on the boot server: the directory of `grub.cfg`, and the program that knows GRUB's scripts.

use std::path::Path;

use deadline::Deadline;
use host::{Command, CommandError, Host};

/// Debian's name and Fedora's.
const CHECKERS: [&str; 2] = ["grub-script-check", "grub2-script-check"];

/// What GRUB's own checker says about a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// It is not installed.
    #[default]
    NotChecked,
    Sound,
    /// Its words.
    Faulty(String),
}

/// Has a script checked by `grub-script-check`, which reads it from its standard input.
///
/// # Errors
/// [`CommandError`] when the checker could not be run to its end.
pub fn check_script(host: &Host, script: &[u8], deadline: &Deadline) -> Result<Syntax, CommandError> {
    let Some(checker) = CHECKERS.into_iter().find(|name| host.find(name).is_some()) else {
        return Ok(Syntax::NotChecked);
    };
    let output = host.run(&Command::new(checker).stdin(script), deadline)?;
    let sound = output.status.success();
    Ok(if sound { Syntax::Sound } else { Syntax::Faulty(output.stderr_text().trim().to_owned()) })
}

/// The sentence for a boot server without the directory.
#[must_use]
pub fn no_directory(path: &Path) -> String {
    format!(
        "expected the directory of grub.cfg at {}, found nothing: put GRUB there first (grub-mknetdir, or the loader that the \
         distribution signs), or correct `prefix_dir`",
        path.display()
    )
}
