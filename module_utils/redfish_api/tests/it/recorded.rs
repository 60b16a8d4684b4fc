//! Whole BMCs as they were recorded, and small ones of our own: what is found in each.

use std::io::Write;

use lab::redfish::{RedfishDouble, Tree};
use redfish_api::{Error, Off, choose, choose_slot};

use crate::{bmc, deadline};

/// What is expected of one BMC.
struct Expected {
    systems: &'static [&'static str],
    /// What identifies the system that can be booted.
    serials: &'static [&'static str],
    /// Whether the systems have to be told apart.
    needs_choice: bool,
    targets: &'static [&'static str],
    way_down: Option<Off>,
    /// The slot for a CD, or a part of the reason why there is none.
    slot: Result<&'static str, &'static str>,
    nics: usize,
    disks: usize,
}

fn check(name: &str, tree: Tree, expected: &Expected) {
    let double = RedfishDouble::builder(tree).read_only().start();
    let (bmc, deadline) = (bmc(&double), deadline());
    let systems = bmc.systems(&deadline).unwrap();
    assert_eq!(systems.iter().map(|one| one.id()).collect::<Vec<_>>(), expected.systems, "{name}");
    let choice = choose(systems.clone(), None, None);
    assert_eq!(matches!(choice, Err(Error::Choice(_))), expected.needs_choice, "{name}");
    let system = choose(systems, Some(expected.systems[0]), None).unwrap();
    assert_eq!(system.serials(), expected.serials, "{name}");
    assert_eq!(system.boot().targets.unwrap(), expected.targets, "{name}");
    assert_eq!(system.way_down().ok(), expected.way_down, "{name}");
    assert!(system.can_power_on().is_ok(), "{name}");
    let slots = bmc.slots(&system, &deadline).unwrap();
    match (choose_slot(slots, None, "http://192.0.2.1/a.iso"), expected.slot) {
        (Ok(slot), Ok(id)) => assert_eq!(slot.state().id, id, "{name}"),
        (Err(reason), Err(part)) => assert!(reason.0.contains(part), "{name}: {}", reason.0),
        (found, _) => panic!("{name}: {found:?}"),
    }
    assert_eq!(bmc.nics(&system, &deadline).unwrap().len(), expected.nics, "{name}");
    assert_eq!(bmc.disks(&system, &deadline).unwrap().len(), expected.disks, "{name}");
    assert!(double.log().iter().all(|one| one.method == "GET"), "{name}: only reads");
}

#[test]
fn recorded_bmcs_say_what_they_are() {
    let directory = lab::checkout().join("../shared/data/bmc");
    if !directory.is_dir() {
        let _ = writeln!(std::io::stderr(), "skipped: no recorded BMCs in {}", directory.display());
        return;
    }
    for (name, expected) in [
        (
            "dell-idrac9-7.10.30-r750",
            Expected {
                systems: &["System.Embedded.1"],
                serials: &["MXFC40025U031S", "CLLV0R3"],
                needs_choice: false,
                targets: &[
                    "None",
                    "Pxe",
                    "Floppy",
                    "Cd",
                    "Hdd",
                    "BiosSetup",
                    "Utilities",
                    "UefiTarget",
                    "SDCard",
                    "UefiHttp",
                ],
                way_down: Some(Off::GracefulShutdown),
                slot: Ok("1"),
                nics: 4,
                disks: 3,
            },
        ),
        (
            "hpe-ilo5-2.72-dl385gen10plusv2",
            Expected {
                systems: &["1"],
                serials: &["MXQ302099S"],
                needs_choice: false,
                targets: &[
                    "None",
                    "Cd",
                    "Hdd",
                    "Usb",
                    "SDCard",
                    "Utilities",
                    "Diags",
                    "BiosSetup",
                    "Pxe",
                    "UefiShell",
                    "UefiHttp",
                    "UefiTarget",
                ],
                way_down: Some(Off::GracefulShutdown),
                slot: Ok("2"),
                nics: 7,
                disks: 0,
            },
        ),
        (
            "supermicro-x13-sys821ge",
            Expected {
                systems: &["1"],
                serials: &["S889914X3710910"],
                needs_choice: false,
                targets: &[
                    "None",
                    "Pxe",
                    "Floppy",
                    "Cd",
                    "Usb",
                    "Hdd",
                    "BiosSetup",
                    "UsbCd",
                    "UefiBootNext",
                    "UefiHttp",
                ],
                way_down: Some(Off::GracefulShutdown),
                slot: Ok("VirtualMedia1"),
                nics: 12,
                disks: 8,
            },
        ),
        (
            "openbmc-gb200",
            Expected {
                systems: &["System_0", "HGX_Baseboard_0"],
                serials: &[],
                needs_choice: true,
                targets: &["None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"],
                way_down: Some(Off::GracefulShutdown),
                slot: Ok("USB2"),
                nics: 0,
                disks: 0,
            },
        ),
        (
            "dmtf-public-rackmount1",
            Expected {
                systems: &["437XR1138R2"],
                serials: &["437XR1138R2"],
                needs_choice: false,
                targets: &[
                    "None",
                    "Pxe",
                    "Cd",
                    "Usb",
                    "Hdd",
                    "BiosSetup",
                    "Utilities",
                    "Diags",
                    "SDCard",
                    "UefiTarget",
                ],
                way_down: Some(Off::GracefulShutdown),
                slot: Err("neither InsertMedia nor PATCH"),
                nics: 4,
                disks: 0,
            },
        ),
    ] {
        check(name, Tree::recorded(&directory.join(name)).unwrap(), &expected);
    }
}

#[test]
fn a_dell_of_the_thirteenth_generation() {
    check(
        "iDRAC8 2.43",
        Tree::idrac8(),
        &Expected {
            systems: &["System.Embedded.1"],
            serials: &["CN7475158B0123", "TAG1234"],
            needs_choice: false,
            targets: &[
                "None",
                "Pxe",
                "Floppy",
                "Cd",
                "Hdd",
                "BiosSetup",
                "Utilities",
                "UefiTarget",
                "SDCard",
            ],
            way_down: Some(Off::PushPowerButton),
            slot: Err("neither InsertMedia nor PATCH"),
            nics: 2,
            disks: 2,
        },
    );
}

#[test]
fn a_server_of_no_particular_make_and_one_with_two_systems() {
    let plain = |systems, serials, needs_choice| Expected {
        systems,
        serials,
        needs_choice,
        targets: &["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "UefiHttp"],
        way_down: Some(Off::GracefulShutdown),
        slot: Ok("2"),
        nics: 1,
        disks: 1,
    };
    check("plain", Tree::plain(), &plain(&["1"], &["SN123456  "], false));
    check("two systems", Tree::two_systems(), &plain(&["1", "HGX_Baseboard_0"], &[], true));
}
