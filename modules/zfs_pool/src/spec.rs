//! The option table and the documentation.

use ansible_module::{Kind, Opt, Spec, Table};
use serde_json::json;
use zfs::Layout;

pub(crate) fn spec() -> Spec {
    Spec::new("zfs_pool", "Make ZFS data pools on disks that are proved to be free")
        .describe(
            "Runs as root on the host. Makes each declared pool that is not there, and makes it known to Proxmox VE where \
             that is asked for. All pools of a host belong into one task: whatever is wrong with any of them stops everything \
             before anything is changed.",
        )
        .describe(
            "Disks are declared by their names under C(/dev/disk/by-id), and compared by what they are: any of its names, one \
             of its partitions or a multipath map over it stands for the same disk. M(homelab.anvil.zfs_pool_info) lists them.",
        )
        .describe(
            "A pool that exists with the declared disks and layout is left as it is; one with others is an error that shows \
             both. Nothing is ever added to a pool, removed from it or set on it; no pool is destroyed, exported or imported. \
             Log, cache and spare devices that somebody added do not count. A property that differs is a warning.",
        )
        .describe(
            "A disk is refused when it is in any pool (imported, exported or destroyed), mounted, used as swap, by LVM, RAID, \
             the device mapper or multipath, when it or any partition of it has a signature or a label, when it has a partition \
             table (also an empty one, also only the copy at its end), when the machine boots from it, when it is read-only, \
             removable, on USB or a virtual disk of a RAID controller, when it differs in size from the others by more than 16 \
             MiB, and when it is declared twice under two names.",
        )
        .describe(
            "C(zpool create) is never forced. By itself it would take disks with empty partitions, with an empty partition \
             table and members of destroyed pools: that a disk is free is proved before it is called.",
        )
        .note(
            "Log, cache, special and spare vdevs, pools of several mirrors and encryption of the pool itself cannot be \
             declared.",
        )
        .note("Join a Proxmox VE cluster before: a join replaces the list of storages.")
        .requirement("On the host: OpenZFS 2.1 or newer (zpool, zfs, zdb), util-linux 2.36 or newer, udev")
        .requirement("For O(pools[].proxmox_storage) Proxmox VE 7 or newer")
        .seealso(&["homelab.anvil.zfs_pool_info"])
        .options(table())
        .examples(EXAMPLES)
        .returns(RETURNS)
        .timeout(300)
}

fn table() -> Table {
    Table::new(vec![
        Opt::list_of("pools", pool()).required().doc("The pools of this host."),
        Opt::list("wipe", Kind::Str).default(json!([])).doc(
            "Names of pools of this task on whose disks may be erased: partition tables, partitions that nobody uses, \
             signatures of file systems, RAID and swap that are not in use, and ZFS labels of a pool that this host destroyed or \
             exported. Check mode shows exactly what would go.",
        ).doc(
            "It never lifts anything else: not a disk that is mounted, imported, used as swap or by another device, not one \
             that the machine boots from, not a pool that another host used last or that was not exported. Nothing is erased \
             before every check of every pool has passed.",
        ),
    ])
}

fn pool() -> Table {
    let layouts: Vec<&'static str> = Layout::ALL.into_iter().map(Layout::word).collect();
    Table::new(vec![
        Opt::str("name").required().doc(
            "Name of the pool. V(rpool) and V(bpool), which the system itself lives on, and names that ZFS reserves are refused.",
        ),
        Opt::str("layout").required().choices(&layouts).doc(
            "How the disks stand together, one vdev of all of them: V(mirror) of at least 2, V(raidz1) of 3, V(raidz2) of 4, \
             V(raidz3) of 5 disks. A V(stripe), lost with its first disk, needs O(pools[].allow_no_redundancy).",
        ),
        Opt::list("disks", Kind::Str).required().doc(
            "Whole disks by their names under C(/dev/disk/by-id), with the directory or without. A name such as C(sdb) is \
             refused: it can mean another disk after a boot.",
        ),
        Opt::bool("allow_no_redundancy").default(false).doc("Allows the layout V(stripe)."),
        Opt::dict("properties").default(json!({})).doc(
            "Properties of the pool. C(ashift) is V(12) unless it is given; it cannot be changed later.",
        ),
        Opt::dict("filesystem_properties").default(json!({})).doc(
            "Properties of the pool's root dataset, which others inherit. Unless given, C(compression=lz4), C(atime=off), \
             C(xattr=sa) and C(acltype=posixacl).",
        ),
        Opt::raw("proxmox_storage").default(false).doc(
            "Whether this node has the pool as a storage of Proxmox VE; or a dictionary with C(id) (the pool's name by \
             default), C(content) (V(images), V(rootdir) or both, the default), C(sparse) and C(blocksize).",
        ).doc(
            "A storage of that name on the same pool gets this node in addition to those it has; what is not given is left as it is.",
        ),
    ])
}

const EXAMPLES: &str = r#"
- name: Data pools of this host
  homelab.anvil.zfs_pool:
    pools:
      - name: tank
        layout: raidz2
        disks:
          - ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000001
          - ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000002
          - ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000003
          - ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000004
        filesystem_properties:
          compression: zstd
      - name: vmdata
        layout: mirror
        disks:
          - nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0R000001
          - nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0R000002
        proxmox_storage:
          sparse: true
  become: true

- name: Disks that held something before, and nobody needs it
  homelab.anvil.zfs_pool:
    pools: "{{ zfs_pools }}"
    wipe: [vmdata]
  become: true
"#;

const RETURNS: &str = r"
pools:
  description: The declared pools as they are; in check mode as they would be.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: tank
    state:
      description: Its state; null in check mode when it is still to be made.
      type: str
      sample: ONLINE
    layout:
      description: Its layout.
      type: str
      sample: raidz2
    disks:
      description: Its disks.
      type: list
      elements: dict
      contains:
        by_id:
          description: The name under C(/dev/disk/by-id), in the words of the declaration.
          type: str
        path:
          description: Where ZFS has it open; null when the pool is still to be made.
          type: str
    properties:
      description: Its declared properties, as ZFS gives them.
      type: dict
    filesystem_properties:
      description: The declared properties of its root dataset, as ZFS gives them.
      type: dict
    proxmox_storage:
      description: The storage of Proxmox VE; null when none is declared.
      type: str
refused_disks:
  description: Every disk that was refused, and why.
  returned: when error_code is V(refused)
  type: list
  elements: dict
  contains:
    pool:
      description: The pool that it is declared for.
      type: str
    by_id:
      description: Its declared name.
      type: str
    device:
      description: The device at the moment; null when there is no such name.
      type: str
    size:
      description: Its size in bytes.
      type: int
    model:
      description: Its model.
      type: str
    serial:
      description: Its serial number.
      type: str
    found:
      description: What was found, and where.
      type: list
      elements: str
differing_pools:
  description: Every pool that exists with other disks or another layout; what is declared and what is found.
  returned: when error_code is V(refused)
  type: list
  elements: dict
left:
  description: What a C(zpool create) that failed left on the disks.
  returned: when C(zpool create) failed
  type: list
  elements: str
";
