//! The result's own keys.

use netboot::chain::Chain;
use serde_json::{Map, Value, json};

use crate::args::Args;

pub(crate) fn report(args: &Args, chain: &Chain) -> Map<String, Value> {
    let report = json!({
        "state": chain.state,
        "symptom": chain.symptom,
        "cure": chain.state.cure(),
        "served": chain.served(),
        "lease": chain.lease,
        "addresses": chain.addresses,
        "rounds": chain.rounds,
        "since": args.since,
    });
    Map::from_iter([("netboot".to_owned(), report)])
}
