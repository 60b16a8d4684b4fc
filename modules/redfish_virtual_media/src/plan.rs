//! Pure: which slot, and what is to be done with it.

use ansible_module::{Change, Failure, Plan, Proof};
use redfish_api::{Slot, choose_slot};
use serde_json::{Value, json};

use crate::args::{Args, State};

const MANUAL: &str = "use manual media: the BMC's own console, or a CD or USB stick at the server";

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Eject(Slot),
    Insert(Slot, String),
}

pub(crate) fn plan(args: &Args, name: &str, slots: &[Slot]) -> Result<Plan<Action>, Failure> {
    let refused = |why: String| {
        let states: Vec<Value> = slots.iter().map(|slot| json!(slot.state())).collect();
        Failure::refused(format!("{name}: refused: {why}")).with("virtual_media", states)
    };
    let mut plan = Plan::new();
    match (args.state, &args.image) {
        (State::Inserted, Some(image)) => {
            let chosen = choose_slot(slots.to_vec(), args.slot.as_deref(), image);
            let slot = chosen.map_err(|reason| refused(format!("{}; {MANUAL}", reason.0)))?;
            if slot.holds(image) {
                return Ok(plan);
            }
            if slot.state().inserted {
                eject(&mut plan, &slot).map_err(refused)?;
                plan.gate();
            }
            let change = Change::new(field(&slot, "Image"), slot.state().image, image.clone());
            plan.step(Action::Insert(slot, image.clone()), vec![change]);
        }
        _ => {
            for slot in to_eject(args, slots).map_err(refused)? {
                eject(&mut plan, slot).map_err(refused)?;
            }
        }
    }
    Ok(plan)
}

/// The slots that hold what is to be ejected: the one named, those with the image, else the only CD that is inserted.
fn to_eject<'a>(args: &Args, slots: &'a [Slot]) -> Result<Vec<&'a Slot>, String> {
    if let Some(id) = &args.slot
        && !slots.iter().any(|slot| slot.state().id == *id)
    {
        let there: Vec<String> = slots.iter().map(|slot| slot.state().id).collect();
        return Err(format!("there is no slot {id}; there are: {}", there.join(", ")));
    }
    let is_meant = |slot: &&Slot| {
        let state = slot.state();
        state.inserted
            && args.slot.as_ref().is_none_or(|id| state.id == *id)
            && args.image.as_ref().is_none_or(|image| slot.holds(image))
            && (args.slot.is_some() || slot.is_cd())
    };
    let found: Vec<&Slot> = slots.iter().filter(is_meant).collect();
    if found.len() > 1 && args.image.is_none() {
        let ids: Vec<String> = found.iter().map(|slot| slot.state().id).collect();
        return Err(format!("several slots hold something ({}): give `slot` or `image`", ids.join(", ")));
    }
    Ok(found)
}

fn eject(plan: &mut Plan<Action>, slot: &Slot) -> Result<(), String> {
    if slot.eject_call().is_none() {
        return Err(format!("slot {} offers neither EjectMedia nor PATCH; {MANUAL}", slot.state().id));
    }
    plan.step(Action::Eject(slot.clone()), vec![Change::new(field(slot, "Inserted"), true, false)]);
    Ok(())
}

fn field(slot: &Slot, property: &str) -> String {
    format!("VirtualMedia/{}.{property}", slot.state().id)
}

/// The calls of a plan, in order.
pub(crate) fn calls(plan: &Plan<Action>) -> Vec<Value> {
    let of = |action: &Action| match action {
        Action::Eject(slot) => slot.eject_call(),
        Action::Insert(slot, image) => slot.insert_call(image),
    };
    plan.steps().filter_map(|step| of(&step.action)).map(|call| json!(call)).collect()
}

pub(crate) fn proof(change: &Change, slots: &[Slot]) -> Proof {
    let is_it = |property: &str| slots.iter().find(|slot| field(slot, property) == change.field);
    if let Some(slot) = is_it("Inserted") {
        return Proof::equal(&change.after, slot.state().inserted);
    }
    match (is_it("Image"), change.after.as_str()) {
        (Some(slot), Some(image)) if slot.holds(image) => Proof::Held,
        (Some(slot), _) => Proof::Mismatch { found: json!(slot.state().image) },
        (None, _) => Proof::Mismatch { found: Value::Null },
    }
}
