//! The nodes with a real corosync, and what their stand-ins refuse in pvecm's words.

use std::path::Path;
use std::process::Output;

use lab::corosync::{Node, Site, possible};

fn site(names: &[&str]) -> Option<Site> {
    lab::present(possible(), "corosync (with rsync, root and namespaces)").then(|| Site::build(names))
}

fn run(node: &Node, words: &str) -> Output {
    node.command("pvecm").args(words.split(' ')).output().expect("the stand-in starts")
}

fn refused(node: &Node, words: &str) -> String {
    let output = run(node, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(255), "{words}: {said}");
    said
}

fn done(node: &Node, words: &str) {
    let output = run(node, words);
    let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words}: {said}\n{}", logs(node));
}

fn logs(node: &Node) -> String {
    ["corosync", "pve-cluster"]
        .map(|unit| node.read(&format!("/run/lab/{unit}.log")).unwrap_or_default())
        .concat()
}

fn trust(node: &Node, peer: &Node) {
    peer.authorize(node);
    node.write("/root/.ssh/known_hosts", &format!("{} {}\n", peer.address(0), peer.host_key()));
}

#[test]
fn three_nodes_lose_and_regain_quorum_and_a_link() {
    let Some(site) = site(&["pve1", "pve2", "pve3"]) else { return };
    let [one, two, three] = ["pve1", "pve2", "pve3"].map(|name| site.node(name));
    let no_conf =
        "Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part of a cluster?";
    assert_eq!(refused(one, "status").trim(), no_conf);
    assert!(refused(one, "create a-name-of-sixteen").contains("value may only be 15 characters long"));
    done(one, &format!("create lab --link0 {} --link1 {}", one.address(0), one.address(1)));
    one.wait_for_quorum(true);
    assert_eq!(refused(one, "create lab").trim(), "cluster config '/etc/pve/corosync.conf' already exists");

    let links = |node: &Node| format!("--link0 {} --link1 {}", node.address(0), node.address(1));
    let join = |node: &Node| format!("add {} --use_ssh {}", one.address(0), links(node));
    assert!(refused(two, &join(two)).contains("unable to copy ssh ID"), "no host key, no key");
    trust(two, one);
    let one_link = format!("add {} --use_ssh --link0 {}", one.address(0), two.address(0));
    assert!(
        refused(two, &one_link)
            .contains("corosync: link 1 exists in cluster config but wasn't specified for new node")
    );
    two.set_guests("101 102");
    assert!(refused(two, &join(two)).contains("* this host already contains virtual guests"));
    two.set_guests("");
    done(two, &join(two));
    let again = refused(two, &join(two));
    for refusal in
        ["authentication key '/etc/corosync/authkey' already exists", "corosync is already running"]
    {
        assert!(again.contains(refusal), "{again}");
    }
    trust(three, one);
    done(three, &join(three));
    for node in [one, two, three] {
        node.wait_for_quorum(true);
        assert!(lab_poll(|| node.sh("pvecm nodes").lines().count() == 7), "{}", node.sh("pvecm nodes"));
    }

    site.set_link(three, 1, false);
    assert!(
        lab_poll(|| one.sh("corosync-cfgtool -s").contains("disconnected")),
        "{}",
        one.sh("corosync-cfgtool -s")
    );
    site.set_link(three, 1, true);
    two.sh("systemctl stop pve-cluster corosync");
    three.sh("systemctl stop pve-cluster corosync");
    one.wait_for_quorum(false);
    assert!(lab_poll(|| one.read("/etc/pve/.members").is_ok_and(|text| text.contains(r#""quorate": 0"#))));
    assert_eq!(run(one, "nodes").status.code(), Some(0), "no quorum, and the exit code does not say so");
    assert_eq!(
        refused(one, "addnode other --link0 10.77.0.9 --link1 10.78.0.9").trim(),
        "cluster not ready - no quorum?"
    );
    two.sh("systemctl start corosync pve-cluster");
    one.wait_for_quorum(true);
    assert!(Path::new("/etc/pve").read_dir().is_err(), "nothing of it is on this machine");
}

fn lab_poll(ask: impl Fn() -> bool) -> bool {
    let deadline = deadline::Deadline::after(std::time::Duration::from_secs(15));
    deadline.poll(|| Ok::<_, deadline::Expired>(ask().then_some(()))).is_ok()
}
