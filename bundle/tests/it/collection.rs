//! The collection's table of contents is what lies in the checkout.

use std::fs;

use bundle::modules;

#[test]
fn every_crate_in_modules_is_in_the_bundle() {
    let mut crates: Vec<String> = fs::read_dir(lab::checkout().join("modules"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    crates.sort();
    let names: Vec<&str> = modules().iter().map(|module| module.name).collect();
    assert_eq!(names, crates);
}

#[test]
fn galaxy_and_cargo_say_the_same_version() {
    let galaxy = fs::read_to_string(lab::checkout().join("galaxy.yml")).unwrap();
    let version = galaxy.lines().find_map(|line| line.strip_prefix("version: "));
    assert_eq!(version, Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_readme_names_every_module() {
    let readme = fs::read_to_string(lab::checkout().join("README.md")).unwrap();
    let missing: Vec<&str> = modules()
        .iter()
        .map(|module| module.name)
        .filter(|name| !readme.contains(&format!("| `{name}` |")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
