//! Pure: which identity a host has or gets, and every reason why it gets none.

use std::collections::BTreeMap;
use std::path::Path;

use ansible_module::{Change, Failure, Plan};
use net_types::{MacAddress, MacPrefix, Vmid};
use serde_json::{Value, json};

use crate::args::{Args, Range};
use crate::cluster::Guest;
use crate::document::{self, Declared, MAC_KEY, VMID_KEY};
use crate::observe::{Inventory, Layout, Source, identity_file};

/// How many holders of a full range the message names; `holders` in the result has them all.
const HOLDERS_SHOWN: usize = 20;

/// A VMID and the MAC that was made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) vmid: Vmid,
    pub(crate) mac: MacAddress,
}

/// What is known before a plan is made.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) inventory: Inventory,
    /// Empty when the cluster was not asked.
    pub(crate) guests: Vec<Guest>,
}

/// The one write: the new text of `identity.yml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub(crate) identity: Identity,
    pub(crate) text: String,
}

/// What the inventory says of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Both keys are written.
    Settled(Identity),
    /// One key is written, the other follows from it.
    Half(Identity),
    /// A VMID has to be found.
    Waiting,
}

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Write>, Failure> {
    let identity = match standing(args, &state.inventory)? {
        Standing::Settled(_) => return Ok(Plan::new()),
        Standing::Half(identity) => identity,
        Standing::Waiting => allocate(args, state)?,
    };
    let text = document::with_identity(state.inventory.text.as_deref(), identity.vmid, identity.mac)
        .map_err(|why| unusable(&identity_file(&args.host), &why))?;
    let declared = own(args, &state.inventory);
    let mut changes = Vec::new();
    if declared.vmid.is_none() {
        changes.push(Change::new(VMID_KEY, Value::Null, identity.vmid.get()));
    }
    if declared.mac.is_none() {
        changes.push(Change::new(MAC_KEY, Value::Null, identity.mac.to_string()));
    }
    let mut plan = Plan::new();
    plan.step(Write { identity, text }, changes);
    Ok(plan)
}

/// Judges the whole inventory first: an identity that two hosts share is nobody's.
pub(crate) fn standing(args: &Args, inventory: &Inventory) -> Result<Standing, Failure> {
    require_directory(args, &inventory.layout)?;
    for source in &inventory.sources {
        source.declared.as_ref().map_err(|why| unusable(&source.file, why))?;
    }
    refuse_elsewhere(args, inventory)?;
    refuse_shared(inventory)?;
    let identity = match own(args, inventory) {
        Declared { vmid: None, mac: None } => return Ok(Standing::Waiting),
        Declared { vmid: Some(vmid), mac } => contradiction(args, vmid, mac)?,
        Declared { vmid: None, mac: Some(mac) } => Identity { vmid: vmid_behind(args, mac)?, mac },
    };
    if settled(args, inventory).is_some() {
        return Ok(Standing::Settled(identity));
    }
    refuse_held(args, inventory, identity)?;
    Ok(Standing::Half(identity))
}

/// What this host's `identity.yml` declares.
pub(crate) fn own(args: &Args, inventory: &Inventory) -> Declared {
    let file = identity_file(&args.host);
    let source = inventory.sources.iter().find(|source| source.file == file);
    source.and_then(|source| source.declared.clone().ok()).unwrap_or_default()
}

/// The identity that is written in full.
pub(crate) fn settled(args: &Args, inventory: &Inventory) -> Option<Identity> {
    let Declared { vmid: Some(vmid), mac: Some(mac) } = own(args, inventory) else { return None };
    Some(Identity { vmid, mac })
}

/// The hosts of the batch that have no identity, in the order of the batch.
pub(crate) fn waiting<'a>(args: &'a Args, inventory: &Inventory) -> Vec<&'a str> {
    let declared = |host: &str| inventory.sources.iter().any(|source| source.host == host);
    args.batch.iter().map(String::as_str).filter(|host| !declared(host)).collect()
}

fn require_directory(args: &Args, layout: &Layout) -> Result<(), Failure> {
    let host = &args.host;
    let directory = format!("host_vars/{host}");
    let (found, cure) = match layout {
        Layout::Directory => return Ok(()),
        Layout::NoVars => (
            format!("{directory} without vars.yml"),
            format!("write the host's variables to {directory}/vars.yml"),
        ),
        Layout::PlainFile(file) => (
            format!("the file {}", file.display()),
            // By way of a third name: the file may be called like the directory.
            format!(
                "mv {} {directory}.tmp && mkdir {directory} && mv {directory}.tmp {directory}/vars.yml",
                file.display()
            ),
        ),
        Layout::Missing => {
            ("nothing there".to_owned(), format!("write the host's variables to {directory}/vars.yml"))
        }
        Layout::NoHostVars => (
            "no directory host_vars at all".to_owned(),
            "set `inventory_dir` to the directory that holds host_vars".to_owned(),
        ),
    };
    Err(Failure::refused(format!(
        "host `{host}`: expected the directory {directory} with vars.yml in {}, found {found}; {cure}",
        args.directory.display()
    ))
    .with("host", host.clone()))
}

fn unusable(file: &Path, why: &str) -> Failure {
    Failure::refused(format!("{}: {why}", file.display())).with("file", file.display().to_string())
}

/// Ansible merges all files of a host, so a second one could win over `identity.yml`.
fn refuse_elsewhere(args: &Args, inventory: &Inventory) -> Result<(), Failure> {
    let file = identity_file(&args.host);
    match inventory.sources.iter().find(|source| source.host == args.host && source.file != file) {
        None => Ok(()),
        Some(source) => Err(unusable(
            &source.file,
            &format!(
                "it declares the identity of host `{}`, which belongs in {}: move `{VMID_KEY}` and `{MAC_KEY}` there",
                args.host,
                file.display()
            ),
        )),
    }
}

fn refuse_shared(inventory: &Inventory) -> Result<(), Failure> {
    let mut vmids: BTreeMap<Vmid, &Source> = BTreeMap::new();
    let mut macs: BTreeMap<MacAddress, &Source> = BTreeMap::new();
    for source in &inventory.sources {
        let declared = source.declared.clone().unwrap_or_default();
        let vmid = declared.vmid.and_then(|vmid| Some((format!("VMID {vmid}"), vmids.insert(vmid, source)?)));
        let mac = declared.mac.and_then(|mac| Some((format!("MAC {mac}"), macs.insert(mac, source)?)));
        let mut shared = [vmid, mac].into_iter().flatten();
        if let Some((what, other)) = shared.find(|(_, other)| other.host != source.host) {
            return Err(Failure::refused(format!(
                "hosts `{}` and `{}` share the {what} ({}, {}); take the two keys out of the file of the host that has \
                 no VM yet, and it gets an identity of its own",
                other.host,
                source.host,
                other.file.display(),
                source.file.display(),
            ))
            .with("hosts", json!([other.host, source.host])));
        }
    }
    Ok(())
}

fn contradiction(args: &Args, vmid: Vmid, mac: Option<MacAddress>) -> Result<Identity, Failure> {
    let file = identity_file(&args.host);
    let expected = derived(args.prefix, vmid).map_err(|why| unusable(&file, &why))?;
    match mac {
        Some(found) if found != expected => Err(unusable(
            &file,
            &format!(
                "the MAC contradicts the VMID: VMID {vmid} behind the prefix {} makes {expected}, found {found}; correct the \
                 one that the VM does not have, or set `mac_prefix` to the prefix that the MAC was made with",
                args.prefix
            ),
        )
        .with("field", MAC_KEY)
        .with("expected", expected.to_string())
        .with("found", found.to_string())),
        _ => Ok(Identity { vmid, mac: expected }),
    }
}

fn derived(prefix: MacPrefix, vmid: Vmid) -> Result<MacAddress, String> {
    MacAddress::from_vmid(prefix, vmid).map_err(|error| format!("`{VMID_KEY}`: {error}"))
}

fn vmid_behind(args: &Args, mac: MacAddress) -> Result<Vmid, Failure> {
    mac.vmid_of(args.prefix).ok_or_else(|| {
        let why = format!(
            "`{MAC_KEY}` {mac} stands alone and no VMID makes it behind the prefix {}; write the VMID of the VM beside it, \
             or take the MAC out",
            args.prefix
        );
        unusable(&identity_file(&args.host), &why)
    })
}

/// The half that is added must not be another host's.
fn refuse_held(args: &Args, inventory: &Inventory, identity: Identity) -> Result<(), Failure> {
    let others = inventory.sources.iter().filter(|source| source.host != args.host);
    for source in others {
        let declared = source.declared.clone().unwrap_or_default();
        let what = match declared {
            Declared { vmid: Some(vmid), .. } if vmid == identity.vmid => format!("VMID {vmid}"),
            Declared { mac: Some(mac), .. } if mac == identity.mac => format!("MAC {mac}"),
            _ => continue,
        };
        return Err(Failure::refused(format!(
            "host `{}` would get the {what}, which host `{}` has ({})",
            args.host,
            source.host,
            source.file.display()
        ))
        .with("hosts", json!([source.host, args.host])));
    }
    Ok(())
}

/// Every host of the batch that waits gets the next free VMID in turn, so that each task, alone and without
/// any order between them, comes to the same answer.
fn allocate(args: &Args, state: &State) -> Result<Identity, Failure> {
    let range = args.range.ok_or_else(|| {
        let why = format!(
            "missing: host `{}` has no identity yet, and this is where its VMID comes from",
            args.host
        );
        Failure::bad_argument("vmid_range", why)
    })?;
    let holders = Holders::of(state);
    let mut waiting = waiting(args, &state.inventory).into_iter();
    let mut taken = Vec::new();
    for vmid in range.vmids() {
        let mac = derived(args.prefix, vmid).map_err(|why| Failure::bad_argument("vmid_range", why))?;
        let holder = holders.holder(vmid, mac).or_else(|| match waiting.next() {
            Some(next) if next != args.host => Some(format!("kept for host `{next}` of the same batch")),
            _ => None,
        });
        match holder {
            Some(holder) => taken.push((vmid, holder)),
            None => return Ok(Identity { vmid, mac }),
        }
    }
    Err(full(&args.host, range, &taken))
}

fn full(host: &str, range: Range, taken: &[(Vmid, String)]) -> Failure {
    let mut shown: Vec<String> =
        taken.iter().take(HOLDERS_SHOWN).map(|(vmid, holder)| format!("{vmid}: {holder}")).collect();
    if taken.len() > HOLDERS_SHOWN {
        shown.push(format!("and {} more", taken.len() - HOLDERS_SHOWN));
    }
    let holders: Vec<Value> =
        taken.iter().map(|(vmid, holder)| json!({"vmid": vmid, "holder": holder})).collect();
    Failure::refused(format!(
        "host `{host}`: no VMID of {range} is free ({}); widen `vmid_range`",
        shown.join("; ")
    ))
    .with("holders", holders)
}

/// Who has which VMID and MAC, in the inventory and in the cluster.
struct Holders {
    vmids: BTreeMap<Vmid, String>,
    macs: BTreeMap<MacAddress, String>,
}

impl Holders {
    fn of(state: &State) -> Self {
        let mut holders = Self { vmids: BTreeMap::new(), macs: BTreeMap::new() };
        for guest in &state.guests {
            holders.vmids.insert(guest.vmid, guest.who.clone());
            holders.macs.extend(guest.macs.iter().map(|mac| (*mac, guest.who.clone())));
        }
        for source in &state.inventory.sources {
            let declared = source.declared.clone().unwrap_or_default();
            let who = format!("host `{}` ({})", source.host, source.file.display());
            holders.vmids.extend(declared.vmid.map(|vmid| (vmid, who.clone())));
            holders.macs.extend(declared.mac.map(|mac| (mac, who)));
        }
        holders
    }

    fn holder(&self, vmid: Vmid, mac: MacAddress) -> Option<String> {
        let by_mac = || self.macs.get(&mac).map(|who| format!("its MAC {mac} is that of {who}"));
        self.vmids.get(&vmid).cloned().or_else(by_mac)
    }
}

#[cfg(test)]
mod tests {
    use ansible_module::Arguments;

    use super::*;

    fn args(more: Value) -> Args {
        let mut raw = json!({"host": "web01", "inventory_dir": "/inv", "vmid_range": "1000-1003"});
        raw.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Args::new(&Arguments::for_tests(&crate::args::spec(), raw).unwrap()).unwrap()
    }

    /// The `identity.yml` of hosts, and other files by their path.
    fn inventory(files: &[(&str, &str)]) -> Inventory {
        let source = |(name, text): &(&str, &str)| match name.split_once('/') {
            None => {
                Source { host: (*name).into(), file: identity_file(name), declared: document::read(text) }
            }
            Some((host, _)) => Source {
                host: host.trim_end_matches(".yml").into(),
                file: Path::new("host_vars").join(name),
                declared: document::read(text),
            },
        };
        Inventory {
            layout: Layout::Directory,
            text: files.iter().find(|(name, _)| *name == "web01").map(|(_, text)| (*text).to_owned()),
            sources: files.iter().map(source).collect(),
        }
    }

    fn guest(vmid: u32, name: &str, macs: &[&str]) -> Guest {
        Guest {
            vmid: Vmid::new(vmid).unwrap(),
            who: format!("VM {vmid} ({name}) on node pve1"),
            macs: macs.iter().map(|mac| mac.parse().unwrap()).collect(),
        }
    }

    fn planned(args: &Args, files: &[(&str, &str)], guests: &[Guest]) -> Result<Plan<Write>, Failure> {
        plan(args, &State { inventory: inventory(files), guests: guests.to_vec() })
    }

    /// The VMID that a plan writes.
    fn vmid(args: &Args, files: &[(&str, &str)], guests: &[Guest]) -> u32 {
        let plan = planned(args, files, guests).unwrap();
        plan.steps().next().unwrap().action.identity.vmid.get()
    }

    fn refusal(args: &Args, files: &[(&str, &str)], guests: &[Guest]) -> String {
        planned(args, files, guests).unwrap_err().to_string()
    }

    #[test]
    fn the_next_free_vmid_makes_the_mac() {
        let plan = planned(&args(json!({})), &[], &[]).unwrap();
        let step = plan.steps().next().unwrap();
        assert_eq!(step.action.identity.mac.to_string(), "02:a5:00:00:03:e8");
        assert_eq!(
            step.changes,
            [
                Change::new("anvil_assigned_vmid", Value::Null, 1000),
                Change::new("anvil_assigned_mac", Value::Null, "02:a5:00:00:03:e8"),
            ]
        );
    }

    #[test]
    fn what_others_have_is_passed_over() {
        let web02 = ("web02", "anvil_assigned_vmid: 1000\nanvil_assigned_mac: '02:a5:00:00:03:e8'");
        let lone_vmid = ("web03/vars.yml", "anvil_assigned_vmid: 1000");
        let lone_mac = ("web04.yml", "anvil_assigned_mac: 02:a5:00:00:03:e8");
        for (files, guests, expected) in [
            (vec![web02], vec![], 1001),
            (vec![lone_vmid], vec![], 1001),
            (vec![lone_mac], vec![], 1001),
            (vec![], vec![guest(1000, "x", &[])], 1001),
            (vec![], vec![guest(700, "x", &["02:A5:00:00:03:E8"])], 1001),
            (vec![web02], vec![guest(1000, "web02", &["02:a5:00:00:03:e8"]), guest(1001, "y", &[])], 1002),
            (vec![("web02", "anvil_assigned_vmid: 1001")], vec![], 1000),
        ] {
            assert_eq!(vmid(&args(json!({})), &files, &guests), expected, "{files:?} {guests:?}");
        }
    }

    #[test]
    fn every_host_of_a_batch_comes_to_the_same_answer_in_any_order() {
        let hosts = ["web03", "web01", "web02"];
        let answer = |host: &str, files: &[(&str, &str)]| {
            vmid(&args(json!({"host": host, "hosts": hosts})), files, &[guest(1001, "x", &[])])
        };
        for (host, expected) in hosts.iter().zip([1000, 1002, 1003]) {
            assert_eq!(answer(host, &[]), expected, "check mode, {host}");
        }
        assert_eq!(answer("web03", &[("web02", "anvil_assigned_vmid: 1003")]), 1000);
        assert_eq!(answer("web01", &[("web02", "anvil_assigned_vmid: 1003")]), 1002);
    }

    #[test]
    fn a_written_identity_stays_whatever_the_range_and_the_cluster_say() {
        let own = ("web01", "anvil_assigned_vmid: 140\nanvil_assigned_mac: '02:a5:00:00:00:8c'");
        for more in [json!({}), json!({"vmid_range": null})] {
            let plan = planned(&args(more), &[own], &[guest(140, "web01", &["02:a5:00:00:00:8c"])]).unwrap();
            assert!(plan.is_empty());
        }
    }

    #[test]
    fn the_missing_half_follows_from_the_other() {
        for (text, vmid, mac) in [
            ("anvil_assigned_vmid: 140\nanvil_assigned_mac: ''\n", 140, "02:a5:00:00:00:8c"),
            ("anvil_assigned_mac: \"02:a5:00:00:00:8c\"\n", 140, "02:a5:00:00:00:8c"),
        ] {
            let plan = planned(&args(json!({"vmid_range": null})), &[("web01", text)], &[]).unwrap();
            let step = plan.steps().next().unwrap();
            assert_eq!(
                (step.action.identity.vmid.get(), step.action.identity.mac.to_string()),
                (vmid, mac.into())
            );
            assert_eq!(step.changes.len(), 1, "only what is new: {text}");
        }
    }

    #[test]
    fn refusals_name_what_is_wrong_and_the_cure() {
        let plain = args(json!({}));
        let web02 = ("web02", "anvil_assigned_vmid: 140\nanvil_assigned_mac: '02:a5:00:00:00:8c'");
        let refusals = [
            refusal(&args(json!({"vmid_range": null})), &[], &[]),
            refusal(&plain, &[web02, ("web03", "anvil_assigned_vmid: 140")], &[]),
            refusal(&plain, &[web02, ("web03", "anvil_assigned_mac: 02-A5-00-00-00-8C")], &[]),
            refusal(
                &plain,
                &[("web01", "anvil_assigned_vmid: 140\nanvil_assigned_mac: '02:a5:00:00:00:8d'")],
                &[],
            ),
            refusal(&plain, &[("web01", "anvil_assigned_mac: '52:54:00:00:00:8d'")], &[]),
            refusal(&plain, &[("web01", "anvil_assigned_vmid: 16777216")], &[]),
            refusal(&plain, &[web02, ("web01", "anvil_assigned_vmid: 140")], &[]),
            refusal(
                &plain,
                &[("web02", "anvil_assigned_mac: 02:a5:00:00:00:8c"), ("web01", "anvil_assigned_vmid: 140")],
                &[],
            ),
            refusal(&plain, &[("web01/vars.yml", "anvil_assigned_vmid: 140")], &[]),
            refusal(&plain, &[("web02", "a: [")], &[]),
            refusal(&plain, &[("web01", "$ANSIBLE_VAULT;1.1;AES256")], &[]),
            refusal(&plain, &[("web01", "{}")], &[]),
        ];
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        option `vmid_range`: missing: host `web01` has no identity yet, and this is where its VMID comes from (bad_argument)
        hosts `web02` and `web03` share the VMID 140 (host_vars/web02/identity.yml, host_vars/web03/identity.yml); take the two keys out of the file of the host that has no VM yet, and it gets an identity of its own (refused)
        hosts `web02` and `web03` share the MAC 02:a5:00:00:00:8c (host_vars/web02/identity.yml, host_vars/web03/identity.yml); take the two keys out of the file of the host that has no VM yet, and it gets an identity of its own (refused)
        host_vars/web01/identity.yml: the MAC contradicts the VMID: VMID 140 behind the prefix 02:a5:00 makes 02:a5:00:00:00:8c, found 02:a5:00:00:00:8d; correct the one that the VM does not have, or set `mac_prefix` to the prefix that the MAC was made with (refused)
        host_vars/web01/identity.yml: `anvil_assigned_mac` 52:54:00:00:00:8d stands alone and no VMID makes it behind the prefix 02:a5:00; write the VMID of the VM beside it, or take the MAC out (refused)
        host_vars/web01/identity.yml: `anvil_assigned_vmid`: "16777216" is not a VMID that a MAC address can hold: expected at most 16777215 (24 bits behind the prefix 02:a5:00), found 16777216 (refused)
        hosts `web02` and `web01` share the VMID 140 (host_vars/web02/identity.yml, host_vars/web01/identity.yml); take the two keys out of the file of the host that has no VM yet, and it gets an identity of its own (refused)
        host `web01` would get the MAC 02:a5:00:00:00:8c, which host `web02` has (host_vars/web02/identity.yml) (refused)
        host_vars/web01/vars.yml: it declares the identity of host `web01`, which belongs in host_vars/web01/identity.yml: move `anvil_assigned_vmid` and `anvil_assigned_mac` there (refused)
        host_vars/web02/identity.yml: expected YAML with keys and values: did not find expected node content at line 2 column 1, while parsing a flow node (refused)
        host_vars/web01/identity.yml: it is encrypted with ansible-vault; an identity is no secret: decrypt the file, or move its secrets into a file of their own beside it (refused)
        host_vars/web01/identity.yml: the identity cannot be added without changing what is there: expected one key a line, beginning at the left margin; rewrite the file so (refused)
        "#);
    }

    #[test]
    fn a_full_range_says_by_whom() {
        let args = args(json!({"hosts": ["web09", "web01"]}));
        let files = [("web02", "anvil_assigned_vmid: 1000")];
        let guests = [guest(1001, "db", &[]), guest(700, "old", &["02:a5:00:00:03:ea"])];
        let failure = planned(&args, &files, &guests).unwrap_err();
        insta::assert_snapshot!(failure.msg, @"host `web01`: no VMID of 1000-1003 is free (1000: host `web02` (host_vars/web02/identity.yml); 1001: VM 1001 (db) on node pve1; 1002: its MAC 02:a5:00:00:03:ea is that of VM 700 (old) on node pve1; 1003: kept for host `web09` of the same batch); widen `vmid_range`");
        assert_eq!(failure.details["holders"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn a_wide_full_range_is_cut_short_in_the_message_only() {
        let guests: Vec<Guest> = (1000..1100).map(|vmid| guest(vmid, "x", &[])).collect();
        let failure = planned(&args(json!({"vmid_range": "1000-1099"})), &[], &guests).unwrap_err();
        assert!(
            failure.msg.ends_with("1019: VM 1019 (x) on node pve1; and 80 more); widen `vmid_range`"),
            "{failure}"
        );
        assert_eq!(failure.details["holders"].as_array().unwrap().len(), 100);
    }

    #[test]
    fn a_layout_without_a_place_for_the_file_is_refused_with_the_cure() {
        let refusals = [
            Layout::NoVars,
            Layout::PlainFile("host_vars/web01.yml".into()),
            Layout::PlainFile("host_vars/web01".into()),
            Layout::Missing,
            Layout::NoHostVars,
        ]
        .map(|layout| {
            let state = State { inventory: Inventory { layout, ..inventory(&[]) }, guests: Vec::new() };
            plan(&args(json!({})), &state).unwrap_err().msg
        });
        insta::assert_snapshot!(refusals.join("\n"), @"
        host `web01`: expected the directory host_vars/web01 with vars.yml in /inv, found host_vars/web01 without vars.yml; write the host's variables to host_vars/web01/vars.yml
        host `web01`: expected the directory host_vars/web01 with vars.yml in /inv, found the file host_vars/web01.yml; mv host_vars/web01.yml host_vars/web01.tmp && mkdir host_vars/web01 && mv host_vars/web01.tmp host_vars/web01/vars.yml
        host `web01`: expected the directory host_vars/web01 with vars.yml in /inv, found the file host_vars/web01; mv host_vars/web01 host_vars/web01.tmp && mkdir host_vars/web01 && mv host_vars/web01.tmp host_vars/web01/vars.yml
        host `web01`: expected the directory host_vars/web01 with vars.yml in /inv, found nothing there; write the host's variables to host_vars/web01/vars.yml
        host `web01`: expected the directory host_vars/web01 with vars.yml in /inv, found no directory host_vars at all; set `inventory_dir` to the directory that holds host_vars
        ");
    }
}
