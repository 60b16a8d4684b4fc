//! A network of a test's own with machines on it: a namespace with a bridge, root only.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The bridge's name.
pub const BRIDGE: &str = "br0";

/// A network namespace that the thread which made it lives in, with the threads and programs that it starts from then
/// on. The namespace has no name: it ends with the last of them, however that ends.
#[derive(Debug)]
pub struct Network {
    holder: Child,
    taps: AtomicU32,
}

/// Frames that went through a tap, seen from its machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub sent: u64,
    pub received: u64,
}

impl Network {
    /// Moves this thread into a new namespace with loopback and a bridge with `address` (CIDR), both up.
    ///
    /// # Errors
    /// Not root, no iproute2, or a kernel that lets nobody make namespaces; in the words of who refused.
    pub fn enter(address: &str) -> Result<Self> {
        let holder = hold_namespace()?;
        let network = Self { holder, taps: AtomicU32::new(0) };
        let file = File::open(format!("/proc/{}/ns/net", network.holder.id()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("entering the new network namespace")?;
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["addr", "add", address, "dev", BRIDGE])?;
        ip(&["link", "set", BRIDGE, "up"])?;
        // A bridge without a port that is up has no carrier, and servers do not listen on it.
        ip(&["link", "add", "port0", "type", "veth", "peer", "name", "port1"])?;
        ip(&["link", "set", "port0", "master", BRIDGE, "up"])?;
        ip(&["link", "set", "port1", "up"])?;
        Ok(network)
    }

    /// One more address (CIDR) of the bridge.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn add_address(&self, address: &str) -> Result<()> {
        ip(&["addr", "add", address, "dev", BRIDGE])
    }

    /// A new tap on the bridge, up; its name.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn tap(&self) -> Result<String> {
        let name = format!("tap{}", self.taps.fetch_add(1, Ordering::Relaxed));
        ip(&["tuntap", "add", &name, "mode", "tap"])?;
        ip(&["link", "set", &name, "master", BRIDGE, "up"])?;
        Ok(name)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// What went through `tap` of this thread's network so far.
///
/// # Errors
/// There is no such interface here.
pub fn traffic(tap: &str) -> Result<Traffic> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    parse_traffic(&table, tap).with_context(|| format!("no interface {tap} in this network"))
}

/// proc_pid_net(5): received bytes, packets and six more, then the same of what was sent, both seen from this side.
fn parse_traffic(table: &str, tap: &str) -> Option<Traffic> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(tap)?.strip_prefix(':'))?;
    let counters: Vec<u64> = row.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(Traffic { sent: *counters.get(1)?, received: *counters.get(9)? })
}

/// A process in a network namespace of its own, which ends with this thread. That it echoes proves that it is there.
fn hold_namespace() -> Result<Child> {
    let mut holder = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "unshare", "--net", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running setpriv")?;
    let (mut stdin, mut stdout) =
        (holder.stdin.take().context("a pipe")?, holder.stdout.take().context("a pipe")?);
    let written = stdin.write_all(b"\n");
    let echoed = stdout.read(&mut [0; 1]).unwrap_or(0);
    // Its input stays open: `cat` would end with it.
    holder.stdin = Some(stdin);
    if written.is_err() || echoed == 0 {
        let output = holder.wait_with_output()?;
        anyhow::bail!("unshare --net: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(holder)
}

/// Whether a [`Network`] with machines can be made here: as root, with iproute2 and taps.
#[must_use]
pub fn possible() -> bool {
    let namespaces = Command::new("unshare").args(["--net", "--", "ip", "link", "show"]).output();
    namespaces.is_ok_and(|output| output.status.success()) && Path::new("/dev/net/tun").exists()
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("running ip (iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_told_from_the_machines_side() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n  \
                     tap1: 900 7 0 0 0 0 0 0 1200 9 0 0 0 0 0 0\n tap10:100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        assert_eq!(parse_traffic(table, "tap1"), Some(Traffic { sent: 7, received: 9 }));
        assert_eq!(parse_traffic(table, "tap10"), Some(Traffic { sent: 1, received: 2 }));
        assert_eq!(parse_traffic(table, "tap"), None);
    }

    #[test]
    fn a_network_is_a_place_of_its_own_and_leaves_nothing() {
        if !crate::present(possible(), "root with network namespaces and taps") {
            return;
        }
        std::thread::spawn(|| {
            let network = Network::enter("10.0.0.1/24").unwrap();
            let (first, second) = (network.tap().unwrap(), network.tap().unwrap());
            assert_eq!((first.as_str(), second.as_str()), ("tap0", "tap1"));
            assert_eq!(traffic("tap1").unwrap().sent, 0);
            std::net::UdpSocket::bind("10.0.0.1:69").unwrap();
        })
        .join()
        .unwrap();
        assert!(traffic("tap0").is_err());
    }
}
