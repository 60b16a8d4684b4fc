//! The ansible-core versions that the tests run with, each in a virtual environment outside the checkout.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, io::Write};

/// An installed ansible-core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) version: &'static str,
    venv: PathBuf,
}

impl Core {
    /// The oldest that is supported.
    pub(crate) fn oldest() -> &'static Self {
        static CORE: OnceLock<Core> = OnceLock::new();
        CORE.get_or_init(|| {
            Self::installed("2.16", "3.11").expect("ansible-core 2.16 needs Python 3.11: install it")
        })
    }

    /// The newest that a Python of this machine can run.
    pub(crate) fn newest() -> &'static Self {
        static CORE: OnceLock<Core> = OnceLock::new();
        CORE.get_or_init(|| {
            Self::installed("2.21", "3.13").or_else(|| Self::installed("2.21", "3.12")).unwrap_or_else(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: ansible-core 2.21, which needs Python 3.12 or 3.13; 2.19 stands in for it"
                );
                Self::installed("2.19", "3.11").expect("ansible-core 2.19 needs Python 3.11: install it")
            })
        })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.venv.join("bin").join(name)
    }

    fn installed(version: &'static str, python: &str) -> Option<Self> {
        let interpreter = interpreter(python)?;
        let caches = env::var_os("XDG_CACHE_HOME")
            .map_or_else(
                || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache"),
                PathBuf::from,
            )
            .join("homelab-anvil");
        let venv = caches.join(format!("venv-{version}-{python}"));
        fs::create_dir_all(&caches).unwrap();
        let lock = File::create(caches.join(format!("venv-{version}-{python}.lock"))).unwrap();
        lock.lock().unwrap();
        let installed = venv.join("installed");
        if !installed.exists() || !runs(&venv.join("bin/python"), "") {
            run(Command::new(interpreter).args(["-m", "venv", "--clear"]).arg(&venv));
            let requirement = format!("ansible-core~={version}.0");
            run(Command::new(venv.join("bin/pip")).args(["--quiet", "install", &requirement]));
            fs::write(installed, requirement).unwrap();
        }
        Some(Self { version, venv })
    }
}

/// A Python of this version that can make virtual environments (a shim of pyenv's may not even start).
fn interpreter(version: &str) -> Option<PathBuf> {
    let pyenv = env::var_os("PYENV_ROOT")
        .map_or_else(|| Path::new(&env::var_os("HOME").unwrap_or_default()).join(".pyenv"), PathBuf::from);
    let mut candidates: Vec<PathBuf> = fs::read_dir(pyenv.join("versions"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{version}.")))
        })
        .map(|path| path.join("bin/python3"))
        .collect();
    candidates.push(format!("/usr/bin/python{version}").into());
    candidates.push(format!("python{version}").into());
    candidates.into_iter().find(|python| runs(python, "import ensurepip, venv"))
}

fn runs(python: &Path, code: &str) -> bool {
    Command::new(python).args(["-c", code]).output().is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
