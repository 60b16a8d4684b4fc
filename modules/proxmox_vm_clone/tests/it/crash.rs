//! SIGKILL at every request of a run; the next run finishes what it finds.

use serde_json::json;

use crate::{Site, host, house, web01, web01_with};

#[test]
fn killed_at_any_request_the_next_run_finishes() {
    let site = Site::new(house());
    site.done(&host(1));
    let requests = u32::try_from(site.proxy.log().len()).unwrap();
    assert!(requests >= 10, "{requests}");
    for request in 1..=requests {
        let number = 1 + request;
        let options = site.with(&host(number));
        let killed = site.module.run_killed_at(&site.proxy, usize::try_from(request).unwrap(), &options);
        assert!(killed, "request {request} of {requests} was never sent");
        let result = site.done(&host(number));
        site.assert_host_built(number);
        assert_eq!(site.done(&host(number))["changed"], false, "request {request}: {result}");
    }
}

#[test]
fn killed_while_the_clone_is_made_the_next_run_waits_for_it() {
    let site = Site::new(house().time_scale(0.05).task_seconds(30.0, 0.0));
    let clone = 6;
    assert!(site.module.run_killed_at(&site.proxy, clone, &site.with(&web01())));
    let half_made = site.pve.vms().into_iter().find(|vm| vm["vmid"] == 1101).unwrap();
    assert_eq!(half_made["lock"], "clone", "{half_made}");
    site.done(&web01());
    site.assert_built();
    let clones = site.proxy.writes().into_iter().filter(|one| one.path.ends_with("/clone")).count();
    assert_eq!(clones, 1);
}

#[test]
fn until_it_is_configured_a_clone_says_so_and_gets_its_password_later() {
    let site = Site::new(house());
    site.proxy.on("PUT", "/config").always().answer(500, "internal error", "");
    site.failed(&web01_with(json!({"description": null})));
    let description = site.config()["description"].as_str().unwrap().to_owned();
    assert!(description.contains("not yet configured"), "{description}");
    assert!(site.config().get("cipassword").is_none());
    site.proxy.clear_faults();
    site.done(&web01_with(json!({"description": null})));
    assert!(site.config().get("description").is_none());
    assert_eq!(site.config()["cipassword"], "**********");
}

#[test]
fn a_lock_whose_clone_is_dead_is_told_with_the_cure() {
    let site = Site::new(house().vm(1101, "web01", "pve1", json!({})));
    site.proxy.on("GET", "/cluster/resources").always().rewrite_answer(|body| {
        let mut answer: serde_json::Value = serde_json::from_str(body).unwrap();
        for row in answer["data"].as_array_mut().unwrap().iter_mut().filter(|row| row["vmid"] == 1101) {
            row["lock"] = json!("clone");
        }
        answer.to_string()
    });
    let result = site.failed(&web01_with(json!({"timeout": 3})));
    assert_eq!(result["error_code"], "timeout", "{result}");
    assert!(result["msg"].as_str().unwrap().contains("qm destroy 1101 --skiplock"), "{result}");
    assert!(site.proxy.writes().is_empty());
}
