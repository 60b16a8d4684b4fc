//! Each request of a job refused, lost on the way there or back, late, or cut by SIGKILL; then the job again. The state
//! in the end is always the right one. The table is printed, one line a fault.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadline::Deadline;
use lab::program::{Program, with};
use lab::proxy::Proxy;
use lab::pve::{FakePve, FakePveBuilder};
use serde_json::{Value, json};

use crate::rebuild::{assert_rebuilt, grown_up, rebuilding, switch_on};
use crate::{assert_host_built, assert_no_orphans, host, house, through};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refused,
    /// Gone on its way to the server.
    Dropped,
    /// Carried out, and the answer is gone.
    Lost,
    /// Arrives after the run's deadline, and is carried out then.
    Late,
    Killed,
}

const ALL: [Fault; 5] = [Fault::Refused, Fault::Dropped, Fault::Lost, Fault::Late, Fault::Killed];
/// A read that is late or lost is one that failed.
const OF_READS: [Fault; 2] = [Fault::Refused, Fault::Killed];

/// What is asked of a VM, and how the world has to look in the end.
struct Job {
    name: &'static str,
    before: fn(FakePveBuilder, u32) -> FakePveBuilder,
    begin: fn(&FakePve, u32),
    options: fn(u32) -> Value,
    right: fn(&FakePve, u32),
}

const CREATE: Job =
    Job { name: "create", before: |pve, _| pve, begin: |_, _| {}, options: host, right: assert_host_built };

const CHANGE: Job = Job {
    name: "change",
    before: grown_up,
    begin: |_, _| {},
    options: |number| {
        json!({
            "vmid": 1100 + number, "name": format!("web{number:02}"), "memory": 4096, "os_disk": {"size": 50},
            "disks": [{"slot": "scsi2", "storage": "local-lvm", "size": 8, "serial": "more"}],
            "net": [{"firewall": true}], "state": "started",
        })
    },
    right: |pve, number| {
        let vmid = 1100 + number;
        let config = pve.vm_config(vmid);
        let net = format!("virtio=02:A5:00:00:04:{:02X},bridge=vmbr1,firewall=1,tag=20", 0x4c + number);
        assert_eq!((&config["memory"], &config["net0"]), (&json!("4096"), &json!(net)));
        let volumes =
            crate::rebuild::volumes(pve, vmid).into_iter().filter(|(volume, _)| volume.contains("disk"));
        assert_eq!(volumes.count(), 4, "two disks, the detached one, the new one: {config}");
        assert!(config["scsi0"].as_str().unwrap().contains("size=50G"), "{config}");
        assert!(config["scsi2"].as_str().unwrap().contains("serial=more,size=8G"), "{config}");
        assert_eq!(pve.vm_status(vmid), "running");
        assert_no_orphans(pve, vmid);
    },
};

const REBUILD: Job =
    Job { name: "rebuild", before: grown_up, begin: switch_on, options: rebuilding, right: assert_rebuilt };

const REMOVE: Job = Job {
    name: "remove",
    before: grown_up,
    begin: switch_on,
    options: |number| {
        json!({
            "vmid": 1100 + number, "name": format!("web{number:02}"), "state": "absent", "stop": true,
            "destroy_data_disks": true,
        })
    },
    right: |pve, number| {
        assert_eq!(pve.node_of(1100 + number), None);
        assert_no_orphans(pve, 1100 + number);
    },
};

/// One fault at one request.
struct Case {
    number: u32,
    request: usize,
    what: String,
    fault: Fault,
}

const WORKERS: usize = 6;
/// Seconds that a run has when its request is late, and how late that is.
const HURRY: u64 = 2;
const LATENESS: Duration = Duration::from_millis(2500);

#[test]
fn whatever_happens_to_a_request_the_next_run_ends_right() {
    let mut table = Vec::new();
    for job in [CREATE, CHANGE, REBUILD, REMOVE] {
        let cases = cases(&job);
        let pve = cases.iter().map(|case| case.number).fold(house(), job.before).start();
        let next = AtomicUsize::new(0);
        let lines = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let line = line(&job, case, &pve);
                        lines.lock().unwrap().push((case.request, case.number, line));
                    }
                });
            }
        });
        let mut lines = lines.into_inner().unwrap();
        lines.sort();
        table.extend(lines.into_iter().map(|(_, _, line)| line));
    }
    let text = table.join("\n");
    writeln!(std::io::stderr(), "{text}\n{} faults", table.len()).unwrap();
    assert!(!text.contains("WRONG"), "{text}");
}

/// From a run that nothing disturbs.
fn cases(job: &Job) -> Vec<Case> {
    let pve = (job.before)(house(), 1).start();
    (job.begin)(&pve, 1);
    let proxy = Proxy::to(&pve.url()).tls().start();
    let module = Program::new(env!("CARGO_BIN_EXE_proxmox_vm_clone"));
    let _ = module.run(&through(&proxy, &(job.options)(1))).done();
    (job.right)(&pve, 1);
    let mut cases = Vec::new();
    for exchange in proxy.log() {
        let faults: &[Fault] = if exchange.is_write() { &ALL } else { &OF_READS };
        for fault in faults {
            let number = 2 + u32::try_from(cases.len()).unwrap();
            let path = exchange.path.replace("/api2/json", "").replace("/nodes/pve1", "");
            let path = if path.starts_with("/tasks/") { "/tasks/UPID/status".to_owned() } else { path };
            let what = format!("{} {}", exchange.method, path.replace("1101", "VM"));
            cases.push(Case { number, request: exchange.number, what, fault: *fault });
        }
    }
    cases
}

/// Both runs of a case, and the judgement.
fn line(job: &Job, case: &Case, pve: &FakePve) -> String {
    let told = catch_unwind(AssertUnwindSafe(|| {
        let proxy = Proxy::to(&pve.url()).tls().start();
        let module = Program::new(env!("CARGO_BIN_EXE_proxmox_vm_clone"));
        (job.begin)(pve, case.number);
        let options = through(&proxy, &(job.options)(case.number));
        let first = first_run(case, &proxy, &module, &options);
        proxy.clear_faults();
        let second = module.run(&options);
        assert_eq!(second.status, 0, "{}", second.output);
        (job.right)(pve, case.number);
        assert_eq!(lab::pve_schema::complaints(&proxy.log()), Vec::<String>::new());
        format!(
            "{first:<24} then {:<9} right",
            if second.result["changed"] == true { "changed" } else { "unchanged" }
        )
    }));
    let told = told.unwrap_or_else(|why| {
        let why = why.downcast_ref::<String>().map_or("a panic", String::as_str);
        format!("WRONG: {why}")
    });
    format!("{:<8} {:>2} {:<44} {:<8} {told}", job.name, case.request, case.what, format!("{:?}", case.fault))
}

fn first_run(case: &Case, proxy: &Proxy, module: &Program, options: &Value) -> String {
    let faulty = || proxy.on_request(case.request);
    match case.fault {
        Fault::Killed => {
            assert!(module.run_killed_at(proxy, case.request, options), "the request was never sent");
            return "killed".to_owned();
        }
        Fault::Refused => faulty().answer(500, "storage 'local-lvm' is not online", r#"{"data":null}"#),
        Fault::Dropped => faulty().drop_request(),
        Fault::Lost => faulty().lose_answer(),
        Fault::Late => {
            faulty().arrive_late(LATENESS);
            let outcome = module.run(&with(options, json!({"timeout": HURRY})));
            assert_eq!(outcome.status, 1, "{}", outcome.output);
            arrived(proxy, case.request);
            return told(&outcome.result);
        }
    }
    told(&module.run(options).result)
}

/// Waits until the request that was late has been carried out.
fn arrived(proxy: &Proxy, request: usize) {
    let is_there = || proxy.log().iter().all(|one| one.number != request || one.status.is_some());
    let waited = Deadline::after(Duration::from_secs(30))
        .poll(|| Ok::<_, deadline::Expired>(is_there().then_some(())));
    assert!(waited.is_ok(), "the late request never arrived");
}

fn told(result: &Value) -> String {
    match result["error_code"].as_str() {
        Some(code) => format!("failed: {code}"),
        None => "done".to_owned(),
    }
}
