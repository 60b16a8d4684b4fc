//! Pure: from what is asked and what was seen to a refusal or the writes.

use std::net::Ipv4Addr;

use ansible_module::{Change, Failure, Plan};
use dhcp_reservations::{Field, Reservation, Subnet, Values};
use kea_api::Dhcp4Config;
use serde_json::{Value, json};

use crate::args::{Args, Backend, State, SubnetName};
use crate::observe::{Lease, Observed};

/// The change that stands for the service reading its configuration.
pub(crate) const SERVICE: &str = "kea.service";
/// The change that stands for Kea writing its configuration.
pub(crate) const CONFIG_FILE: &str = "kea.config_file";
/// The change that stands for the whole reservation.
pub(crate) const RESERVATION: &str = "reservation";
pub(crate) const LEASE: &str = "lease";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Store(Store),
    /// OPNsense: Kea reads its configuration. Plain Kea: it writes it.
    Apply,
    ClearLease(Ipv4Addr),
}

/// Reservations go, then one comes or changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub(crate) remove: Vec<Reservation>,
    pub(crate) put: Option<Put>,
}

impl Store {
    /// Whether one reservation comes, goes, or stays the one of its host at its address.
    pub(crate) fn is_of_one_host(&self) -> bool {
        let is_moved = |put: &Put| {
            let moves = [Field::HwAddress, Field::ClientId, Field::IpAddress];
            put.replaces.is_some() && moves.into_iter().any(|field| put.values.speaks_of(field))
        };
        match (&self.remove[..], &self.put) {
            ([], Some(put)) => !is_moved(put),
            ([_], None) => true,
            _ => false,
        }
    }
}

/// A reservation that is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The key of its subnet.
    pub(crate) subnet: String,
    /// The one that it is made of.
    pub(crate) replaces: Option<Reservation>,
    /// The fields that change.
    pub(crate) values: Values,
}

/// Whether the reservation has to be written.
pub(crate) fn differs(args: &Args, observed: &Observed) -> bool {
    args.state == State::Present
        && match &observed.own(args)[..] {
            [own] => !changed(&args.wanted, &own.values).is_empty(),
            _ => true,
        }
}

/// Whether anything is to be stored.
pub(crate) fn writes(args: &Args, observed: &Observed) -> bool {
    differs(args, observed) || (args.state == State::Absent && !observed.own(args).is_empty())
}

pub(crate) fn plan(args: &Args, observed: &Observed) -> Result<Plan<Action>, Failure> {
    let mut plan = Plan::new();
    match args.state {
        State::Present => present(args, observed, &mut plan)?,
        State::Absent => absent(args, observed, &mut plan)?,
    }
    apply(args, observed, &mut plan);
    if args.state == State::Present {
        clear_lease(args, observed, &mut plan)?;
    }
    Ok(plan)
}

fn present(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    let subnet = observed.subnet(args).ok_or_else(|| no_subnet(args, observed))?;
    if let Some(why) = &observed.off {
        return Err(Failure::refused(why.clone()));
    }
    let Some(ip) = args.ip else { return Err(Failure::bad_argument("ip", "missing")) };
    refuse_unfit_address(ip, subnet)?;
    let own = observed.own(args);
    let stale = stale_holders(args, ip, observed)?;
    refuse_hostname_of_another(args, subnet, observed, &stale)?;

    // A stale holder is taken over in place when this MAC address has no reservation yet.
    let base = own.first().or(stale.first()).copied();
    let values = changed(&args.wanted, &base.map(|one| one.values.clone()).unwrap_or_default());
    if own.is_empty() || values.speaks_of(Field::IpAddress) {
        refuse_lease_of_another(args, ip, observed, &stale, plan)?;
    }
    refuse_lacking(&values, observed)?;
    if values.speaks_of(Field::BootFileName) {
        warn_of_a_boot_that_may_fail(args, subnet, base, plan);
    }
    refuse_unbootable(args, subnet, base, observed)?;
    refuse_global(own.iter().chain(&stale).copied())?;
    let superfluous =
        own.iter().skip(1).chain(&stale).copied().filter(|one| base.is_none_or(|base| base != *one));
    store(args, observed, &subnet.key, base, superfluous.cloned().collect(), values, plan)
}

fn store(
    args: &Args,
    observed: &Observed,
    subnet: &str,
    base: Option<&Reservation>,
    remove: Vec<Reservation>,
    mut values: Values,
    plan: &mut Plan<Action>,
) -> Result<(), Failure> {
    let mut changes: Vec<Change> = remove.iter().map(|one| removal(one, observed)).collect();
    let mut put = None;
    if !values.is_empty() {
        add_owner(&mut values, args, base);
        changes.extend(values.iter().map(|(field, text)| {
            let before = base.map_or(Value::Null, |base| field.shown(base.values.text(field)));
            Change::new(path(field), before, field.shown(text))
        }));
        put = Some(Put { subnet: subnet.to_owned(), replaces: base.cloned(), values });
    }
    if !changes.is_empty() {
        let store = Store { remove, put };
        refuse_to_forget_leases(observed, &store)?;
        warn_of_hosts_elsewhere(observed, plan);
        plan.step(Action::Store(store), changes);
    }
    Ok(())
}

fn warn_of_hosts_elsewhere(observed: &Observed, plan: &mut Plan<Action>) {
    if observed.config.as_ref().is_some_and(Dhcp4Config::has_hosts_database) {
        plan.warn("this Kea also has a hosts database, which was not looked at: a reservation there may hold the address too");
    }
}

/// `config-set` starts the lease database anew; one that is not persistent is then empty (seen on Kea 2.2 and 3.0).
fn refuse_to_forget_leases(observed: &Observed, store: &Store) -> Result<(), Failure> {
    let forgets = observed.config.as_ref().is_some_and(Dhcp4Config::forgets_leases);
    if !forgets || (observed.host_commands && store.is_of_one_host()) {
        return Ok(());
    }
    Err(Failure::refused(
        "this Kea keeps its leases in memory only (lease-database: persist false), so a change of its configuration would \
         forget every lease: set persist to true, or load the hook host_cmds",
    ))
}

fn absent(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    if args.subnet.is_some() && observed.subnet(args).is_none() {
        return Err(no_subnet(args, observed));
    }
    let own = observed.own(args);
    let mut subnets: Vec<&str> = own.iter().map(|one| one.subnet.as_str()).collect();
    subnets.dedup();
    if subnets.len() > 1 {
        let cidrs: Vec<String> = subnets.iter().map(|key| observed.cidr_of(key)).collect();
        return Err(Failure::refused(format!(
            "{} has reservations in several subnets ({}): say which with `subnet`",
            args.host,
            cidrs.join(", ")
        )));
    }
    if own.is_empty() {
        return Ok(());
    }
    refuse_global(own.iter().copied())?;
    let changes = own.iter().map(|one| removal(one, observed)).collect();
    let remove = own.into_iter().cloned().collect();
    let store = Store { remove, put: None };
    refuse_to_forget_leases(observed, &store)?;
    plan.step(Action::Store(store), changes);
    Ok(())
}

/// Behind a gate: what is stored is proved before the service is stopped and started.
fn apply(args: &Args, observed: &Observed, plan: &mut Plan<Action>) {
    let stores = !plan.is_empty();
    if args.stores_only() {
        return;
    }
    if args.backend == Backend::Kea {
        if observed.pending && !stores {
            plan.step(Action::Apply, vec![Change::new(CONFIG_FILE, "not written", "written")]);
        }
        return;
    }
    if let Some(why) = &observed.off {
        plan.warn(format!("not applied: {why}"));
        return;
    }
    let service = observed.service.as_deref().unwrap_or("unknown");
    let before = match service {
        "running" if !(stores || observed.pending) => return,
        "running" => "running without the stored change",
        other => other,
    };
    plan.gate();
    plan.step(Action::Apply, vec![Change::new(SERVICE, before, "running")]);
}

fn clear_lease(args: &Args, observed: &Observed, plan: &mut Plan<Action>) -> Result<(), Failure> {
    if args.clear_lease && observed.lease == Lease::NotChecked {
        plan.warn(match args.backend {
            Backend::Opnsense => {
                "no lease was looked for or forgotten: the user of the API key may not see leases (privilege \
                 \"Services: DHCP: Kea(v4)\")"
            }
            Backend::Kea => "no lease was looked for or forgotten: this Kea runs without its hook lease_cmds",
        });
    }
    let (true, Lease::Other(holder), Some(ip)) = (args.clear_lease, &observed.lease, args.ip) else {
        return Ok(());
    };
    if !observed.can_clear_lease {
        return Err(Failure::refused(format!(
            "{ip} is leased to {holder}, and this OPNsense cannot forget a lease: that needs OPNsense 26.1.6"
        )));
    }
    // Not before the reservation is in effect: until then the other client could renew.
    plan.gate();
    plan.step(Action::ClearLease(ip), vec![Change::new(LEASE, holder.as_str(), Value::Null)]);
    Ok(())
}

/// The wanted fields that are not so yet.
fn changed(wanted: &Values, found: &Values) -> Values {
    let differing = wanted.iter().filter(|(field, text)| !field.same(found.text(*field), text));
    differing.map(|(field, text)| (field, text.to_owned())).collect()
}

/// The mark is written with whatever else is written, and is no reason to write.
fn add_owner(values: &mut Values, args: &Args, base: Option<&Reservation>) {
    let Some(owner) = &args.owner else { return };
    if base.is_none_or(|base| base.values.text(Field::Owner) != owner) {
        values.set(Field::Owner, owner.clone());
    }
}

pub(crate) fn path(field: Field) -> String {
    format!("{RESERVATION}.{}", field.name())
}

fn removal(one: &Reservation, observed: &Observed) -> Change {
    Change::new(format!("{RESERVATION}[{}]", one.identifier), describe(one, observed), Value::Null)
}

fn describe(one: &Reservation, observed: &Observed) -> Value {
    json!({
        "hw_address": one.identifier,
        "ip_address": one.values.text(Field::IpAddress),
        "hostname": one.values.text(Field::Hostname),
        "description": one.values.text(Field::Description),
        "owner": one.values.text(Field::Owner),
        "subnet": observed.cidr_of(&one.subnet),
        "uuid": one.uuid,
    })
}

/// `address 10.20.0.21 (web01)`, for messages.
fn named(one: &Reservation) -> String {
    match one.values.text(Field::Hostname) {
        "" => one.identifier.clone(),
        hostname => format!("{} ({hostname})", one.identifier),
    }
}

/// Others that hold the address, all of them stale: reservations of this very host under another identifier.
fn stale_holders<'a>(
    args: &Args,
    ip: Ipv4Addr,
    observed: &'a Observed,
) -> Result<Vec<&'a Reservation>, Failure> {
    let holders = observed
        .reservations
        .iter()
        .filter(|one| one.ip() == Some(ip) && one.host.as_ref() != Some(&args.host));
    holders
        .map(|one| match (is_of_this_host(args, one), args.prune_stale) {
            (true, true) => Ok(one),
            (of_this_host, _) => {
                let cure = if of_this_host {
                    "it looks like an earlier one of this host: `prune_stale: true` takes it over"
                } else {
                    "choose another address, or remove that reservation"
                };
                let msg = format!("{ip} is reserved for {}: {cure}", named(one));
                Err(Failure::refused(msg).with("holder", describe(one, observed)))
            }
        })
        .collect()
}

fn is_of_this_host(args: &Args, one: &Reservation) -> bool {
    match one.values.text(Field::Owner) {
        "" => {
            let hostname = args.wanted.text(Field::Hostname);
            one.host.is_some() && !hostname.is_empty() && has_hostname(one, hostname)
        }
        owner => one.host.is_some() && args.owner.as_deref() == Some(owner),
    }
}

/// Others may have stored the name with a domain.
fn has_hostname(one: &Reservation, hostname: &str) -> bool {
    let label = one.values.text(Field::Hostname).split('.').next().unwrap_or_default();
    Field::Hostname.same(hostname, label)
}

fn refuse_hostname_of_another(
    args: &Args,
    subnet: &Subnet,
    observed: &Observed,
    stale: &[&Reservation],
) -> Result<(), Failure> {
    let hostname = args.wanted.text(Field::Hostname);
    if hostname.is_empty() {
        return Ok(());
    }
    let holder = observed.reservations.iter().find(|one| {
        one.subnet == subnet.key
            && one.host.as_ref() != Some(&args.host)
            && has_hostname(one, hostname)
            && !stale.contains(one)
    });
    let Some(holder) = holder else { return Ok(()) };
    let msg = format!(
        "the hostname {hostname} is held by the reservation of {} for {} in {}: give this host another name, or remove \
         that reservation",
        holder.values.text(Field::IpAddress),
        holder.identifier,
        subnet.cidr
    );
    Err(Failure::refused(msg).with("holder", describe(holder, observed)))
}

fn refuse_unfit_address(ip: Ipv4Addr, subnet: &Subnet) -> Result<(), Failure> {
    let cidr = subnet.cidr;
    let why = if !cidr.contains(ip) {
        format!("is not in the subnet {cidr}")
    } else if cidr.is_network_address(ip) {
        format!("is the network address of {cidr}")
    } else if cidr.is_broadcast_address(ip) {
        format!("is the broadcast address of {cidr}")
    } else if subnet.routers.contains(&ip) {
        format!("is the router of {cidr}")
    } else if let Some((first, last)) =
        subnet.forbidden.iter().find(|(first, last)| (*first..=*last).contains(&ip))
    {
        format!(
            "is in the pool {first}-{last}, where this Kea ignores reservations (`reservations-out-of-pool`): choose one \
             outside"
        )
    } else {
        return Ok(());
    };
    Err(Failure::refused(format!("{ip} {why}")).with("option", "ip"))
}

fn refuse_lease_of_another(
    args: &Args,
    ip: Ipv4Addr,
    observed: &Observed,
    stale: &[&Reservation],
    plan: &mut Plan<Action>,
) -> Result<(), Failure> {
    let Lease::Other(holder) = &observed.lease else { return Ok(()) };
    if args.clear_lease {
        return Ok(());
    }
    let is_stale = |one: &&Reservation| one.host.as_ref().is_some_and(|host| host.to_string() == *holder);
    if stale.iter().any(is_stale) {
        plan.warn(format!(
            "{ip} is still leased to {holder}, the stale holder: {} gets an address of the pool until that lease ends; \
             `clear_lease: true` forgets it",
            args.host
        ));
        return Ok(());
    }
    let msg = format!(
        "{ip} is leased to {holder} now, so {} would get an address of the pool: stop that client, or forget its lease \
         with `clear_lease: true`",
        args.host
    );
    Err(Failure::refused(msg).with("holder", json!({"hw_address": holder, "ip_address": ip.to_string()})))
}

fn refuse_lacking(values: &Values, observed: &Observed) -> Result<(), Failure> {
    match observed.lacking.iter().find(|(field, _)| !values.text(*field).is_empty()) {
        None => Ok(()),
        Some((field, since)) => Err(Failure::refused(format!(
            "this OPNsense drops `{}` of a reservation without a word: that field needs {since}. Update the firewall, or \
             leave the option out",
            field.name()
        ))
        .with("field", path(*field))
        .with("needs", *since)),
    }
}

fn warn_of_a_boot_that_may_fail(
    args: &Args,
    subnet: &Subnet,
    base: Option<&Reservation>,
    plan: &mut Plan<Action>,
) {
    let found = base.map(|one| one.values.clone()).unwrap_or_default();
    let result = found.overlaid(&args.wanted);
    let boots =
        !result.text(Field::BootFileName).is_empty() && !args.wanted.text(Field::BootFileName).is_empty();
    if boots && result.text(Field::NextServer).is_empty() && subnet.next_server.is_none() {
        plan.warn(format!(
            "neither the reservation nor the subnet {} names a boot server (`next_server`): UEFI clients ask the DHCP \
             server itself for the boot file",
            subnet.cidr
        ));
    }
    let file = args.wanted.text(Field::BootFileName);
    if args.backend == Backend::Opnsense && file.contains('/') && file.to_ascii_lowercase().contains("shim") {
        plan.warn(format!(
            "OPNsense sends the boot file as option 67 only, and shim looks for its second file in the directory of the \
             BOOTP field: it will ask for it in the root of the TFTP server, not beside {file}"
        ));
    }
}

/// What `netboot` asserts.
fn refuse_unbootable(
    args: &Args,
    subnet: &Subnet,
    base: Option<&Reservation>,
    observed: &Observed,
) -> Result<(), Failure> {
    let Some(architecture) = args.netboot else { return Ok(()) };
    let result = base.map(|one| one.values.clone()).unwrap_or_default().overlaid(&args.wanted);
    let class_has_server = observed.classes.iter().any(|class| class.next_server.is_some());
    let class_has_file = observed.classes.iter().any(|class| !class.boot_file_name.is_empty());
    let file = match result.text(Field::BootFileName) {
        "" => &subnet.boot_file_name,
        own => own,
    };
    let (option, why) = if result.text(Field::NextServer).is_empty()
        && subnet.next_server.is_none()
        && !class_has_server
    {
        let why = format!(
            "neither the reservation nor the subnet {} names a boot server, so a UEFI client would ask the DHCP server \
             itself: give `next_server`",
            subnet.cidr
        );
        ("next_server", why)
    } else if file.is_empty() && !class_has_file {
        (
            "boot_file",
            format!(
                "neither the reservation nor the subnet {} names a boot file: give `boot_file`",
                subnet.cidr
            ),
        )
    } else if let Some(objection) = architecture.objection(file).filter(|_| !file.is_empty()) {
        ("boot_file", format!("`{file}` {objection}"))
    } else if subnet.match_client_id {
        let why = format!(
            "in the subnet {} a client identifier outranks the MAC address (`match-client-id`): firmware and operating \
             system send different ones, and the second of them gets an address of the pool. Switch it off for the subnet{}",
            subnet.cidr,
            if args.backend == Backend::Opnsense { " (Match client-id)" } else { "" }
        );
        ("netboot", why)
    } else {
        return Ok(());
    };
    Err(Failure::refused(format!("{} would not boot from the network: {why}", args.host))
        .with("option", option))
}

/// Plain Kea only; on OPNsense every reservation has a UUID to be reached by.
fn refuse_global<'a>(mut written: impl Iterator<Item = &'a Reservation>) -> Result<(), Failure> {
    match written.find(|one| one.subnet.is_empty() && one.uuid.is_empty()) {
        None => Ok(()),
        Some(one) => Err(Failure::refused(format!(
            "the reservation of {} stands outside every subnet of Kea's configuration: change it there by hand",
            named(one)
        ))),
    }
}

fn no_subnet(args: &Args, observed: &Observed) -> Failure {
    let known: Vec<String> = observed.subnets.iter().map(describe_subnet).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
    let what = match (&args.subnet, args.ip) {
        (Some(SubnetName::Cidr(cidr)), _) => format!("no subnet {cidr}"),
        (Some(SubnetName::Key(key)), _) => format!("no subnet with the key {key}"),
        (None, Some(ip)) => format!("no subnet that holds {ip}"),
        (None, None) => "no subnet".to_owned(),
    };
    Failure::refused(format!("{what}; subnets of the server: {known}")).with("option", "subnet")
}

/// Kea's short subnet-id is worth showing, OPNsense's UUID is not.
fn describe_subnet(subnet: &Subnet) -> String {
    let is_id = subnet.key.bytes().all(|byte| byte.is_ascii_digit());
    if is_id { format!("{} (id {})", subnet.cidr, subnet.key) } else { subnet.cidr.to_string() }
}

#[cfg(test)]
mod tests;
