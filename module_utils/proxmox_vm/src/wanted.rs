use proxmox_api::VmConfig;
use proxmox_api::values::{Agent, ValueError};
use serde_json::{Value, json};

use crate::fields::{cpu, strings};
use crate::options::{Disk, Hardware, Net};

/// The fields a task names, with the value it wants of each, in the order of the option table.
#[derive(Debug, Default)]
pub struct Wanted(pub Vec<(String, Value)>);

impl Wanted {
    /// What [`Hardware`] asks of numbers and words. `base` is the configuration it starts from: what one value does not
    /// name is taken from there.
    ///
    /// # Errors
    /// [`ValueError`] when a stored value cannot be read.
    pub fn machine(&mut self, hardware: &Hardware, base: &VmConfig) -> Result<(), ValueError> {
        self.add("cores", hardware.cores.map(Value::from));
        self.add("sockets", hardware.sockets.map(Value::from));
        self.add("cpu", hardware.cpu.as_deref().map(cpu).transpose()?.map(Value::from));
        self.add("memory", hardware.memory.map(Value::from));
        self.add("balloon", hardware.balloon.map(Value::from));
        self.add("agent", agent(hardware, base)?);
        self.add("scsihw", hardware.scsihw.as_deref().map(Value::from));
        self.add("onboot", hardware.onboot.map(Value::from));
        self.add("startup", hardware.startup.map(|startup| json!(startup.to_string())));
        self.add("protection", hardware.protection.map(Value::from));
        self.add("tags", hardware.tags.as_ref().map(|tags| strings(tags.iter())));
        Ok(())
    }

    /// Its network devices, disks and boot order.
    pub fn devices(&mut self, hardware: &Hardware, base: &VmConfig) {
        hardware.net.iter().for_each(|net| self.net(net));
        hardware.disks.iter().for_each(|disk| self.disk(disk, base.get(&disk.slot.to_string()).is_none()));
        self.add("boot", hardware.boot_order.as_ref().map(|order| strings(order.iter().map(String::as_str))));
    }

    /// Empty text is the same as none.
    pub fn add(&mut self, field: impl Into<String>, value: Option<Value>) {
        let value = value.map(|value| if value == "" { Value::Null } else { value });
        self.0.extend(value.map(|value| (field.into(), value)));
    }

    /// Parts of one setting, such as those of `net0`.
    pub fn parts(&mut self, key: &str, parts: Vec<(&str, Option<Value>)>) {
        for (part, value) in parts {
            self.add(format!("{key}.{part}"), value);
        }
    }

    fn net(&mut self, net: &Net) {
        let tag = net.vlan.map(|vlan| if vlan == 0 { Value::Null } else { json!(vlan) });
        self.parts(
            &net.slot,
            vec![
                ("model", net.model.as_deref().map(Value::from)),
                ("macaddr", net.mac.map(|mac| json!(mac.to_string()))),
                ("bridge", net.bridge.as_deref().map(Value::from)),
                ("tag", tag),
                ("trunks", net.trunks.as_ref().map(|trunks| json!(trunks.to_string()))),
                ("firewall", net.firewall.map(Value::from)),
                ("mtu", net.mtu.map(Value::from)),
                ("rate", net.rate.map(Value::from)),
                ("queues", net.queues.map(Value::from)),
                ("link_down", net.link_down.map(Value::from)),
            ],
        );
    }

    /// Place and size are settled when a disk is made.
    fn disk(&mut self, disk: &Disk, is_new: bool) {
        self.parts(
            &disk.slot.to_string(),
            vec![
                ("storage", is_new.then(|| json!(disk.storage))),
                ("size", is_new.then(|| json!(disk.size.to_string()))),
                ("serial", disk.serial.as_deref().map(Value::from)),
                ("discard", disk.discard.map(Value::from)),
                ("iothread", disk.iothread.map(Value::from)),
                ("ssd", disk.ssd.map(Value::from)),
                ("backup", disk.backup.map(Value::from)),
                ("cache", disk.cache.as_deref().map(Value::from)),
                ("aio", disk.aio.as_deref().map(Value::from)),
            ],
        );
    }
}

/// Options of the agent that the task does not name are kept.
fn agent(hardware: &Hardware, base: &VmConfig) -> Result<Option<Value>, ValueError> {
    let Some(asked) = &hardware.agent else { return Ok(None) };
    let mut merged = base.parsed::<Agent>("agent")?.unwrap_or_default();
    merged.enabled = asked.enabled;
    merged.options.extend(asked.options.clone());
    Ok(Some(json!(merged.to_string())))
}
