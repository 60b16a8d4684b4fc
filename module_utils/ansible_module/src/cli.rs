//! The process: which module was called, where its arguments are, signals, panics, the exit status.

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, panic, thread};

use clap::{Arg, ArgAction, Command, value_parser};
use serde_json::{Map, Value};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{ErrorCode, Failure};
use crate::runner::{self, Module};
use crate::spec::Spec;
use crate::{docs, output};

/// After a signal, how long the step under way may take to come to an end.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

/// One module as the bundle's table holds it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub spec: fn() -> Spec,
    run: fn(Map<String, Value>) -> Map<String, Value>,
}

impl Entry {
    #[must_use]
    pub fn of<M: Module>() -> Self {
        Self { name: M::spec().name, spec: M::spec, run: runner::run::<M> }
    }
}

/// The whole of a program that is one module, or several: Ansible's contract from argv to exit status.
///
/// With several, the module is named by the first argument, by the name the program was called by
/// (`NAME`, `AnsiballZ_NAME`), or by `_ansible_module_name` in the arguments.
#[must_use]
pub fn main(entries: &[Entry]) -> ExitCode {
    answer_panics();
    let mut argv: Vec<OsString> = env::args_os().collect();
    let called = named_by_call(entries, &mut argv);
    match answer(entries, called, argv) {
        Answer::Done(result) => {
            let failed = result.get("failed") == Some(&Value::Bool(true));
            let told = output::emit(result);
            ExitCode::from(u8::from(failed || !told))
        }
        Answer::ForAPerson(code) => code,
    }
}

enum Answer {
    Done(Map<String, Value>),
    /// `--help` and the like: printed by clap or by [`print_options`].
    ForAPerson(ExitCode),
}

fn answer(entries: &[Entry], called: Option<Entry>, argv: Vec<OsString>) -> Answer {
    let matches = match command(entries, called).try_get_matches_from(argv) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return Answer::ForAPerson(ExitCode::SUCCESS);
        }
        Err(error) => return failed(&Failure::new(ErrorCode::BAD_ARGUMENT, error.to_string())),
    };
    if matches.get_flag("options") {
        return match called {
            Some(entry) => {
                output::emit(docs::options(&(entry.spec)()));
                Answer::ForAPerson(ExitCode::SUCCESS)
            }
            None => failed(&no_module(entries, None)),
        };
    }
    let raw = match read_arguments(matches.get_one::<OsString>("ARGUMENTS")) {
        Ok(raw) => raw,
        Err(failure) => return failed(&failure),
    };
    let named = raw.get("_ansible_module_name").and_then(Value::as_str);
    let Some(entry) = called.or_else(|| named.and_then(|name| find(entries, last_segment(name)))) else {
        return failed(&no_module(entries, named));
    };
    Answer::Done((entry.run)(raw))
}

fn failed(failure: &Failure) -> Answer {
    Answer::Done(output::failed(failure))
}

/// The only module, the first argument (which is then taken away), or the program's own name.
fn named_by_call(entries: &[Entry], argv: &mut Vec<OsString>) -> Option<Entry> {
    let first = argv.get(1).and_then(|first| first.to_str()).and_then(|first| find(entries, first));
    if first.is_some() {
        argv.remove(1);
        return first;
    }
    if let [only] = entries {
        return Some(*only);
    }
    let program = Path::new(argv.first()?).file_name()?.to_str()?;
    let program = program.strip_prefix("AnsiballZ_").unwrap_or(program);
    find(entries, program.split('.').next().unwrap_or(program))
}

fn find(entries: &[Entry], name: &str) -> Option<Entry> {
    entries.iter().find(|entry| entry.name == name).copied()
}

/// `homelab.anvil.kea_reservation` and `homelab.anvil.x86_64.kea_reservation` are both the last word.
fn last_segment(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn no_module(entries: &[Entry], named: Option<&str>) -> Failure {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let found =
        named.map_or_else(|| "no module was named".to_owned(), |name| format!("there is no module `{name}`"));
    Failure::new(ErrorCode::BAD_ARGUMENT, format!("{found}; this program holds: {}", names.join(", ")))
}

fn command(entries: &[Entry], called: Option<Entry>) -> Command {
    let (name, about) = match called {
        Some(entry) => (entry.name, (entry.spec)().short_description.to_owned()),
        None => {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
            ("anvil-modules", format!("Ansible modules, named by the first argument: {}", names.join(", ")))
        }
    };
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_help("Answers one JSON object on standard output; exit status 1 means `failed`.")
        .arg(
            Arg::new("options")
                .long("options")
                .action(ArgAction::SetTrue)
                .help("Print the option table as JSON"),
        )
        .arg(
            Arg::new("ARGUMENTS")
                .value_parser(value_parser!(OsString))
                .help("File with the arguments as a JSON object; without it, or with -, standard input"),
        )
}

fn read_arguments(file: Option<&OsString>) -> Result<Map<String, Value>, Failure> {
    let bad = |why: String| Failure::new(ErrorCode::BAD_ARGUMENT, why);
    let (source, text) = match file.filter(|file| *file != "-") {
        Some(file) => {
            let source = Path::new(file).display().to_string();
            let text = fs::read(file)
                .map_err(|error| bad(format!("cannot read the arguments file {source}: {error}")))?;
            (source, text)
        }
        None if std::io::stdin().is_terminal() => {
            return Err(bad(
                "no arguments: give a file with a JSON object, or the object on standard input (--help)"
                    .into(),
            ));
        }
        None => {
            let mut text = Vec::new();
            std::io::stdin()
                .read_to_end(&mut text)
                .map_err(|error| bad(format!("cannot read the arguments from standard input: {error}")))?;
            ("standard input".into(), text)
        }
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(bad(format!("the arguments in {source} are JSON, but no object"))),
        // Line and column only: the text may hold secrets.
        Err(error) => Err(bad(format!(
            "the arguments in {source} are no JSON object (line {}, column {})",
            error.line(),
            error.column()
        ))),
    }
}

/// A panic is a failure of ours, told in JSON like any other; it works under `panic = "abort"` too.
fn answer_panics() {
    panic::set_hook(Box::new(|info| {
        let failure = Failure::new(
            ErrorCode::INTERNAL,
            format!("this module has a fault: {}; please report it", panic_message(info)),
        )
        .with("exception", info.to_string())
        .with("changed", output::has_written());
        output::emit(output::failed(&failure));
        leave();
    }));
}

fn panic_message<'a>(info: &'a panic::PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("panic")
}

/// SIGINT and SIGTERM raise the deadline's flag; what is under way comes to an end, undoes what must
/// not be left behind, and reports. A step that does not end is cut after ten seconds.
pub(crate) fn watch_signals(flag: Arc<AtomicBool>) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        flag.store(true, Ordering::Relaxed);
        thread::sleep(INTERRUPT_GRACE);
        let written = output::has_written();
        let effect = if written { "it may have taken effect: run again" } else { "nothing was written" };
        let failure = Failure::new(
            ErrorCode::INTERRUPTED,
            format!("interrupted by a signal while a step did not come to an end; {effect}"),
        )
        .with("changed", written);
        output::emit(output::failed(&failure));
        leave();
    });
}

#[expect(clippy::exit, reason = "a panic hook and a signal thread have no caller to return to")]
fn leave() {
    std::process::exit(1);
}
