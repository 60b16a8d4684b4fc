//! Made-up trees: what is printed in either form is read back as it was.

use std::fmt::Write;

use proptest::prelude::*;
use zfs::{Class, Pool, Vdev, VdevKind, parse_json_status, parse_status};

fn leaf(number: usize, class: Class, state: &str) -> Vdev {
    let path = format!("/dev/disk/by-id/scsi-{number}-part1");
    Vdev {
        name: path.clone(),
        kind: VdevKind::Leaf,
        class,
        state: state.into(),
        path: Some(path.into()),
        children: vec![],
    }
}

fn kinds() -> impl Strategy<Value = VdevKind> {
    prop_oneof![
        Just(VdevKind::Leaf),
        Just(VdevKind::Mirror),
        (1_u8..=3).prop_map(VdevKind::Raidz),
        Just(VdevKind::Other("draid1:2d:4c:0s".into())),
    ]
}

fn classes() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Normal),
        Just(Class::Special),
        Just(Class::Dedup),
        Just(Class::Log),
        Just(Class::Cache),
        Just(Class::Spare)
    ]
}

fn states() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("ONLINE"), Just("OFFLINE"), Just("FAULTED"), Just("REMOVED")]
}

/// Class by class, as ZFS prints them, data first.
fn pools() -> impl Strategy<Value = Pool> {
    let vdev = (kinds(), classes(), prop::collection::vec(states(), 1..5), any::<bool>());
    (prop::collection::vec(vdev, 1..6), "[a-z][a-z0-9 ]{0,8}[a-z0-9]").prop_map(|(shapes, name)| {
        let mut number = 0;
        let mut vdevs: Vec<Vdev> = Vec::new();
        for (index, (kind, class, members, replaces)) in shapes.into_iter().enumerate() {
            let class = if index == 0 { Class::Normal } else { class };
            let mut next = |state: &str| {
                number += 1;
                leaf(number, class, state)
            };
            if kind == VdevKind::Leaf {
                vdevs.extend(members.iter().map(|state| next(state)));
                continue;
            }
            let mut children: Vec<Vdev> = members.iter().map(|state| next(state)).collect();
            if replaces {
                let inner = vec![next("OFFLINE"), next("ONLINE")];
                children.push(group(
                    "replacing",
                    VdevKind::Other("replacing".into()),
                    children.len(),
                    class,
                    inner,
                ));
            }
            let word = match &kind {
                VdevKind::Mirror => "mirror".to_owned(),
                VdevKind::Raidz(parity) => format!("raidz{parity}"),
                VdevKind::Other(word) => word.clone(),
                VdevKind::Leaf => unreachable!("handled above"),
            };
            vdevs.push(group(&word, kind, index, class, children));
        }
        vdevs.sort_by_key(|vdev| vdev.class != Class::Normal);
        vdevs.sort_by_key(|vdev| vdev.class.heading() != "data");
        let mut sorted = Vec::new();
        for class in [Class::Normal, Class::Dedup, Class::Special, Class::Log, Class::Cache, Class::Spare] {
            sorted.extend(vdevs.iter().filter(|vdev| vdev.class == class).cloned());
        }
        Pool { name, state: "ONLINE".into(), guid: None, vdevs: sorted }
    })
}

fn group(word: &str, kind: VdevKind, index: usize, class: Class, children: Vec<Vdev>) -> Vdev {
    Vdev { name: format!("{word}-{index}"), kind, class, state: "ONLINE".into(), path: None, children }
}

fn to_text(pool: &Pool) -> String {
    let mut rows = vec![(0, pool.name.clone(), "ONLINE".to_owned())];
    let mut class = Class::Normal;
    for vdev in &pool.vdevs {
        if vdev.class != class {
            class = vdev.class;
            rows.push((0, class.heading().to_owned(), String::new()));
        }
        rows_of(vdev, 1, &mut rows);
    }
    let width = rows.iter().map(|(depth, name, _)| depth * 2 + name.len()).max().unwrap_or(0).max(10);
    let mut text = format!(
        "  pool: {}\n state: ONLINE\nconfig:\n\n\t{:width$}  STATE     READ WRITE CKSUM\n",
        pool.name, "NAME"
    );
    for (depth, name, state) in rows {
        let name = format!("{}{name}", "  ".repeat(depth));
        if state.is_empty() {
            writeln!(text, "\t{name}\t").unwrap();
        } else {
            writeln!(text, "\t{name:width$}  {state:8}     0     0     0").unwrap();
        }
    }
    text + "\nerrors: No known data errors\n"
}

fn rows_of(vdev: &Vdev, depth: usize, rows: &mut Vec<(usize, String, String)>) {
    rows.push((depth, vdev.name.clone(), vdev.state.clone()));
    vdev.children.iter().for_each(|child| rows_of(child, depth + 1, rows));
}

fn to_json(pool: &Pool) -> serde_json::Value {
    let of_class = |class: Class| {
        let vdevs = pool.vdevs.iter().filter(|vdev| vdev.class == class);
        vdevs.map(|vdev| (vdev.name.clone(), vdev_json(vdev))).collect::<serde_json::Map<_, _>>()
    };
    let mut object = serde_json::json!({"state": "ONLINE", "vdevs": {&pool.name: {"vdev_type": "root", "vdevs": of_class(Class::Normal)}}});
    for (key, class) in [
        ("dedup", Class::Dedup),
        ("special", Class::Special),
        ("logs", Class::Log),
        ("l2cache", Class::Cache),
        ("spares", Class::Spare),
    ] {
        let found = of_class(class);
        if !found.is_empty() {
            object[key] = found.into();
        }
    }
    serde_json::json!({"output_version": {}, "pools": {&pool.name: object}})
}

fn vdev_json(vdev: &Vdev) -> serde_json::Value {
    let kind = match &vdev.kind {
        VdevKind::Leaf => "disk",
        VdevKind::Raidz(_) => "raidz",
        VdevKind::Mirror => "mirror",
        VdevKind::Other(word) if word.starts_with("draid") => "draid",
        VdevKind::Other(word) => word,
    };
    let mut object = serde_json::json!({"vdev_type": kind, "state": vdev.state, "class": "normal"});
    if let Some(path) = &vdev.path {
        object["path"] = path.to_str().into();
    } else {
        object["vdevs"] = vdev
            .children
            .iter()
            .map(|child| (child.name.clone(), vdev_json(child)))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    object
}

proptest! {
    #[test]
    fn either_form_is_read_back_as_it_was(pool in pools()) {
        prop_assert_eq!(parse_status(&to_text(&pool)), Ok(vec![pool.clone()]));
        prop_assert_eq!(parse_json_status(&to_json(&pool).to_string()), Ok(vec![pool]));
    }

    #[test]
    fn no_text_breaks_a_parser(text in "\\PC{0,200}") {
        let _ = parse_json_status(&text);
        let _ = zfs::parse_label(&text);
        let _ = parse_status(&format!("  pool: x\n state: ONLINE\nconfig:\n\n\tNAME  STATE\n\t{text}\n"));
    }
}
