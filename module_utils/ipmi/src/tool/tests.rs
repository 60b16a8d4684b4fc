//! Against a scripted `ipmitool` that says what the real one (1.8.19) says and no simulator gives.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// `script` is what it does for a call `$*`, in the shell's language.
fn scripted(script: &str) -> (Ipmitool, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    // A link: a program that was just written cannot always be run while other threads start theirs.
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ipmitool");
    symlink(stand_in, directory.path().join("ipmitool")).unwrap();
    fs::write(directory.path().join("script"), script).unwrap();
    let machine = Host::rooted("/", vec![directory.path().to_owned()]);
    let connection = Connection {
        host: "bmc1".into(),
        port: 623,
        user: "admin".into(),
        password: "pass word".to_owned().into(),
        cipher_suite: None,
    };
    (Ipmitool::new(machine, connection), directory)
}

fn log(directory: &TempDir) -> Vec<String> {
    fs::read_to_string(directory.path().join("log")).unwrap().lines().map(str::to_owned).collect()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

const NO_SESSION: &str = "echo 'Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1";

#[test]
fn the_password_is_in_both_variables_and_in_no_argument() {
    let (bmc, directory) = scripted("echo 'Chassis Power is off'");
    assert_eq!(bmc.power(&soon()).unwrap(), Power::Off);
    assert_eq!(
        log(&directory),
        ["-I lanplus -H bmc1 -p 623 -U admin -E -C 17 -N 1 -R 4 chassis power status pass word pass word"]
    );
}

#[test]
fn cipher_suite_3_follows_17_and_is_kept() {
    let script = format!("case \"$*\" in *'-C 17'*) {NO_SESSION};; esac\necho 'Chassis Power is on'");
    let (bmc, directory) = scripted(&script);
    assert_eq!(bmc.power(&soon()).unwrap(), Power::On);
    assert_eq!(bmc.power(&soon()).unwrap(), Power::On);
    let suites: Vec<bool> = log(&directory).iter().map(|line| line.contains("-C 17")).collect();
    assert_eq!(suites, [true, false, false]);
}

#[test]
fn without_a_session_it_says_what_to_look_at_and_no_password() {
    let (bmc, _directory) = scripted(NO_SESSION);
    let error = bmc.power(&soon()).unwrap_err();
    assert!(matches!(error, Error::NoSession { .. }), "{error}");
    assert!(error.to_string().contains("Check user and password"), "{error}");
    assert!(!format!("{error} {error:?} {bmc:?}").contains("pass word"));
}

#[test]
fn an_exit_status_of_0_is_no_success() {
    let refusal = "echo 'Set Chassis Boot Parameter 5 failed'; exit 0";
    let (bmc, _directory) = scripted(&format!("case \"$*\" in *bootdev*) {refusal};; esac"));
    let error = bmc.boot_once(BootDevice::Pxe, true, &soon()).unwrap_err().to_string();
    assert_eq!(
        error,
        "`ipmitool chassis bootdev pxe options=efiboot`: expected `Set Boot Device to`, ipmitool said: Set Chassis Boot \
         Parameter 5 failed"
    );
    let (bmc, _directory) = scripted("exit 0");
    assert!(matches!(bmc.power(&soon()), Err(Error::Unexpected { .. })));
    assert!(matches!(bmc.power_on(&soon()), Err(Error::Unexpected { .. })));
}

#[test]
fn a_bmc_that_cannot_keep_the_flag_is_no_failure() {
    let script = "case \"$*\" in *raw*) echo 'Unable to send RAW command' >&2; exit 1;; *bootdev*) echo 'Set Boot Device to pxe';; esac";
    let (bmc, directory) = scripted(script);
    bmc.boot_once(BootDevice::Pxe, false, &soon()).unwrap();
    let commands = log(&directory);
    assert!(
        commands[0].contains("raw 0x00 0x08 0x03 0x08") && commands[1].contains("chassis bootdev pxe pass")
    );
}

#[test]
fn the_product_serial_is_read_and_no_other() {
    let fru = " Board Serial          : B1\n Chassis Serial        : C1\n Product Serial        : SN 1 \n";
    let (bmc, _directory) = scripted(&format!("printf '%s' \"{fru}\""));
    assert_eq!(bmc.product_serial(&soon()).unwrap().as_deref(), Some("SN 1"));
    let (bmc, _directory) =
        scripted("echo 'Device not present (Requested sensor, data, or record not found)' >&2; exit 1");
    assert_eq!(bmc.product_serial(&soon()).unwrap(), None);
}

#[test]
fn a_server_that_stays_on_is_told() {
    let script =
        "case \"$*\" in *soft*) echo 'Chassis Power Control: Soft';; *) echo 'Chassis Power is on';; esac";
    let (bmc, directory) = scripted(script);
    let error = bmc.power_soft(&Deadline::after(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(error, Error::PowerStuck { found: Power::On, .. }), "{error}");
    assert_eq!(log(&directory).iter().filter(|line| line.contains("soft")).count(), 1);
}

#[test]
fn a_missing_program_is_named() {
    let (bmc, directory) = scripted("");
    fs::remove_file(directory.path().join("ipmitool")).unwrap();
    assert!(bmc.power(&soon()).unwrap_err().to_string().contains("`ipmitool` is not installed"));
}
