//! Every state that `zpool status` shows, in both forms.

use std::fs;
use std::io::Write;
use std::path::Path;

use zfs::{Class, Layout, Pool, parse_json_status, parse_status};

const DEGRADED: &str = "  pool: big
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
	invalid.  Sufficient replicas exist for the pool to continue
	functioning in a degraded state.
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
  scan: resilvered 1.2M in 00:00:01 with 0 errors on Sun Nov 29 10:00:00 2026
config:

	NAME                                              STATE     READ WRITE CKSUM
	big                                               DEGRADED     0     0     0
	  raidz2-0                                        DEGRADED     0     0     0
	    /dev/disk/by-id/scsi-A-part1                  ONLINE       0     0     0
	    /dev/disk/by-id/scsi-B-part1                  ONLINE       0     0     0
	    12851210017332881861                          UNAVAIL      0     0     0  was /dev/disk/by-id/scsi-C-part1
	    replacing-3                                   DEGRADED     0     0     0
	      /dev/disk/by-id/scsi-D-part1                OFFLINE      0     0     0
	      /dev/disk/by-id/scsi-E-part1                ONLINE       0     0     0  (resilvering)
	special	
	  mirror-1                                        ONLINE       0     0     0
	    /dev/nvme0n1p1                                ONLINE       0     0     0
	    /dev/nvme1n1p1                                ONLINE       0     0     0
	logs	
	  /dev/disk/by-id/nvme-L-part1                    ONLINE       0     0     0
	cache
	  /dev/disk/by-id/nvme-C-part1                    ONLINE       0     0     0
	spares
	  /dev/disk/by-id/scsi-S-part1                    AVAIL   

errors: No known data errors

  pool: bad name
 state: ONLINE
config:

	NAME                       STATE     READ WRITE CKSUM
	bad name                   ONLINE       0     0     0
	  /dev/disk/by-id/wwn-0x5  ONLINE       0     0     0

errors: No known data errors
";

fn leaves(pool: &Pool) -> Vec<String> {
    pool.leaves()
        .map(|leaf| {
            format!("{} {} {}", leaf.class.heading(), leaf.path.as_deref().unwrap().display(), leaf.state)
        })
        .collect()
}

#[test]
fn classes_missing_disks_and_names_with_blanks_are_read() {
    let pools = parse_status(DEGRADED).unwrap();
    assert_eq!(pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["big", "bad name"]);
    insta::assert_snapshot!(leaves(&pools[0]).join("\n"), @r"
    data /dev/disk/by-id/scsi-A-part1 ONLINE
    data /dev/disk/by-id/scsi-B-part1 ONLINE
    data /dev/disk/by-id/scsi-C-part1 UNAVAIL
    data /dev/disk/by-id/scsi-D-part1 OFFLINE
    data /dev/disk/by-id/scsi-E-part1 ONLINE
    special /dev/nvme0n1p1 ONLINE
    special /dev/nvme1n1p1 ONLINE
    logs /dev/disk/by-id/nvme-L-part1 ONLINE
    cache /dev/disk/by-id/nvme-C-part1 ONLINE
    spares /dev/disk/by-id/scsi-S-part1 AVAIL
    ");
    assert_eq!(pools[0].shape(), "raidz2 (in it: replacing) + special mirror");
    assert_eq!(
        (pools[0].state.as_str(), pools[0].layout(), pools[1].layout()),
        ("DEGRADED", None, Some(Layout::Stripe))
    );
    assert_eq!(pools[0].data_paths().count(), 7);
}

#[test]
fn no_pool_is_no_error_and_nonsense_is_one() {
    assert_eq!(parse_status("no pools available\n"), Ok(vec![]));
    assert_eq!(parse_status(""), Ok(vec![]));
    assert_eq!(parse_json_status(r#"{"output_version":{},"pools":{}}"#), Ok(vec![]));
    for text in [
        "cannot open 'x': no such pool\n",
        "  pool: tank\n",
        "  pool: tank\n state: ONLINE\n",
        "  pool: tank\n state: ONLINE\nconfig:\n\n",
    ] {
        assert!(parse_status(text).is_err(), "{text}");
    }
    for text in ["", "[]", r#"{"pools":{"tank":{}}}"#, r#"{"pools":{"tank":{"state":"ONLINE"}}}"#] {
        assert!(parse_json_status(text).is_err(), "{text}");
    }
}

#[test]
fn the_parity_is_in_the_name_and_numbers_may_be_text() {
    let disk = |name: &str| {
        format!(
            r#""{name}":{{"vdev_type":"disk","path":"/dev/disk/by-id/{name}-part1","class":"normal","state":"ONLINE"}}"#
        )
    };
    let text = format!(
        r#"{{"pools":{{"tank":{{"state":"ONLINE","pool_guid":"16021765311270327203","vdevs":{{"tank":{{"vdev_type":"root","vdevs":{{
           "raidz2-0":{{"vdev_type":"raidz","class":"normal","state":"ONLINE","vdevs":{{{},{},{},{}}}}}}}}}}},
           "l2cache":{{{}}},"error_count":"0"}}}}}}"#,
        disk("a"),
        disk("b"),
        disk("c"),
        disk("d"),
        disk("e")
    );
    let pools = parse_json_status(&text).unwrap();
    assert_eq!((pools[0].guid, pools[0].layout()), (Some(16_021_765_311_270_327_203), Some(Layout::Raidz2)));
    assert_eq!(pools[0].leaves().filter(|leaf| leaf.class == Class::Cache).count(), 1);
}

#[test]
fn what_was_recorded_from_real_pools_is_read() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zfs");
    if !data.is_dir() {
        let _ = writeln!(std::io::stderr(), "skipped: no recorded output of zpool beside the checkout");
        return;
    }
    let mut seen = Vec::new();
    for run in ["guest-run1.txt", "guest-run2.txt", "guest-run3.txt"] {
        let text = fs::read_to_string(data.join(run)).unwrap();
        for command in text.split("\n$ ").skip(1) {
            let (command, output) = command.split_once('\n').unwrap();
            let output = output.split("[rc=").next().unwrap();
            let pools = if command.starts_with("zpool status -j")
                && !command.contains("flat")
                && output.starts_with('{')
            {
                parse_json_status(output)
            } else if command.starts_with("zpool status -P") && output.starts_with("  pool: ") {
                parse_status(output)
            } else {
                continue;
            };
            let pool = &pools.unwrap_or_else(|why| panic!("{command}: {why}"))[0];
            seen.push(format!(
                "{} {} {} of {}",
                pool.name,
                pool.state,
                pool.shape(),
                pool.data_paths().count()
            ));
        }
    }
    seen.sort();
    seen.dedup();
    insta::assert_snapshot!(seen.join("\n"), @r"
    big DEGRADED raidz1 of 3
    big ONLINE raidz1 of 3
    mp2 ONLINE stripe of 1
    nv ONLINE stripe of 1
    parts ONLINE stripe of 1
    tank ONLINE mirror of 2
    ");
}
