//! From a path to what it calls. Source: opnsense/core library/OPNsense/Mvc/Router.php, Dispatcher.php.

use super::model::Table;
use super::release::Release;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Search,
    Get,
    Add,
    Set,
    Del,
    Toggle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Daemon {
    Kea,
    Unbound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    Reconfigure,
    Status,
    Start,
    Stop,
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    GetSettings(Daemon),
    SetSettings(Daemon),
    Table(Verb, Table),
    Service(Job, Daemon),
    SearchLeases,
    DelLease,
    /// Unbound's settings controller takes any name and answers with nothing.
    Nothing,
}

/// What a path calls, and with which parameters; `None` is a 404.
pub(super) fn resolve(path: &str, release: Release) -> Option<(Endpoint, Vec<&str>)> {
    let mut parts = path.strip_prefix("/api/")?.split('/').filter(|part| !part.is_empty());
    let (module, controller) = (parts.next()?, parts.next()?);
    let action = parts.next()?.replace('_', "").to_lowercase();
    let parameters: Vec<&str> = parts.collect();
    let endpoint = match (module.to_lowercase().as_str(), camel(controller).as_str()) {
        ("kea", "Dhcpv4") => settings(Daemon::Kea, &action).or_else(|| kea_table(&action)),
        ("kea", "Leases4") => leases(&action, release),
        ("kea", "Service") => service(Daemon::Kea, &action),
        ("unbound", "Settings") => {
            settings(Daemon::Unbound, &action).or_else(|| unbound_table(&action)).or(Some(Endpoint::Nothing))
        }
        ("unbound", "Service") => service(Daemon::Unbound, &action),
        _ => None,
    }?;
    let needs_parameter = matches!(endpoint, Endpoint::Table(Verb::Set | Verb::Del | Verb::Toggle, _));
    (!needs_parameter || !parameters.is_empty()).then_some((endpoint, parameters))
}

fn camel(text: &str) -> String {
    let upper = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
            .unwrap_or_default()
    };
    text.split('_').map(upper).collect()
}

fn settings(daemon: Daemon, action: &str) -> Option<Endpoint> {
    match action {
        "get" => Some(Endpoint::GetSettings(daemon)),
        "set" => Some(Endpoint::SetSettings(daemon)),
        _ => None,
    }
}

fn kea_table(action: &str) -> Option<Endpoint> {
    let (verb, noun) = verb(action)?;
    match (verb, noun) {
        (Verb::Toggle, _) => None,
        (_, "subnet") => Some(Endpoint::Table(verb, Table::Subnets)),
        (_, "reservation") => Some(Endpoint::Table(verb, Table::Reservations)),
        _ => None,
    }
}

fn unbound_table(action: &str) -> Option<Endpoint> {
    let (verb, noun) = verb(action)?;
    match noun {
        "hostoverride" => Some(Endpoint::Table(verb, Table::Hosts)),
        "hostalias" => Some(Endpoint::Table(verb, Table::Aliases)),
        _ => None,
    }
}

fn verb(action: &str) -> Option<(Verb, &str)> {
    const VERBS: [(&str, Verb); 6] = [
        ("search", Verb::Search),
        ("get", Verb::Get),
        ("add", Verb::Add),
        ("set", Verb::Set),
        ("del", Verb::Del),
        ("toggle", Verb::Toggle),
    ];
    VERBS.into_iter().find_map(|(name, verb)| Some((verb, action.strip_prefix(name)?)))
}

fn leases(action: &str, release: Release) -> Option<Endpoint> {
    match action {
        "search" => Some(Endpoint::SearchLeases),
        "dellease" if release >= Release::V26_1_6 => Some(Endpoint::DelLease),
        _ => None,
    }
}

fn service(daemon: Daemon, action: &str) -> Option<Endpoint> {
    let job = match action {
        "reconfigure" => Job::Reconfigure,
        "status" => Job::Status,
        "start" => Job::Start,
        "stop" => Job::Stop,
        "restart" => Job::Restart,
        _ => return None,
    };
    Some(Endpoint::Service(job, daemon))
}

impl Endpoint {
    /// Whether a POST to it can change the firewall.
    pub(super) fn writes(self) -> bool {
        match self {
            Self::SetSettings(_) | Self::DelLease => true,
            Self::Table(verb, _) => !matches!(verb, Verb::Search | Verb::Get),
            Self::Service(job, _) => job != Job::Status,
            Self::GetSettings(_) | Self::SearchLeases | Self::Nothing => false,
        }
    }
}
