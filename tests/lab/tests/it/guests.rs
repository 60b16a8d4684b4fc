//! Guests: real sshd processes on loopback.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use lab::guests::{Guest, KeyPair};
use tempfile::TempDir;

fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

fn ssh(guest: &Guest, key: &KeyPair, command: &str) -> Output {
    ssh_command(guest, key, command).output().unwrap()
}

fn ssh_command(guest: &Guest, key: &KeyPair, command: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-i"])
        .arg(&key.private)
        .args(["-p", &guest.address().port().to_string(), &guest.address().ip().to_string(), command]);
    ssh
}

#[test]
fn a_guest_has_its_own_name_disk_and_door() {
    let directory = TempDir::new().unwrap();
    let (key, stranger) = (
        KeyPair::make(directory.path(), "key").unwrap(),
        KeyPair::make(directory.path(), "stranger").unwrap(),
    );
    let address = Ipv4Addr::new(127, 77, 1, 10);
    let guest = Guest::builder("web01", address, free_port(address))
        .authorized_keys(&key.public)
        .root_size_gib(64)
        .start();
    let answer = ssh(&guest, &key, "hostname; df -P -k / | awk 'NR==2 {print $2}'; df -B1 --output=size /");
    let words = String::from_utf8(answer.stdout).unwrap();
    assert_eq!(words, "web01\n67108864\n1B-blocks\n68719476736\n", "{}", guest.log());
    let refused = ssh(&guest, &stranger, "true");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied (publickey)"));
    assert!(guest.host_key().starts_with("ssh-ed25519 "));
    let door = guest.address();
    drop(guest);
    assert!(TcpStream::connect(door).is_err());
}

#[test]
fn a_dropped_guest_takes_its_sessions_along() {
    let directory = TempDir::new().unwrap();
    let key = KeyPair::make(directory.path(), "key").unwrap();
    let address = Ipv4Addr::new(127, 77, 1, 11);
    let guest = Guest::builder("db01", address, free_port(address)).authorized_keys(&key.public).start();
    let door = guest.address();
    let mut session =
        ssh_command(&guest, &key, "echo in; exec sleep 60").stdout(Stdio::piped()).spawn().unwrap();
    let mut words = [0; 3];
    session.stdout.take().unwrap().read_exact(&mut words).unwrap();
    assert_eq!(&words, b"in\n");
    drop(guest);
    assert!(!session.wait().unwrap().success());
    assert!(TcpStream::connect(door).is_err());
}
