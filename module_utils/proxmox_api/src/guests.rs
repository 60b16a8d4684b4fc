use std::cell::Cell;
use std::collections::BTreeSet;

use deadline::Deadline;
use http_client::{Method, percent_encode};
use net_types::Vmid;
use serde_json::Value;

use crate::config::{PendingConfig, VmConfig, scalar};
use crate::error::ApiError;
use crate::session::Proxmox;
use crate::task::TaskEnd;
use crate::values::{Size, Slot, Tags};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestKind {
    Qemu,
    Container,
}

/// A guest as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    pub vmid: Vmid,
    pub kind: GuestKind,
    pub node: String,
    /// Missing while a clone is being made, and in a list whose broadcast has not come yet.
    pub name: Option<String>,
    pub template: bool,
    /// `clone`, `backup`, `migrate` ...
    pub lock: Option<String>,
    /// `running` or `stopped`; `unknown` in a list whose broadcast has not come yet.
    pub status: Option<String>,
    /// Sorted.
    pub tags: Vec<String>,
}

/// Whether a VM runs, asked of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmStatus {
    /// `running` or `stopped`.
    pub status: String,
    /// An HA manager starts and stops it, some time after being asked.
    pub ha_managed: bool,
    /// Seconds since its QEMU was started; 0 when it does not run. A reboot from inside does not reset it.
    pub uptime: u64,
}

/// A clone to make.
#[derive(Clone, Debug)]
pub struct CloneRequest<'a> {
    /// The node that holds the source.
    pub source_node: &'a str,
    pub source: Vmid,
    pub new: Vmid,
    /// The node the clone shall live on.
    pub target: &'a str,
    /// Further parameters: `name`, `full`, `storage`, `format`, `pool`, `description`, `bwlimit`, `snapname`.
    pub parameters: Vec<(String, String)>,
}

/// A disk to give to another VM.
#[derive(Clone, Copy, Debug)]
pub struct GivenDisk<'a> {
    pub node: &'a str,
    pub from: Vmid,
    pub disk: &'a Slot,
    pub to: Vmid,
    /// The empty key of the other VM.
    pub target: &'a str,
}

impl Proxmox {
    /// Every guest of the cluster that this user may see. `/cluster/resources` takes name, template and
    /// status from a broadcast that is up to ten seconds old (pve-manager `PVE/API2Tools.pm`); which
    /// VMIDs exist, and where, is current.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn guests(&self, deadline: &Deadline) -> Result<Vec<Guest>, ApiError> {
        let rows = self.get("/cluster/resources?type=vm", deadline)?;
        read_guests(&rows, None).ok_or_else(|| ApiError::shape("GET /cluster/resources", "no list of guests"))
    }

    /// The VMs of one node, from their configuration files: current in every field.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn node_vms(&self, node: &str, deadline: &Deadline) -> Result<Vec<Guest>, ApiError> {
        let path = format!("/nodes/{}/qemu", percent_encode(node));
        let rows = self.get(&path, deadline)?;
        read_guests(&rows, Some(node))
            .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no list of VMs"))
    }

    /// Whether a VMID is free, also of guests that this user may not see.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn vmid_is_free(&self, vmid: Vmid, deadline: &Deadline) -> Result<bool, ApiError> {
        match self.get(&format!("/cluster/nextid?vmid={vmid}"), deadline) {
            Ok(_) => Ok(true),
            Err(ApiError::Refused(refusal)) if refusal.is_taken() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A VM's configuration with what is pending; `None` when there is no such VM on that node.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn config(
        &self,
        node: &str,
        vmid: Vmid,
        deadline: &Deadline,
    ) -> Result<Option<PendingConfig>, ApiError> {
        let path = vm_path(node, vmid, "/pending");
        match self.get(&path, deadline) {
            Ok(rows) => PendingConfig::from_rows(&rows)
                .map(Some)
                .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no list of settings")),
            Err(ApiError::Refused(refusal)) if refusal.is_missing_vm() => Ok(None),
            // Whose rights come from a pool has none on a VM that is gone.
            Err(ApiError::Refused(refusal))
                if refusal.status == 403 && self.vmid_is_free(vmid, deadline)? =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The configuration that a snapshot of a VM holds.
    ///
    /// # Errors
    /// Any [`ApiError`], also when there is no such VM or snapshot.
    pub fn snapshot_config(
        &self,
        node: &str,
        vmid: Vmid,
        snapshot: &str,
        deadline: &Deadline,
    ) -> Result<VmConfig, ApiError> {
        let path = vm_path(node, vmid, &format!("/config?snapshot={}", percent_encode(snapshot)));
        PendingConfig::from_object(&self.get(&path, deadline)?)
            .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no settings"))
    }

    /// Writes cloud-init's drive anew and gives it to the running VM. Whether the server can: 7.4 and newer.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn regenerate_cloud_init(
        &self,
        node: &str,
        vmid: Vmid,
        deadline: &Deadline,
    ) -> Result<bool, ApiError> {
        let path = vm_path(node, vmid, "/cloudinit");
        match self.write_once((Method::Put, &path, &[]), deadline, |_| Ok(()), || Ok(None)) {
            Ok(()) => Ok(true),
            Err(ApiError::Refused(refusal)) if refusal.is_not_implemented() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The cloud-init settings that are not yet on the drive the VM has.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn stale_cloud_init(
        &self,
        node: &str,
        vmid: Vmid,
        deadline: &Deadline,
    ) -> Result<BTreeSet<String>, ApiError> {
        let path = vm_path(node, vmid, "/cloudinit");
        let rows = self.get(&path, deadline)?;
        PendingConfig::from_rows(&rows)
            .map(|config| config.pending)
            .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no list of settings"))
    }

    /// # Errors
    /// Any [`ApiError`].
    pub fn status(&self, node: &str, vmid: Vmid, deadline: &Deadline) -> Result<VmStatus, ApiError> {
        let path = vm_path(node, vmid, "/status/current");
        let data = self.get(&path, deadline)?;
        let status = data["status"].as_str().map(str::to_owned);
        let ha_managed = scalar(&data["ha"]["managed"]).is_some_and(|managed| managed == "1");
        status
            .map(|status| VmStatus {
                status,
                ha_managed,
                uptime: data["uptime"].as_u64().unwrap_or_default(),
            })
            .ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no status in it"))
    }

    /// The settings that a VM runs with, pending ones left out (`config?current=1`).
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn running_config(&self, node: &str, vmid: Vmid, deadline: &Deadline) -> Result<VmConfig, ApiError> {
        let path = vm_path(node, vmid, "/config");
        let data = self.get(&format!("{path}?current=1"), deadline)?;
        let settings =
            data.as_object().ok_or_else(|| ApiError::shape(&format!("GET {path}"), "no settings"))?;
        let shown = settings.iter().filter(|(key, _)| *key != "cipassword");
        Ok(shown.filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect())
    }

    /// Makes a VM of these settings and waits until it is there and unlocked. Sent again only where the VMID is
    /// still free.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with [`is_taken`](crate::Refusal::is_taken) when somebody else has the VMID.
    pub fn create_vm(
        &self,
        node: &str,
        vmid: Vmid,
        settings: &[(String, String)],
        deadline: &Deadline,
    ) -> Result<TaskEnd, ApiError> {
        let path = format!("/nodes/{}/qemu", percent_encode(node));
        let mut form = vec![("vmid".to_owned(), vmid.to_string())];
        form.extend(settings.iter().cloned());
        self.make(vmid, &path, &form, deadline)
    }

    /// Clones a VM and waits until it is there and unlocked. Sent again only where the new VMID is still
    /// free: the VMID is what makes a clone unique.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with [`is_taken`](crate::Refusal::is_taken) when somebody else has the VMID.
    pub fn clone_vm(&self, clone: &CloneRequest<'_>, deadline: &Deadline) -> Result<TaskEnd, ApiError> {
        let path = vm_path(clone.source_node, clone.source, "/clone");
        let mut form = vec![("newid".to_owned(), clone.new.to_string())];
        if clone.target != clone.source_node {
            form.push(("target".to_owned(), clone.target.to_owned()));
        }
        form.extend(clone.parameters.iter().cloned());
        self.make(clone.new, &path, &form, deadline)
    }

    /// Sends what makes a VM of that VMID: the VMID is what makes it unique.
    fn make(
        &self,
        vmid: Vmid,
        path: &str,
        form: &[(String, String)],
        deadline: &Deadline,
    ) -> Result<TaskEnd, ApiError> {
        let endpoint = format!("POST {path}");
        // Once an answer was lost, a VMID that is taken is our own doing.
        let asked_before = Cell::new(false);
        self.run_task(deadline, || {
            let upid = self.write_once(
                (Method::Post, path, form),
                deadline,
                |data| Self::upid(&endpoint, &data),
                || {
                    asked_before.set(true);
                    Ok((!self.vmid_is_free(vmid, deadline)?).then_some(None))
                },
            );
            match upid {
                Ok(Some(upid)) => return Ok(Some(upid)),
                Err(ApiError::Refused(refusal)) if refusal.is_taken() && asked_before.get() => {}
                Ok(None) => {}
                Err(error) => return Err(error),
            }
            self.unlocked(vmid, deadline).map(|()| None)
        })
    }

    /// Waits until nobody holds the `clone` or `create` lock on a VM, or until the VM is gone: a clone
    /// that fails is removed by Proxmox VE.
    ///
    /// # Errors
    /// [`ApiError::Expired`] when the lock stays.
    pub fn unlocked(&self, vmid: Vmid, deadline: &Deadline) -> Result<(), ApiError> {
        let wait = deadline.poll(|| {
            let guests = self.guests(deadline)?;
            let lock = guests.into_iter().find(|guest| guest.vmid == vmid).and_then(|guest| guest.lock);
            Ok((!lock.is_some_and(|lock| is_making(&lock))).then_some(()))
        });
        // A request that is cut off by the deadline says so in its own way.
        wait.map_err(|error| match deadline.check() {
            Ok(()) => error,
            Err(why) => ApiError::Expired {
                waiting_for: format!(
                    "VM {vmid}, which is locked because a clone of it is being made. When no clone task is running \
                     any more, it is what a killed one left: remove it with `qm destroy {vmid} --skiplock`"
                ),
                why,
            },
        })
    }

    /// Writes settings. A lost answer is looked after by reading: unchanged settings mean that the write
    /// did not arrive. `before` is what was read before the write; settings that somebody else changed
    /// since then are not overwritten.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn set_config(
        &self,
        node: &str,
        vmid: Vmid,
        form: &[(String, String)],
        before: &PendingConfig,
        deadline: &Deadline,
    ) -> Result<(), ApiError> {
        let path = vm_path(node, vmid, "/config");
        let mut digest = before.digest.clone();
        deadline.poll(|| {
            let mut form = form.to_vec();
            form.extend(digest.clone().map(|digest| ("digest".to_owned(), digest)));
            let arrived = || {
                let now = self.config(node, vmid, deadline)?;
                Ok(now.is_some_and(|now| !now.same_settings(before) || now.digest != digest).then_some(()))
            };
            match self.write_once((Method::Put, &path, &form), deadline, |_| Ok(()), arrived) {
                // A lock that was released while we waited for it changes the digest as well.
                Err(ApiError::Refused(refusal)) if refusal.is_checksum_mismatch() => {
                    let now = self.config(node, vmid, deadline)?;
                    match now.filter(|now| now.same_settings(before) && now.digest != digest) {
                        Some(now) => digest = now.digest,
                        None => return Err(ApiError::Refused(refusal)),
                    }
                    Ok(None)
                }
                outcome => outcome.map(Some),
            }
        })
    }

    /// Grows a disk to `size`. To grow to the size it has is a success, so a lost answer is asked again.
    ///
    /// # Errors
    /// Any [`ApiError`]; shrinking is refused by the task.
    pub fn resize(
        &self,
        node: &str,
        vmid: Vmid,
        disk: &Slot,
        size: Size,
        deadline: &Deadline,
    ) -> Result<TaskEnd, ApiError> {
        let form = [("disk".to_owned(), disk.to_string()), ("size".to_owned(), size.to_string())];
        let path = vm_path(node, vmid, "/resize");
        let endpoint = format!("PUT {path}");
        self.run_task(deadline, || {
            self.write_once(
                (Method::Put, &path, &form),
                deadline,
                |data| Self::upid(&endpoint, &data),
                || Ok(None),
            )
        })
    }

    /// Gives a stopped VM's disk to another VM of the same node, whose `target` (`scsi1`, `unused255`) must be
    /// empty: the volume is renamed, nothing is copied (qemu-server `PVE/API2/Qemu.pm`, `move_vm_disk`).
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn give_disk(&self, given: &GivenDisk<'_>, deadline: &Deadline) -> Result<TaskEnd, ApiError> {
        let GivenDisk { node, from, disk, to, target } = *given;
        let path = vm_path(node, from, "/move_disk");
        let form = [
            ("disk".to_owned(), disk.to_string()),
            ("target-vmid".to_owned(), to.to_string()),
            ("target-disk".to_owned(), target.to_owned()),
        ];
        let endpoint = format!("POST {path}");
        let id = format!("{from}-{disk}>{to}-{target}");
        let is_given = || {
            let left = self.config(node, from, deadline)?;
            Ok::<_, ApiError>(left.is_some_and(|config| config.stored.get(&disk.to_string()).is_none()))
        };
        self.run_task(deadline, || {
            self.write_once(
                (Method::Post, &path, &form),
                deadline,
                |data| Self::upid(&endpoint, &data),
                || match self.running_task(node, "qmmove", &id, deadline)? {
                    Some(upid) => Ok(Some(Some(upid))),
                    None => Ok(is_given()?.then_some(None)),
                },
            )
        })
    }

    /// `start`, `stop`, `shutdown` or `reboot`, and waits for its task. After a lost answer the VM's
    /// status and its running tasks tell whether it has to be sent again.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn power(
        &self,
        node: &str,
        vmid: Vmid,
        verb: &str,
        form: &[(String, String)],
        deadline: &Deadline,
    ) -> Result<TaskEnd, ApiError> {
        let path = vm_path(node, vmid, &format!("/status/{verb}"));
        let reached = if matches!(verb, "start" | "reboot") { "running" } else { "stopped" };
        let endpoint = format!("POST {path}");
        let arrived = || Ok::<_, ApiError>(self.status(node, vmid, deadline)?.status == reached);
        let by_ha = Cell::new(false);
        let end = self.run_task(deadline, || {
            let upid = self.write_once(
                (Method::Post, &path, form),
                deadline,
                |data| Self::upid(&endpoint, &data),
                || match self.running_task(node, &format!("qm{verb}"), &vmid.to_string(), deadline)? {
                    Some(upid) => Ok(Some(Some(upid))),
                    None => Ok((verb != "reboot" && arrived()?).then_some(None)),
                },
            )?;
            by_ha.set(upid.as_ref().is_some_and(|upid| upid.kind.starts_with("ha")));
            Ok(upid)
        })?;
        // An HA manager's task only notes the wish; the VM follows some seconds later.
        if by_ha.get() {
            deadline.poll(|| Ok::<_, ApiError>(arrived()?.then_some(())))?;
        }
        Ok(end)
    }

    /// Destroys a VM with every volume that its configuration names, and waits for it.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub fn destroy(&self, node: &str, vmid: Vmid, deadline: &Deadline) -> Result<TaskEnd, ApiError> {
        let path = vm_path(node, vmid, "");
        let form = [("purge", "1"), ("destroy-unreferenced-disks", "0")];
        let form: Vec<(String, String)> = form.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let endpoint = format!("DELETE {path}");
        self.run_task(deadline, || {
            self.write_once(
                (Method::Delete, &path, &form),
                deadline,
                |data| Self::upid(&endpoint, &data),
                || match self.running_task(node, "qmdestroy", &vmid.to_string(), deadline)? {
                    Some(upid) => Ok(Some(Some(upid))),
                    None => Ok(self.config(node, vmid, deadline)?.is_none().then_some(None)),
                },
            )
        })
    }
}

/// Locks under which a VM is not yet what it is going to be.
fn is_making(lock: &str) -> bool {
    matches!(lock, "clone" | "create")
}

pub(crate) fn vm_path(node: &str, vmid: Vmid, rest: &str) -> String {
    format!("/nodes/{}/qemu/{vmid}{rest}", percent_encode(node))
}

/// `None` for a shape that is no list of guests. Rows of a node's own list carry neither type nor node.
fn read_guests(rows: &Value, node: Option<&str>) -> Option<Vec<Guest>> {
    rows.as_array()?.iter().map(|row| read_guest(row, node)).collect()
}

fn read_guest(row: &Value, node: Option<&str>) -> Option<Guest> {
    let kind = match row["type"].as_str() {
        Some("lxc") => GuestKind::Container,
        _ => GuestKind::Qemu,
    };
    let tags = row["tags"].as_str().and_then(|text| text.parse::<Tags>().ok());
    Some(Guest {
        vmid: scalar(&row["vmid"])?.parse().ok()?,
        kind,
        node: node.or_else(|| row["node"].as_str())?.to_owned(),
        name: row["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
        template: scalar(&row["template"]).is_some_and(|flag| flag == "1"),
        lock: row["lock"].as_str().filter(|lock| !lock.is_empty()).map(str::to_owned),
        status: row["status"].as_str().map(str::to_owned),
        tags: tags.unwrap_or_default().iter().map(str::to_owned).collect(),
    })
}
