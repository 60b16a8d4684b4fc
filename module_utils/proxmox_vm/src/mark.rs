use proxmox_api::VmConfig;

/// A line at the end of a VM's description that says how far it got, for the next run and for people.
#[derive(Clone, Copy, Debug)]
pub struct Mark(&'static str);

/// On a virtual machine whose disk holds nothing yet that must be kept: its installation is to come, or under
/// way. Pinning the boot order to the disk takes it off.
pub const AWAITS_INSTALL: Mark =
    Mark::new("[homelab.anvil: empty, to be installed over the network; its disk may be written over]");

impl Mark {
    #[must_use]
    pub const fn new(line: &'static str) -> Self {
        Self(line)
    }

    /// A description with the mark, once.
    #[must_use]
    pub fn put_on(self, description: Option<&str>) -> String {
        match description.map(str::trim_end).filter(|text| !text.is_empty()) {
            Some(text) if text.contains(self.0) => text.to_owned(),
            Some(text) => format!("{text}\n\n{}", self.0),
            None => self.0.to_owned(),
        }
    }

    #[must_use]
    pub fn is_on(self, config: &VmConfig) -> bool {
        config.get("description").is_some_and(|text| text.contains(self.0))
    }

    /// The description without the mark; `None` where the mark is not on.
    #[must_use]
    pub fn taken_off(self, config: &VmConfig) -> Option<String> {
        let text = config.get("description").filter(|_| self.is_on(config))?;
        Some(text.replace(self.0, "").trim_end().to_owned())
    }
}
