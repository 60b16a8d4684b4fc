//! Pure: may this server be booted, and by which commands.

use ansible_module::{Change, Failure, Plan};
use ipmi::{BootDevice, Ipmitool, Power};
use serde_json::Value;

use crate::Seen;
use crate::args::Args;

const DEVICE: &str = "boot_flags.device";
const VALID: &str = "boot_flags.valid";
const EFI: &str = "boot_flags.efi";
const PERSISTENT: &str = "boot_flags.persistent";
const POWER: &str = "power";

/// One write, with all that it takes to say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    SetFlags { device: BootDevice, efi: bool },
    PowerOn,
}

pub(crate) fn plan(args: &Args, name: &str, seen: &Seen) -> Result<Plan<Action>, Failure> {
    if seen.power == Power::On {
        let msg = format!(
            "{name}: refused: the server is already on, and a running server is never reset: shut it down first"
        );
        return Err(Failure::refused(msg).with("power", "on"));
    }
    let mut plan = Plan::new();
    if !args.power_on {
        plan.warn(format!(
            "{name}: many BMCs forget the boot device after 60 seconds unless the server is switched on by then"
        ));
    }
    let (device, efi) = (args.target.device(), args.efi);
    // Before a start it is set in any case: what is there may be about to be forgotten.
    if args.power_on || !seen.flags.is_once(device, efi) {
        let after = [
            (DEVICE, Value::from(device.to_string())),
            (VALID, true.into()),
            (EFI, efi.into()),
            (PERSISTENT, false.into()),
        ];
        let changes = after.into_iter().map(|(field, after)| Change::new(field, value(field, seen), after));
        plan.step(Action::SetFlags { device, efi }, changes.collect());
    }
    // The server is switched on only when the flags were seen to be there.
    plan.gate();
    if args.power_on {
        plan.step(Action::PowerOn, vec![Change::new(POWER, "off", "on")]);
    }
    Ok(plan)
}

/// What is seen of a field.
pub(crate) fn value(field: &str, seen: &Seen) -> Value {
    match field {
        DEVICE => seen.flags.device().into(),
        VALID => seen.flags.valid.into(),
        EFI => seen.flags.efi.into(),
        PERSISTENT => seen.flags.persistent.into(),
        _ => seen.power.to_string().into(),
    }
}

/// The commands of a write, in order.
pub(crate) fn commands(action: &Action) -> Vec<String> {
    match action {
        Action::SetFlags { device, efi } => Ipmitool::boot_once_commands(*device, *efi),
        Action::PowerOn => vec![Ipmitool::power_on_command().to_owned()],
    }
}
