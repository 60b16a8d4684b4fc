use ansible_module::{Failure, Run};
use api_options::proxmox_failure;
use net_types::{DomainName, Vmid};
use proxmox_api::{Guest, GuestKind, PendingConfig, Proxmox, VmStatus};

/// A virtual machine that is there.
#[derive(Clone, Debug)]
pub struct Vm {
    pub node: String,
    pub config: PendingConfig,
    pub status: VmStatus,
}

impl Vm {
    #[must_use]
    pub fn runs(&self) -> bool {
        self.status.status == "running"
    }
}

/// Whose a VMID is, as the lists tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    #[default]
    Nobody,
    /// A virtual machine on this node.
    Vm {
        node: String,
    },
    Container(Guest),
    /// A guest that this user may not see.
    Hidden,
}

/// The VMID's place in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub holder: Holder,
    /// Every guest this user may see.
    pub guests: Vec<Guest>,
}

/// Who has the VMID; waits until a guest that is just being made is there.
///
/// # Errors
/// Whatever the API answers.
pub fn find(vmid: Vmid, proxmox: &Proxmox, run: &Run) -> Result<Place, Failure> {
    let mut guests = proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
    let own = |guests: &[Guest]| guests.iter().find(|guest| guest.vmid == vmid).cloned();
    let mut found = own(&guests);
    let lock = found.as_ref().and_then(|guest| guest.lock.as_deref());
    if lock.is_some_and(|lock| matches!(lock, "clone" | "create")) {
        proxmox.unlocked(vmid, &run.deadline).map_err(proxmox_failure)?;
        guests = proxmox.guests(&run.deadline).map_err(proxmox_failure)?;
        found = own(&guests);
    }
    let holder = match found {
        Some(guest) if guest.kind == GuestKind::Container => Holder::Container(guest),
        Some(guest) => Holder::Vm { node: guest.node },
        None if proxmox.vmid_is_free(vmid, &run.deadline).map_err(proxmox_failure)? => Holder::Nobody,
        None => Holder::Hidden,
    };
    Ok(Place { holder, guests })
}

/// Reads a virtual machine's configuration, and its status where `status` is not known yet; `None` when it is
/// not on that node.
///
/// # Errors
/// Whatever the API answers.
pub fn observe(
    vmid: Vmid,
    node: &str,
    status: &mut Option<VmStatus>,
    proxmox: &Proxmox,
    run: &Run,
) -> Result<Option<Vm>, Failure> {
    let Some(config) = proxmox.config(node, vmid, &run.deadline).map_err(proxmox_failure)? else {
        return Ok(None);
    };
    let known = match status.take() {
        Some(status) => status,
        None => proxmox.status(node, vmid, &run.deadline).map_err(proxmox_failure)?,
    };
    *status = Some(known.clone());
    Ok(Some(Vm { node: node.to_owned(), config, status: known }))
}

impl Place {
    /// Other virtual machines of this name.
    pub fn namesakes<'a>(&'a self, vmid: Vmid, name: &'a DomainName) -> impl Iterator<Item = &'a Guest> {
        self.guests.iter().filter(move |guest| guest.vmid != vmid && guest.kind == GuestKind::Qemu).filter(
            |guest| guest.name.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(name.as_str())),
        )
    }
}

impl Holder {
    /// The VMID must be free, or belong to a virtual machine of this name that is no template.
    ///
    /// # Errors
    /// `refused`, with what was found.
    pub fn refuse_others(&self, vmid: Vmid, name: &DomainName, vm: Option<&Vm>) -> Result<(), Failure> {
        match self {
            Self::Container(container) => {
                return Err(Failure::refused(format!(
                    "VMID {vmid} belongs to a container: {}. Choose another vmid",
                    described(container)
                ))
                .with("holder", described(container)));
            }
            Self::Hidden => {
                return Err(Failure::refused(format!(
                    "VMID {vmid} is taken by a guest that this user may not see. Choose another vmid, or grant the \
                     user VM.Audit on /vms/{vmid}"
                )));
            }
            Self::Nobody | Self::Vm { .. } => {}
        }
        vm.map_or(Ok(()), |vm| refuse_other_vm(vmid, name, vm))
    }
}

fn refuse_other_vm(vmid: Vmid, name: &DomainName, vm: &Vm) -> Result<(), Failure> {
    let found = vm.config.stored.get("name");
    let holder = format!("VMID {vmid} on {}", vm.node);
    if vm.config.stored.flag("template") {
        let msg =
            format!("{holder} is a template ({}); this module never changes one", found.unwrap_or("no name"));
        return Err(Failure::refused(msg));
    }
    match found {
        Some(found) if found.eq_ignore_ascii_case(name.as_str()) => Ok(()),
        Some(found) => Err(Failure::refused(format!(
            "{holder} belongs to another virtual machine: expected the name `{name}`, found `{found}`"
        ))
        .with("expected", name.to_string())
        .with("found", found)),
        None => Err(Failure::refused(format!(
            "{holder} is a virtual machine without a name: expected `{name}`. What a killed task left has to be \
             removed by hand (`qm destroy {vmid}`)"
        ))),
    }
}

/// `web01 (VMID 101 on pve1)`.
#[must_use]
pub fn described(guest: &Guest) -> String {
    let kind = match guest.kind {
        GuestKind::Qemu => "VMID",
        GuestKind::Container => "container",
    };
    let name = guest.name.as_deref().unwrap_or("a guest without a name");
    format!("{name} ({kind} {} on {})", guest.vmid, guest.node)
}
