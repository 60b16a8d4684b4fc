//! Pure: from what is asked and what was seen to a refusal or the writes.

use std::net::Ipv4Addr;

use ansible_module::{Change, Failure, Plan};
use serde_json::{Value, json};

use crate::args::{Args, Backend, State, SubnetName};
use crate::observe::{Lease, Observed, Reservation, Subnet};
use crate::values::{Field, Values};

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
    /// Reservations go, then one comes or changes.
    Store {
        remove: Vec<Reservation>,
        put: Option<Put>,
    },
    /// OPNsense: Kea reads its configuration. Plain Kea: it writes it.
    Apply,
    ClearLease(Ipv4Addr),
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
        warn_of_no_boot_server(args, subnet, base, plan);
    }
    refuse_global(own.iter().chain(&stale).copied())?;
    let superfluous =
        own.iter().skip(1).chain(&stale).copied().filter(|one| base.is_none_or(|base| base != *one));
    store(args, observed, &subnet.key, base, superfluous.cloned().collect(), values, plan);
    Ok(())
}

fn store(
    args: &Args,
    observed: &Observed,
    subnet: &str,
    base: Option<&Reservation>,
    remove: Vec<Reservation>,
    mut values: Values,
    plan: &mut Plan<Action>,
) {
    let mut changes: Vec<Change> = remove.iter().map(|one| removal(one, observed)).collect();
    let mut put = None;
    if !values.is_empty() {
        add_owner(&mut values, args, base);
        changes.extend(values.iter().map(|(field, text)| {
            let before = base.map_or(Value::Null, |base| base.values.text(field).into());
            Change::new(path(field), before, text)
        }));
        put = Some(Put { subnet: subnet.to_owned(), replaces: base.cloned(), values });
    }
    if !changes.is_empty() {
        plan.step(Action::Store { remove, put }, changes);
    }
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
            args.mac,
            cidrs.join(", ")
        )));
    }
    if own.is_empty() {
        return Ok(());
    }
    refuse_global(own.iter().copied())?;
    let changes = own.iter().map(|one| removal(one, observed)).collect();
    let remove = own.into_iter().cloned().collect();
    plan.step(Action::Store { remove, put: None }, changes);
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

/// Others that hold the address, all of them stale: reservations of this very host under another MAC address.
fn stale_holders<'a>(
    args: &Args,
    ip: Ipv4Addr,
    observed: &'a Observed,
) -> Result<Vec<&'a Reservation>, Failure> {
    let holders =
        observed.reservations.iter().filter(|one| one.ip() == Some(ip) && one.mac != Some(args.mac));
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
            one.mac.is_some() && !hostname.is_empty() && has_hostname(one, hostname)
        }
        owner => one.mac.is_some() && args.owner.as_deref() == Some(owner),
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
            && one.mac != Some(args.mac)
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
    let is_stale = |one: &&Reservation| one.mac.is_some_and(|mac| mac.to_string() == *holder);
    if stale.iter().any(is_stale) {
        plan.warn(format!(
            "{ip} is still leased to {holder}, the stale holder: {} gets an address of the pool until that lease ends; \
             `clear_lease: true` forgets it",
            args.mac
        ));
        return Ok(());
    }
    let msg = format!(
        "{ip} is leased to {holder} now, so {} would get an address of the pool: stop that client, or forget its lease \
         with `clear_lease: true`",
        args.mac
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

fn warn_of_no_boot_server(args: &Args, subnet: &Subnet, base: Option<&Reservation>, plan: &mut Plan<Action>) {
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
