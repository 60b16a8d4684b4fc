//! `lab up` and `lab down`: the lab by hand, to try plays against.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use deadline::{Deadline, Expired};
use lab::interrupt;
use lab::lab::Lab;

fn cli() -> Command {
    let state = Arg::new("state")
        .long("state")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Where keys, certificates, the inventory and lab.json are");
    let flag = |name| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("lab")
        .about("A Proxmox VE, an OPNsense and booting guests on loopback")
        .subcommand_required(true)
        .subcommand(
            Command::new("up")
                .about("Start the lab and keep it running until Ctrl-C, SIGTERM or `lab down`")
                .arg(state.clone())
                .arg(
                    flag("until-eof")
                        .help("Stop when stdin closes as well: the lab ends with whoever started it"),
                )
                .arg(flag("real-time").help("Clones and starts take a second or so instead of no time")),
        )
        .subcommand(Command::new("down").about("Stop the lab whose state is there").arg(state))
}

fn main() -> ExitCode {
    let done = match cli().get_matches().subcommand() {
        Some(("up", given)) => up(state(given), given.get_flag("until-eof"), given.get_flag("real-time")),
        Some((_, given)) => down(state(given)),
        None => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn state(given: &ArgMatches) -> &Path {
    given.get_one::<PathBuf>("state").map_or(Path::new("."), PathBuf::as_path)
}

fn up(state: &Path, until_eof: bool, real_time: bool) -> Result<()> {
    let description = state.join("lab.json");
    ensure!(
        !description.exists(),
        "a lab is up there already, or was killed: lab down --state {}",
        state.display()
    );
    let mut interrupted = interrupt::watch()?;
    let mut builder = Lab::builder().directory(state);
    if real_time {
        builder = builder.real_time();
    }
    let lab = builder.try_start()?;
    writeln!(io::stdout(), "the lab is up: {}", description.display())?;
    if until_eof {
        interrupted.also_when(|| {
            let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        });
    }
    interrupted.wait();
    drop(lab);
    fs::remove_file(description).context("lab.json is gone already")
}

fn down(state: &Path) -> Result<()> {
    let description = state.join("lab.json");
    let Ok(text) = fs::read_to_string(&description) else { bail!("no lab is up in {}", state.display()) };
    let pid =
        serde_json::from_str::<serde_json::Value>(&text)?["pid"].as_u64().context("lab.json has no pid")?;
    if !is_lab(pid) {
        // Killed before it could clean up.
        return Ok(fs::remove_file(description)?);
    }
    ensure!(
        process::Command::new("kill").arg(pid.to_string()).status()?.success(),
        "cannot signal process {pid}"
    );
    Deadline::after(Duration::from_secs(20))
        .poll(|| Ok::<_, Expired>((!description.exists()).then_some(())))
        .with_context(|| format!("process {pid} does not end"))
}

/// Whether the process is still a lab, and not a later one with the same number.
fn is_lab(pid: u64) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| {
        let words = String::from_utf8_lossy(&words).into_owned();
        words.split('\0').any(|word| word == "up")
    })
}
