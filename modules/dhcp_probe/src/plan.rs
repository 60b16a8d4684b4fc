//! Pure: what the offers say, and whether that is what was expected.

use ansible_module::{ErrorCode, Failure};
use dhcp_client::Offer;
use net_types::MacAddress;
use serde_json::{Map, Value, json};

use crate::args::Args;

const OFFER_MISMATCH: ErrorCode = ErrorCode::custom("offer_mismatch");

/// Every offer must say what is expected.
pub(crate) fn judge(args: &Args, offers: &[Offer]) -> Result<(), Failure> {
    let mut mismatches = Vec::new();
    for offer in offers {
        let shown = shown(offer);
        for (field, expected) in &args.expect {
            if shown[field].as_str() != Some(expected) {
                mismatches.push((offer, *field, expected, shown[field].clone()));
            }
        }
    }
    let Some((_, field, expected, found)) = mismatches.first() else { return Ok(()) };
    let sentences: Vec<String> = mismatches
        .iter()
        .map(|(offer, field, expected, found)| {
            format!("offer of {offer}: `{field}` is {found}, expected \"{expected}\"")
        })
        .collect();
    let mut failure = Failure::new(
        OFFER_MISMATCH,
        format!("{} on `{}`: {}", args.discover.mac, args.interface, sentences.join("; ")),
    )
    .with("field", *field)
    .with("expected", expected.as_str())
    .with("found", found.clone());
    failure.details.extend(report(offers));
    Err(failure)
}

pub(crate) fn report(offers: &[Offer]) -> Map<String, Value> {
    let offers: Vec<Value> = offers.iter().map(shown).collect();
    let mut report = Map::new();
    report.insert("offer".into(), offers.first().cloned().unwrap_or_default());
    report.insert("offers".into(), offers.into());
    report
}

fn shown(offer: &Offer) -> Value {
    let text = |code| offer.text(code).unwrap_or_default();
    let addresses = |code| {
        offer.addresses(code).iter().map(|address| Value::from(address.to_string())).collect::<Vec<_>>()
    };
    let options: Map<String, Value> =
        offer.options.iter().map(|(code, value)| (code.to_string(), hex(value).into())).collect();
    json!({
        "yiaddr": offer.yiaddr.to_string(),
        "siaddr": offer.siaddr.to_string(),
        "giaddr": offer.giaddr.to_string(),
        "file": offer.file,
        "sname": offer.sname,
        "server_id": offer.server_id.map(|id| id.to_string()).unwrap_or_default(),
        "server_mac": MacAddress::new(offer.server_mac).to_string(),
        "lease_time": offer.lease_time(),
        "subnet_mask": addresses(1).into_iter().next(),
        "routers": addresses(3),
        "domain_name_servers": addresses(6),
        "host_name": text(12),
        "domain_name": text(15),
        "tftp_server_name": text(66),
        "boot_file_name": text(67),
        "options": options,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
