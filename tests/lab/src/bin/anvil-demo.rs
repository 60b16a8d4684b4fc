//! `make demo`: one host from its identity to its proof, twice, against doubles on this machine.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::interrupt;
use lab::lab::{Lab, NODE};
use lab::opnsense::{Record, Reservation};
use lab::play::{Outcome, Play, kill_plays};
use lab::proxy::Proxy;

const HOST: &str = "web01";
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<()> {
    let began = Instant::now();
    let interrupted = interrupt::watch()?;
    std::thread::spawn(move || {
        interrupted.wait();
        INTERRUPTED.store(true, Ordering::Relaxed);
        kill_plays();
    });
    heading("The lab: a Proxmox VE (fakepve), an OPNsense (our double), guests that are real sshd's")?;
    let lab = Lab::builder().real_time().try_start()?;
    say(&format!("Proxmox VE   {}  node {NODE}, templates {}", lab.proxmox().url(), templates(&lab)))?;
    say(&format!("OPNsense     {}  subnet {}", lab.opnsense().url(), lab::lab::SUBNET))?;

    let first = run(&lab, "The first run: from nothing to a proven guest")?;
    lab.proxmox().forget();
    lab.opnsense().forget();
    let second = run(&lab, "The second run: everything is there, nothing may change")?;
    summary(&lab, &first, &second, began)
}

fn run(lab: &Lab, title: &str) -> Result<Outcome> {
    heading(title)?;
    say(&format!("$ ansible-playbook playbooks/site.yml --limit {HOST}"))?;
    let mut progress = Progress::default();
    let outcome = Play::site(lab, HOST).run_shown(|line| progress.show(line))?;
    ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    ensure!(outcome.success, "the play failed; its words are above");
    Ok(outcome)
}

/// Ansible's output, a line a task. What a failure says is shown whole.
#[derive(Default)]
struct Progress {
    task: String,
    failed: bool,
}

impl Progress {
    fn show(&mut self, line: &str) -> Result<()> {
        if self.failed {
            return say(line);
        }
        if let Some(play) = title(line, "PLAY [") {
            return say(&format!("\n    {play}"));
        }
        if let Some(task) = title(line, "TASK [") {
            self.task = task.replace("homelab.anvil.", "");
            return Ok(());
        }
        let (status, _) = line.split_once(": [").unwrap_or_default();
        match status {
            "ok" | "changed" if !self.task.contains("Validating arguments") => {
                say(&format!("  {status:8} {}", self.task))
            }
            "fatal" | "failed" => {
                self.failed = true;
                say(&format!("  FAILED   {}\n{line}", self.task))
            }
            _ => Ok(()),
        }
    }
}

fn title<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.rsplit_once(']').map(|(title, _)| title)
}

fn summary(lab: &Lab, first: &Outcome, second: &Outcome, began: Instant) -> Result<()> {
    let vm = lab.pve().vms().into_iter().find(|vm| vm["name"] == HOST).context("there is no VM")?;
    let vmid = u32::try_from(vm["vmid"].as_u64().unwrap_or_default())?;
    let config = lab.pve().vm_config(vmid);
    let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
    let address = lab.guest_address(vmid).context("the guest is not up")?;
    let changed = second.of(HOST).changed;
    let writes = lab.proxmox().writes().len() + lab.opnsense().writes().len();

    heading("What was built and proved")?;
    say(&format!("identity     VMID {vmid}, and the MAC address that is made of it"))?;
    say(&format!("reservation  {}", reservation(&lab.firewall().live_reservations())))?;
    say(&format!("name         {}", names(&lab.firewall().live_records())))?;
    say(&format!("VM           {}, {}", vm["status"].as_str().unwrap_or_default(), text("net0")))?;
    say(&format!("             scsi0 {}", text("scsi0")))?;
    say(&format!("             scsi1 {}", text("scsi1")))?;
    say(&format!("guest        up on {address}, its host key pinned, its name and its disk as declared"))?;
    say(&format!("first run    {}, changed={}", seconds(first.took), first.of(HOST).changed))?;
    say(&format!(
        "second run   {}, changed={changed}; requests: Proxmox VE {}, OPNsense {}",
        seconds(second.took),
        count(lab.proxmox()),
        count(lab.opnsense()),
    ))?;
    say(
        "not shown    data_disk: a guest of the lab is an sshd on this machine, whose disks are not touched",
    )?;
    say(&format!("in all       {}", seconds(began.elapsed())))?;
    ensure!(
        changed == 0 && writes == 0,
        "expected the second run to change nothing: changed={changed}, {writes} writes"
    );
    Ok(())
}

fn templates(lab: &Lab) -> String {
    let vms = lab.pve().vms();
    let names = vms.iter().filter(|vm| vm["template"] == 1).filter_map(|vm| vm["name"].as_str());
    names.collect::<Vec<_>>().join(", ")
}

fn reservation(all: &[Reservation]) -> String {
    let lines = all.iter().map(|one| format!("{} for {}, live in Kea", one.ip_address, one.hw_address));
    lines.collect::<Vec<_>>().join("; ")
}

fn names(all: &[Record]) -> String {
    let lines = all.iter().map(|record| format!("{} {} {}", record.name, record.rr, record.value));
    lines.collect::<Vec<_>>().join(", ")
}

fn count(proxy: &Proxy) -> String {
    format!("{} reads, {} writes", proxy.reads().len(), proxy.writes().len())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn heading(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "\n=== {text}")?)
}

fn say(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "    {text}")?)
}
