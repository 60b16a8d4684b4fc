//! The playbooks `cluster.yml` and `cluster_preflight.yml`, run by the real ansible-playbook on nodes with a real
//! corosync.

use std::fs;
use std::io::Write;
use std::time::Instant;

use lab::checkout;
use lab::corosync::{Site, possible};
use lab::guests::KeyPair;
use serde_json::{Map, Value, json};

const NODES: [&str; 3] = ["pve1", "pve2", "pve3"];

/// The nodes, an inventory of them, and a key that lets the controller in.
struct Controller {
    site: Site,
}

impl Controller {
    fn new() -> Self {
        let site = Site::build(&NODES);
        site.join_outside();
        let key = KeyPair::make(site.directory(), "controller").unwrap();
        let known = site.directory().join("known_hosts");
        let lines =
            NODES.map(|name| format!("{} {}\n", site.node(name).address(0), site.node(name).host_key()));
        fs::write(&known, lines.concat()).unwrap();
        let host = |name: &str| {
            let node = site.node(name);
            node.sh(&format!("echo '{}' >> /root/.ssh/authorized_keys", key.public));
            let vars = json!({
                "ansible_host": node.address(0).to_string(),
                "pve_cluster_links": {"link0": node.address(0).to_string(), "link1": node.address(1).to_string()},
            });
            (name.to_owned(), vars)
        };
        let vars = json!({
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": key.private,
            // A connection that is kept would outlive the nodes.
            "ansible_ssh_args": format!("-o ControlMaster=no -o UserKnownHostsFile={}", known.display()),
            "cluster": {"name": "lab", "votes": {"pve1": 2}, "members": ["pve2", "pve3"]},
        });
        let hosts: Map<String, Value> = NODES.iter().map(|name| host(name)).collect();
        let inventory = json!({"proxmox_nodes": {"hosts": hosts, "vars": vars}});
        fs::write(site.directory().join("hosts.json"), inventory.to_string()).unwrap();
        Self { site }
    }

    /// Whether it went well, and what it printed.
    fn play(&self, playbook: &str, arguments: &[&str]) -> (bool, String) {
        let output = self
            .site
            .outside(checkout().join(".venv/bin/ansible-playbook"))
            .current_dir(checkout())
            .env("ANSIBLE_HOME", self.site.directory().join("ansible"))
            .env("ANSIBLE_NOCOLOR", "1")
            .arg("-i")
            .arg(self.site.directory().join("hosts.json"))
            .arg(checkout().join("playbooks").join(playbook))
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), said)
    }
}

/// How many changes the recap counts for each node.
fn changes(output: &str) -> Vec<u32> {
    let count = |name: &&str| {
        let recap = output.split("PLAY RECAP").nth(1).unwrap_or_else(|| panic!("{output}"));
        let line = recap.lines().find(|line| line.starts_with(*name)).unwrap_or_else(|| panic!("{output}"));
        line.split("changed=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    NODES.iter().map(count).collect()
}

#[test]
fn three_nodes_become_a_cluster_in_one_run_and_stay_one() {
    if !lab::present(possible(), "corosync (with rsync, root and namespaces)") {
        return;
    }
    let controller = Controller::new();
    let (done, said) = controller.play("cluster.yml", &[]);
    assert!(done && said.contains("would join once the cluster lab is founded"), "{said}");
    assert_eq!(changes(&said), [1, 0, 0], "{said}");
    for name in NODES {
        assert!(
            controller.site.node(name).read("/etc/corosync/authkey").is_err(),
            "a dry run acted on {name}"
        );
    }
    let (done, said) = controller.play("cluster.yml", &["-e", "confirm=production"]);
    assert!(!done && said.contains("expected confirm=lab, found confirm=production"), "{said}");

    let began = Instant::now();
    let (done, said) = controller.play("cluster.yml", &["-e", "confirm=lab"]);
    let all = began.elapsed();
    assert!(done, "{said}");
    // The key on the founder is counted where the task belongs.
    assert_eq!(changes(&said), [1, 2, 2], "{said}");
    let settled = controller.site.node("pve1").wait_for_quorum(true);
    let _ =
        writeln!(std::io::stderr(), "measured: one founder and two joins took {all:.1?}, then {settled:.1?}");
    let members = controller.site.node("pve3").sh("corosync-quorumtool -s || true");
    assert!(
        members.contains("Total votes:      4") && members.contains("Quorate:          Yes"),
        "{members}"
    );

    let (done, said) = controller.play("cluster.yml", &["-e", "confirm=lab"]);
    assert!(done, "{said}");
    assert_eq!(changes(&said), [0, 0, 0], "{said}");
    let (done, said) = controller.play("cluster_preflight.yml", &[]);
    assert!(done, "{said}");
    assert_eq!(changes(&said), [0, 0, 0], "{said}");
}
