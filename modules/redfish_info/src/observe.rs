//! Every read.

use ansible_module::{Failure, Run};
use api_options::{RedfishOptions, redfish_failure, system_value};
use deadline::Deadline;
use redfish_api::{Bmc, Error, System, choose};
use serde_json::{Value, json};

pub(crate) fn systems(bmc: &Bmc, options: &RedfishOptions, run: &Run) -> Result<Vec<Value>, Failure> {
    let read = || {
        let mut systems = bmc.systems(&run.deadline)?;
        if let Some(id) = options.system_id() {
            systems = vec![choose(systems, Some(id), None)?];
        }
        systems.iter().map(|system| whole(bmc, system, &run.deadline)).collect::<Result<_, Error>>()
    };
    read().map_err(|error| redfish_failure(error).while_doing(options.address()))
}

fn whole(bmc: &Bmc, system: &System, deadline: &Deadline) -> Result<Value, Error> {
    let mut value = system_value(system);
    value["boot"]["allowed_targets"] = json!(system.boot().targets);
    value["reset_types"] = json!(system.reset_types());
    value["nics"] = json!(bmc.nics(system, deadline)?);
    value["disks"] = json!(bmc.disks(system, deadline)?);
    let slots = bmc.slots(system, deadline)?;
    value["virtual_media"] = slots.iter().map(|slot| json!(slot.state())).collect();
    Ok(value)
}
