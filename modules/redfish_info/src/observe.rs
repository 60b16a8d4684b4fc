//! Every read.

use ansible_module::{Failure, Run};
use api_options::{RedfishOptions, redfish_failure, system_value};
use redfish_api::{Bmc, Error, System, choose};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) fn systems(bmc: &Bmc, options: &RedfishOptions, run: &Run) -> Result<Vec<Value>, Failure> {
    let read = || {
        let mut systems = bmc.systems(&run.deadline)?;
        if let Some(id) = options.system_id() {
            systems = vec![choose(systems, Some(id), None)?];
        }
        systems.iter().map(|system| whole(bmc, system, run)).collect::<Result<_, Error>>()
    };
    read().map_err(|error| redfish_failure(error).while_doing(options.address()))
}

fn whole(bmc: &Bmc, system: &System, run: &Run) -> Result<Value, Error> {
    let deadline = &run.deadline;
    let mut value = system_value(system);
    value["boot"]["allowed_targets"] = json!(system.boot().targets);
    value["reset_types"] = json!(system.reset_types());
    value["nics"] = part(run, "nics", bmc.nics(system, deadline))?;
    value["disks"] = part(run, "disks", bmc.disks(system, deadline))?;
    let slots = bmc.slots(system, deadline);
    let states = slots.map(|slots| slots.iter().map(|slot| json!(slot.state())).collect::<Vec<_>>());
    value["virtual_media"] = part(run, "virtual_media", states)?;
    Ok(value)
}

/// One part that a BMC cannot tell takes nothing away from the others: it is null, and a warning says why.
fn part<T: Serialize>(run: &Run, name: &str, read: Result<T, Error>) -> Result<Value, Error> {
    match read {
        Ok(part) => Ok(json!(part)),
        Err(error @ Error::Refused(_)) => {
            run.warn(format!("{name} cannot be read: {error}"));
            Ok(Value::Null)
        }
        Err(error) => Err(error),
    }
}
