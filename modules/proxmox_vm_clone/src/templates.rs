//! Which template a task means. Pure.

use std::cmp::Ordering;

use ansible_module::Failure;
use proxmox_api::{Guest, GuestKind};
use proxmox_vm::described;

use crate::args::Template;

/// The template among all guests that the task means.
pub(crate) fn choose<'a>(
    guests: &'a [Guest],
    wanted: &Template,
    node: Option<&str>,
) -> Result<&'a Guest, Failure> {
    match wanted {
        Template::Vmid(vmid) => match guests.iter().find(|guest| guest.vmid == *vmid) {
            Some(guest) if guest.template && guest.kind == GuestKind::Qemu => Ok(guest),
            Some(guest) => Err(Failure::refused(format!("{} is not a VM template", described(guest)))
                .with("template", described(guest))),
            None => Err(Failure::not_found(format!(
                "there is no template with VMID {vmid} that this user may see. {}",
                those_there(guests)
            ))),
        },
        Template::Name(name) => {
            let named: Vec<&Guest> = templates(guests).filter(|guest| name_of(guest) == name).collect();
            if named.is_empty() {
                return Err(no_template(guests, name));
            }
            one_of(named, node)
        }
        Template::Prefix(prefix) => {
            let rest = |guest: &Guest| name_of(guest).strip_prefix(prefix.as_str()).map(str::to_owned);
            let mut candidates: Vec<(String, &Guest)> = templates(guests)
                .filter_map(|guest| Some((rest(guest)?, guest)))
                .filter(|(rest, _)| rest.starts_with(|c: char| c.is_ascii_digit()))
                .collect();
            candidates.sort_by(|(a, _), (b, _)| natural(b, a));
            let Some((newest, _)) = candidates.first().cloned() else {
                return Err(Failure::not_found(format!(
                    "no template's name is `{prefix}` with a digit behind it. {}",
                    those_there(guests)
                )));
            };
            let newest = candidates.iter().filter(|(rest, _)| natural(rest, &newest) == Ordering::Equal);
            one_of(newest.map(|(_, guest)| *guest).collect(), node)
        }
    }
}

fn templates(guests: &[Guest]) -> impl Iterator<Item = &Guest> {
    guests.iter().filter(|guest| guest.template && guest.kind == GuestKind::Qemu)
}

fn name_of(guest: &Guest) -> &str {
    guest.name.as_deref().unwrap_or_default()
}

/// Of several equally good templates, the only one on the wanted node.
fn one_of<'a>(candidates: Vec<&'a Guest>, node: Option<&str>) -> Result<&'a Guest, Failure> {
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let local: Vec<&Guest> =
        candidates.iter().copied().filter(|guest| Some(guest.node.as_str()) == node).collect();
    if let [only] = local[..] {
        return Ok(only);
    }
    let list = candidates.iter().map(|guest| described(guest)).collect::<Vec<_>>();
    Err(Failure::refused(format!(
        "several templates fit equally well: {}. Name one with template_vmid, or the node that holds it with node",
        list.join(", ")
    ))
    .with("candidates", list))
}

fn no_template(guests: &[Guest], name: &str) -> Failure {
    let plain = guests.iter().find(|guest| name_of(guest) == name);
    let msg = match plain {
        Some(guest) => format!("{} is not a template", described(guest)),
        None => {
            format!("there is no template named `{name}` that this user may see. {}", those_there(guests))
        }
    };
    Failure::not_found(msg)
}

fn those_there(guests: &[Guest]) -> String {
    let mut list: Vec<String> = templates(guests).map(described).collect();
    list.sort();
    match list.len() {
        0 => "There is no template at all (does the user have VM.Audit on it?)".to_owned(),
        _ => format!("There are: {}", list.join(", ")),
    }
}

/// Digits compare as numbers, everything else as text: `9` < `42`, `42-1.9` < `42-1.10`.
fn natural(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(pieces(b))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece<'a> {
    Text(&'a str),
    /// By length, then by digits: no number is too large.
    Number(usize, &'a str),
}

fn pieces(mut text: &str) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        let end = text.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(text.len());
        let (piece, rest) = text.split_at(end);
        text = rest;
        let digits = piece.trim_start_matches('0');
        match piece {
            "" => None,
            _ if is_number => Some(Piece::Number(digits.len(), digits)),
            _ => Some(Piece::Text(piece)),
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guest(vmid: u32, name: &str, node: &str) -> Guest {
        Guest {
            vmid: net_types::Vmid::new(vmid).unwrap(),
            kind: GuestKind::Qemu,
            node: node.into(),
            name: Some(name.into()),
            template: true,
            lock: None,
            status: None,
            tags: Vec::new(),
        }
    }

    fn chosen(guests: &[Guest], wanted: Template, node: Option<&str>) -> Result<u32, String> {
        choose(guests, &wanted, node).map(|guest| guest.vmid.get()).map_err(|failure| failure.to_string())
    }

    fn prefix(text: &str) -> Template {
        Template::Prefix(text.into())
    }

    #[test]
    fn the_newest_of_a_prefix_wins_in_natural_order() {
        let guests = [
            guest(8001, "fedora-server-9", "pve1"),
            guest(8002, "fedora-server-42", "pve1"),
            guest(8003, "fedora-server-rawhide", "pve1"),
            guest(8004, "fedora-server-42-1.9", "pve1"),
            guest(8005, "fedora-server-42-1.10", "pve1"),
            guest(8006, "fedora-workstation-99", "pve1"),
        ];
        assert_eq!(chosen(&guests, prefix("fedora-server-"), None), Ok(8005));
        assert_eq!(chosen(&guests[..3], prefix("fedora-server-"), None), Ok(8002));
    }

    #[test]
    fn a_running_vm_or_a_container_of_that_name_does_not_compete() {
        let mut guests = [guest(8001, "f-1", "pve1"), guest(8002, "f-2", "pve1"), guest(8003, "f-3", "pve1")];
        guests[1].template = false;
        guests[2].kind = GuestKind::Container;
        assert_eq!(chosen(&guests, prefix("f-"), None), Ok(8001));
    }

    #[test]
    fn two_equally_new_ones_are_refused_with_both_named() {
        let guests = [guest(8001, "f-42", "pve1"), guest(8002, "f-042", "pve1")];
        let refusal = chosen(&guests, prefix("f-"), None).unwrap_err();
        assert!(refusal.contains("f-42 (VMID 8001 on pve1)"), "{refusal}");
        assert!(refusal.contains("f-042 (VMID 8002 on pve1)"), "{refusal}");
    }

    #[test]
    fn of_one_name_on_several_nodes_the_wanted_node_counts() {
        let guests = [guest(8001, "f-42", "pve1"), guest(8002, "f-42", "pve2")];
        for wanted in [prefix("f-"), Template::Name("f-42".into())] {
            assert_eq!(chosen(&guests, wanted.clone(), Some("pve2")), Ok(8002));
            assert!(chosen(&guests, wanted.clone(), None).unwrap_err().contains("several templates"));
            assert!(chosen(&guests, wanted, Some("pve3")).unwrap_err().contains("several templates"));
        }
    }

    #[test]
    fn what_is_there_is_told_when_nothing_fits() {
        let mut guests = [guest(8001, "debian-13", "pve1"), guest(8002, "web", "pve1")];
        guests[1].template = false;
        let refusal = chosen(&guests, Template::Name("fedora".into()), None).unwrap_err();
        assert!(refusal.contains("There are: debian-13 (VMID 8001 on pve1)"), "{refusal}");
        let refusal = chosen(&guests, Template::Name("web".into()), None).unwrap_err();
        assert!(refusal.contains("web (VMID 8002 on pve1) is not a template"), "{refusal}");
        let refusal = chosen(&guests, Template::Vmid(net_types::Vmid::new(8002).unwrap()), None).unwrap_err();
        assert!(refusal.contains("is not a VM template"), "{refusal}");
        assert!(chosen(&[], prefix("f-"), None).unwrap_err().contains("no template at all"));
    }

    proptest! {
        #[test]
        fn numbers_order_as_numbers(a: u32, b: u32) {
            prop_assert_eq!(natural(&a.to_string(), &b.to_string()), a.cmp(&b));
        }

        #[test]
        fn the_order_is_a_total_one(a in "[a-c0-3.-]{0,6}", b in "[a-c0-3.-]{0,6}", c in "[a-c0-3.-]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
                prop_assert!(natural(&a, &c).is_le());
            }
        }
    }
}
