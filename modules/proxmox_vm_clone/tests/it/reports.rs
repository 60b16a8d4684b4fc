//! What users of other tools reported as wrong, and where it is proved that it is not here.
//!
//! The numbers are those of ../shared/reference/proxmox-api.md, section 3, by their rank; each row names a test of this
//! crate, of `proxmox_api` or of the lab, or says why there is none.

use std::io::Write;

/// What answers a report.
enum Answer {
    /// A test's name and the file it stands in, from the checkout's root.
    Test(&'static str, &'static str),
    /// Why nothing can be shown here.
    Limit(&'static str),
}

use Answer::{Limit, Test};

const CREATION: &str = "modules/proxmox_vm_clone/tests/it/creation.rs";
const EXISTING: &str = "modules/proxmox_vm_clone/tests/it/existing.rs";
const REFUSALS: &str = "modules/proxmox_vm_clone/tests/it/refusals.rs";
const REMOVAL: &str = "modules/proxmox_vm_clone/tests/it/removal.rs";
const FAULTS: &str = "modules/proxmox_vm_clone/tests/it/faults.rs";
const UNIT: &str = "modules/proxmox_vm_clone/src/tests.rs";
const CRASH: &str = "modules/proxmox_vm_clone/tests/it/crash.rs";
const RELEASES: &str = "modules/proxmox_vm_clone/tests/it/releases.rs";
const INFO: &str = "modules/proxmox_vm_info/tests/it/main.rs";
const TASKS: &str = "module_utils/proxmox_api/tests/it/tasks.rs";

const REPORTS: [(u32, &str, Answer); 34] = [
    (
        1,
        "a run that changes nothing returns the clone's VMID, not the template's",
        Test("one_task_takes_a_template_to_a_running_vm_and_the_next_run_reads_three_times", CREATION),
    ),
    (2, "the same task twice makes one VM", Test("two_runs_at_once_make_one_vm", CREATION)),
    (
        3,
        "no empty disk takes the place of one that is there",
        Test("a_disk_is_allocated_only_in_an_empty_slot", UNIT),
    ),
    (
        4,
        "network settings are applied and keep the MAC",
        Test("inside_one_device_only_the_named_option_changes", EXISTING),
    ),
    (5, "a change leaves the MAC alone", Test("what_is_written_keeps_what_is_not_named", UNIT)),
    (
        6,
        "two that want one VMID end with one VM",
        Test("two_controllers_racing_for_one_vmid_end_with_one_vm", CREATION),
    ),
    (7, "memory and cores hold for the clone", Test("check_mode_foretells_what_the_run_then_does", CREATION)),
    (8, "what is as declared is no change", Test("spelling_is_no_difference", EXISTING)),
    (
        10,
        "of equal templates the wanted node's is cloned",
        Test("a_template_that_cannot_be_told_is_refused", REFUSALS),
    ),
    (11, "warnings are success and are told", Test("warnings_are_success_and_told", TASKS)),
    (
        12,
        "a time-out says that the task goes on, and its last words",
        Test("a_clone_slower_than_the_timeout_is_told_with_its_task_and_finished_by_the_next_run", CREATION),
    ),
    (13, "a task that failed is told at once", Test("a_start_that_fails_is_told_with_its_log", FAULTS)),
    (14, "nothing is configured before the clone is done", Test("a_slow_clone_is_waited_for", CREATION)),
    (
        15,
        "a lock file that is held is waited for",
        Test("every_write_survives_a_lock_and_a_broken_proxy", FAULTS),
    ),
    (
        16,
        "a clone that a storage's lock made fail is tried again",
        Test("a_clone_task_that_failed_on_a_storage_lock_is_begun_again", TASKS),
    ),
    (
        18,
        "a worker that did not report is looked for",
        Test("every_write_survives_a_lock_and_a_broken_proxy", FAULTS),
    ),
    (
        19,
        "cloud-init is set before the first start, and written anew later",
        Test("cloud_init_of_a_running_vm_gets_a_new_drive_and_waits_for_a_reboot", EXISTING),
    ),
    (21, "keys arrive as they were given", Test("keys_arrive_as_they_were_given", CREATION)),
    (
        23,
        "a volume that is seen late is waited for",
        Test("a_volume_that_a_storage_shows_late_is_waited_for", TASKS),
    ),
    (
        25,
        "a disk's options that are not named are kept",
        Test("inside_one_device_only_the_named_option_changes", EXISTING),
    ),
    (
        27,
        "the template's node is asked, and local storage explained",
        Test("local_storage_on_the_way_is_explained", CREATION),
    ),
    (29, "templates are made by POST /template", Limit("this collection makes no templates")),
    (
        30,
        "a missing privilege is named with its path",
        Test("a_missing_privilege_says_what_to_grant", REFUSALS),
    ),
    (
        35,
        "what a running VM cannot take is told as pending, and no restart is made unasked",
        Test("what_a_running_vm_cannot_take_is_pending_and_stays_told", EXISTING),
    ),
    (
        36,
        "a slow API is waited for, each request with a time of its own",
        Test(
            "a_write_cut_off_by_the_deadline_is_told_as_what_it_was",
            "module_utils/proxmox_api/tests/it/session.rs",
        ),
    ),
    (
        37,
        "an agent that is not there yet is no failure, and link-local addresses are left out",
        Test("an_agent_that_does_not_answer_is_no_failure", INFO),
    ),
    (
        38,
        "a certificate nobody vouches for is told with the ways out",
        Test("a_certificate_nobody_vouches_for_gets_no_credential", REFUSALS),
    ),
    (40, "the end of a failed task's log is told", Test("a_start_that_fails_is_told_with_its_log", FAULTS)),
    (41, "check mode and diff", Test("check_mode_only_reads_and_shows_everything", CREATION)),
    (42, "to remove twice is no failure", Test("a_vm_is_destroyed_only_with_every_leave_it_needs", REMOVAL)),
    (
        43,
        "the words of the reason phrase are told",
        Test("release_7_4_puts_errors_into_the_reason_phrase_and_resizes_before_it_answers", RELEASES),
    ),
    (
        44,
        "the VMID is the key, a second VM of the name a warning",
        Test("a_second_vm_of_the_name_is_told", CREATION),
    ),
    // Beyond the table: what its rows have in common.
    (
        0,
        "a run that was killed while its clone is made is finished by the next",
        Test("killed_while_the_clone_is_made_the_next_run_waits_for_it", CRASH),
    ),
    (
        0,
        "a shrink that only the task can refuse",
        Test("a_task_that_refuses_to_shrink_is_told_with_its_words", RELEASES),
    ),
];

#[test]
fn every_report_has_a_test_or_a_reason() {
    for (number, right, answer) in &REPORTS {
        match answer {
            Test(name, file) => {
                let source = std::fs::read_to_string(lab::checkout().join(file)).unwrap();
                assert!(
                    source.contains(&format!("fn {name}()")),
                    "{number}: {right}: no test {name} in {file}"
                );
            }
            Limit(why) => assert!(!why.is_empty(), "{number}: {right}"),
        }
    }
}

#[test]
fn no_report_is_left_out() {
    let Ok(text) = std::fs::read_to_string(lab::checkout().join("../shared/reference/proxmox-api.md")) else {
        writeln!(std::io::stderr(), "skipped: no ../shared/reference/proxmox-api.md beside the checkout")
            .unwrap();
        return;
    };
    let section = text.split("\n## ").find(|section| section.starts_with("3.")).unwrap();
    let ranks: Vec<u32> =
        section.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
    let answered: Vec<u32> =
        REPORTS.iter().map(|(number, ..)| *number).filter(|number| *number > 0).collect();
    assert_eq!(answered, ranks);
}
