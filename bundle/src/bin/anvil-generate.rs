//! `anvil-generate write|check`, in the checkout's root: the files made from the option tables.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use bundle::generate;

fn main() -> ExitCode {
    match run(Path::new("."), env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, command: Option<&str>) -> Result<()> {
    let modules = bundle::modules();
    match command {
        Some("write") => generate::write(root, &modules),
        Some("check") => {
            let stale = generate::stale(root, &modules)?;
            if !stale.is_empty() {
                bail!("not what the option tables say: {}; run `make generate`", stale.join(", "));
            }
            Ok(())
        }
        _ => bail!("usage: anvil-generate write|check"),
    }
}
