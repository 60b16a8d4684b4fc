//! No secret of a run is in what it prints, leaves on disk, or hands to another program.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use lab::lab::Lab;
use lab::play::Play;
use lab::{opnsense, pve};
use serde_json::json;
use tempfile::TempDir;

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Each secret, as it is and as it goes over the wire.
fn secrets() -> Vec<String> {
    let basic = base64(format!("{}:{}", opnsense::KEY, opnsense::SECRET).as_bytes());
    let plain = [pve::TOKEN_SECRET, opnsense::SECRET];
    let mut all: Vec<String> = plain.iter().map(|secret| (*secret).to_owned()).collect();
    all.extend(plain.iter().map(|secret| base64(secret.as_bytes())));
    all.push(basic);
    all
}

fn found_in(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    secrets().into_iter().filter(|secret| text.contains(secret.as_str())).collect()
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let inside = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(kind) if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    inside.collect()
}

#[test]
fn a_run_at_vvvv_shows_leaves_and_hands_on_no_secret() {
    if !lab::present(Path::new("/usr/bin/strace").exists(), "strace") {
        return;
    }
    let lab = Lab::start();
    // Out of a variables file, the way that leads through the most hands: templates, arguments, pipes.
    let vault = TempDir::new().unwrap();
    let file = vault.path().join("secrets.yml");
    let (mut proxmox, mut firewall) = lab.connections();
    proxmox["api_token_secret"] = pve::TOKEN_SECRET.into();
    firewall["api_secret"] = opnsense::SECRET.into();
    fs::write(&file, json!({"anvil_proxmox_api": proxmox, "anvil_opnsense_api": firewall}).to_string())
        .unwrap();

    let scratch = lab.directory().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let calls = vault.path().join("execve");
    let outcome = Play::site(&lab, "web01")
        .under(["strace", "-f", "-e", "trace=execve", "-s", "1000000", "-o", calls.to_str().unwrap()])
        .args(["-vvvv", "--diff", "-e"])
        .args([format!("@{}", file.display())])
        .env("PROXMOX_TOKEN_SECRET", "none-of-the-environment")
        .env("OPNSENSE_API_SECRET", "none-of-the-environment")
        .env("TMPDIR", &scratch)
        .run()
        .expect_success();

    assert_eq!(found_in(outcome.output.as_bytes()), [""; 0]);
    let calls = fs::read(calls).unwrap();
    assert!(calls.len() > 10_000, "strace saw nothing");
    assert_eq!(found_in(&calls), [""; 0]);
    let known: PathBuf = lab.directory().join("lab.json");
    let left: Vec<_> = files_below(lab.directory())
        .into_iter()
        .filter(|path| *path != known)
        .filter(|path| !found_in(&fs::read(path).unwrap_or_default()).is_empty())
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    // The search can find: the lab's own description holds them.
    assert_eq!(found_in(&fs::read(known).unwrap()).len(), 2);
}
