//! Pure: what was asked and what the node says -> a refusal, or the writes.

use ansible_module::{Change, Failure, Plan};
use pve_cluster::{ConfNode, Node, own_proofs};
use pvecm_options::{Fault, node_faults, refusal, sentence};
use serde_json::Value;

use crate::args::Args;

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    /// The end of a creation that was killed after it wrote corosync.conf.
    Finish,
}

pub(crate) fn plan(args: &Args, node: &Node) -> Result<Plan<Action>, Failure> {
    if node.conf.is_some() { existing(args, node) } else { new(args, node) }
}

fn new(args: &Args, node: &Node) -> Result<Plan<Action>, Failure> {
    let mut faults = node_faults(node, &args.links);
    if let Some(conf) = &node.local_conf {
        let name = conf.cluster_name().unwrap_or("(no name)");
        let why = format!("/etc/corosync/corosync.conf is left over from the cluster `{name}`");
        faults.push(Fault::new("leftover_config", why));
    }
    if let Some(process) = &node.joining {
        faults.push(Fault::new("joining", format!("a join is running: {process}")));
    }
    if !faults.is_empty() {
        return Err(refusal(
            &format!("`{}` cannot found the cluster `{}`", node.name, args.cluster_name),
            &faults,
        ));
    }
    let mut plan = Plan::new();
    if node.has_authkey {
        plan.warn("/etc/corosync/authkey is left over from another cluster; pvecm keeps it as the key of the new one");
    }
    let mut changes = vec![Change::new("cluster_name", Value::Null, args.cluster_name.as_str())];
    changes.push(Change::new("votes", Value::Null, args.votes.unwrap_or(1)));
    changes.extend(args.nodeid.map(|nodeid| Change::new("nodeid", Value::Null, nodeid)));
    changes.extend(
        args.links.iter().map(|(number, link)| {
            Change::new(format!("link{number}"), Value::Null, link.address.to_string())
        }),
    );
    plan.step(Action::Create, changes);
    Ok(plan)
}

fn existing(args: &Args, node: &Node) -> Result<Plan<Action>, Failure> {
    let mut asked: Vec<(String, Value)> = vec![("cluster_name".into(), args.cluster_name.as_str().into())];
    asked.extend(args.votes.map(|votes| ("votes".into(), votes.into())));
    asked.extend(args.nodeid.map(|nodeid| ("nodeid".into(), nodeid.into())));
    if !args.links.is_empty() {
        let numbers = (0..=pve_cluster::MAX_LINK).map(|number| {
            let asked = args.links.get(&number).map(|link| link.address.to_string());
            (format!("link{number}"), Value::from(asked))
        });
        asked.extend(numbers);
    }
    let differences: Vec<String> = asked
        .iter()
        .filter_map(|(field, asked)| {
            let found = found(field, node);
            (found != *asked).then(|| format!("{field}: asked for {asked}, it has {found}"))
        })
        .collect();
    if !differences.is_empty() {
        let name = found("cluster_name", node);
        return Err(Failure::refused(format!(
            "`{}` is in the cluster {name} already, which is not the one asked for; nothing was changed. {}",
            node.name,
            differences.join("; ")
        )));
    }
    let missing = own_proofs(node, &args.wanted());
    let mut plan = Plan::new();
    let alone = node.conf.as_ref().and_then(|conf| conf.nodes().ok()).is_some_and(|nodes| nodes.len() == 1);
    if !missing.is_empty() && alone {
        plan.step(Action::Finish, vec![Change::new("proved", false, true)]);
    } else if !missing.is_empty() {
        plan.warn(format!("the cluster is there and not in order: {}", sentence(&missing)));
    }
    Ok(plan)
}

/// What the node has in the place of an argument.
pub(crate) fn found(field: &str, node: &Node) -> Value {
    let own = own(node);
    match field {
        "cluster_name" => node.conf.as_ref().and_then(|conf| conf.cluster_name()).into(),
        "votes" => own.map(|own| own.votes).into(),
        "nodeid" => own.map(|own| own.nodeid).into(),
        "proved" => node.quorate().into(),
        link => {
            let number = link.strip_prefix("link").and_then(|number| number.parse::<u8>().ok());
            number.zip(own).and_then(|(number, own)| own.links.get(&number).cloned()).into()
        }
    }
}

fn own(node: &Node) -> Option<ConfNode> {
    node.conf.as_ref()?.nodes().ok()?.into_iter().find(|own| own.name == node.name)
}
