//! Pure: what was asked and what was found make a refusal, or the files to remove and to write.

use std::collections::BTreeMap;

use ansible_module::{Change, ErrorCode, Failure, Plan, Proof};
use netboot::{Mode, Ownership, Syntax, no_directory};
use serde_json::{Map, Value, json};

use crate::args::{Args, WantedFile};
use crate::observe::{Found, State};

/// Readable for everybody: tftpd-hpa serves nothing else.
pub(crate) const MODE: u32 = 0o644;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Remove { name: String },
    Write { name: String, content: String },
}

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Action>, Failure> {
    if let Syntax::Faulty(said) = &state.syntax {
        return Err(Failure::refused(format!("grub-script-check finds a fault in the script: {said}")));
    }
    if !state.exists && !args.wanted.is_empty() {
        return Err(Failure::not_found(no_directory(&args.prefix_dir)));
    }
    args.wanted.iter().try_for_each(|file| free_or_ours(args, state, file))?;
    let mut plan = Plan::new();
    // First: what was left behind may install a machine at its next boot.
    for (name, found) in leftovers(args, state) {
        plan.step(Action::Remove { name: name.clone() }, vec![Change::new(name, text(found), Value::Null)]);
    }
    for file in &args.wanted {
        let changes = changes(state, file);
        if !changes.is_empty() {
            plan.step(Action::Write { name: file.name.clone(), content: file.content.clone() }, changes);
        }
    }
    Ok(plan)
}

/// A name of ours may be taken by a file of somebody else.
fn free_or_ours(args: &Args, state: &State, file: &WantedFile) -> Result<(), Failure> {
    let Some(found) = state.files.get(&file.name) else { return Ok(()) };
    let path = args.prefix_dir.join(&file.name);
    let path = path.display();
    let conflict = |msg: String| Err(Failure::new(ErrorCode::CONFLICT, msg).with("file", path.to_string()));
    match (found, found.ownership()) {
        (_, Some(owner)) if is_ours(args, &owner.host) => Ok(()),
        (_, Some(owner)) => conflict(format!(
            "{path} is a file of the host {}: the address {} can belong to one host only. If {} has it no more, take its \
             files away first (`host: {0}`, `state: absent`)",
            owner.host, file.mac, owner.host
        )),
        (Found::Other(what), None) => {
            conflict(format!("{path} is {what}, and not ours: nothing was touched; move it away"))
        }
        (Found::File { .. }, None) => conflict(format!(
            "{path} was written by somebody else (its first line does not say that it is managed): nothing was touched. \
             Move it away, and run this again"
        )),
    }
}

/// This host's, or of a host that is to have no files any more.
fn is_ours(args: &Args, host: &str) -> bool {
    args.host.as_deref() == Some(host) || args.listed.as_ref().is_some_and(|listed| !listed.contains(host))
}

fn leftovers<'s>(args: &Args, state: &'s State) -> Vec<(&'s String, &'s Found)> {
    let is_wanted = |name: &String| args.wanted.iter().any(|file| file.name == *name);
    let is_leftover = |found: &Found| found.ownership().is_some_and(|owner| is_ours(args, &owner.host));
    state.files.iter().filter(|(name, found)| !is_wanted(name) && is_leftover(found)).collect()
}

fn changes(state: &State, file: &WantedFile) -> Vec<Change> {
    let found = state.files.get(&file.name);
    let mut changes = Vec::new();
    let mut compare = |field: String, before: Value, after: Value| {
        if before != after {
            changes.push(Change::new(field, before, after));
        }
    };
    compare(file.name.clone(), found.map_or(Value::Null, text), file.content.clone().into());
    if let Some(Found::File { mode, owner, .. }) = found {
        compare(format!("{}{}", file.name, Attribute::Mode.suffix()), mode_text(*mode), mode_text(MODE));
        compare(
            format!("{}{}", file.name, Attribute::Owner.suffix()),
            owner_text(*owner),
            owner_text(state.owner),
        );
    }
    if state.mislabelled.contains(&file.name) {
        let field = format!("{}{}", file.name, Attribute::Label.suffix());
        compare(field, "another one".into(), LABELLED.into());
    }
    changes
}

const LABELLED: &str = "the label of the place";

#[derive(Clone, Copy)]
enum Attribute {
    Mode,
    Owner,
    Label,
}

impl Attribute {
    const ALL: [Self; 3] = [Self::Mode, Self::Owner, Self::Label];

    fn suffix(self) -> &'static str {
        match self {
            Self::Mode => " mode",
            Self::Owner => " owner",
            Self::Label => " selinux",
        }
    }
}

fn text(found: &Found) -> Value {
    match found {
        Found::File { content, .. } => String::from_utf8_lossy(content).into(),
        Found::Other(what) => (*what).into(),
    }
}

fn mode_text(mode: u32) -> Value {
    format!("{mode:04o}").into()
}

fn owner_text((uid, gid): (u32, u32)) -> Value {
    format!("{uid}:{gid}").into()
}

pub(crate) fn proof(change: &Change, state: &State) -> Proof {
    let of = |name: &str| state.files.get(name);
    let attribute = Attribute::ALL
        .into_iter()
        .find_map(|attribute| Some((attribute, change.field.strip_suffix(attribute.suffix())?)));
    let found = match attribute {
        None => of(&change.field).map_or(Value::Null, text),
        Some((Attribute::Label, name)) if !state.mislabelled.contains(name) => LABELLED.into(),
        Some((Attribute::Label, _)) => "another one".into(),
        Some((attribute, name)) => match (attribute, of(name)) {
            (Attribute::Mode, Some(Found::File { mode, .. })) => mode_text(*mode),
            (_, Some(Found::File { owner, .. })) => owner_text(*owner),
            _ => Value::Null,
        },
    };
    Proof::equal(&change.after, found)
}

pub(crate) fn report(args: &Args, state: &State, planned: Option<&Plan<Action>>) -> Map<String, Value> {
    let mut present: BTreeMap<String, Option<Ownership>> =
        state.files.iter().map(|(name, found)| (name.clone(), found.ownership())).collect();
    for step in planned.into_iter().flat_map(Plan::steps) {
        match &step.action {
            Action::Remove { name } => drop(present.remove(name)),
            Action::Write { name, content } => {
                drop(present.insert(name.clone(), Ownership::of(content.as_bytes())));
            }
        }
    }
    let mut files: Vec<&String> =
        args.wanted.iter().map(|file| &file.name).filter(|name| present.contains_key(*name)).collect();
    let mut others: BTreeMap<&str, Mode> = BTreeMap::new();
    for (name, owner) in present.iter().filter_map(|(name, owner)| Some((name, owner.as_ref()?))) {
        if args.host.as_ref() != Some(&owner.host) {
            let mode = others.entry(&owner.host).or_insert(owner.mode);
            if owner.mode == Mode::Install {
                *mode = Mode::Install;
            }
        } else if !files.contains(&name) {
            files.push(name);
        }
    }
    let report = json!({
        "host": args.host,
        "macs": args.macs(),
        "mode": args.mode,
        "prefix_dir": args.prefix_dir,
        "files": files,
        "other_hosts": others,
        "script_checked": state.syntax == Syntax::Sound,
    });
    Map::from_iter([("grub_mac".to_owned(), report)])
}

/// One text for all files that change alike: a host's six are six times the same.
pub(crate) fn diff(plan: &Plan<Action>) -> Value {
    let mut alike: Vec<(Vec<&str>, String, String)> = Vec::new();
    for step in plan.steps() {
        let (Action::Remove { name } | Action::Write { name, .. }) = &step.action;
        let (before, after) = (
            side(name, &step.changes, |change| &change.before),
            side(name, &step.changes, |change| &change.after),
        );
        match alike.iter_mut().find(|(_, b, a)| (b, a) == (&before, &after)) {
            Some((names, _, _)) => names.push(name),
            None => alike.push((vec![name], before, after)),
        }
    }
    let entries = alike.into_iter().map(|(names, before, after)| {
        let header = names.join(", ");
        json!({"before_header": header, "after_header": header, "before": before, "after": after})
    });
    entries.collect()
}

fn side(name: &str, changes: &[Change], value: impl Fn(&Change) -> &Value) -> String {
    let mut text = String::new();
    for change in changes {
        let Some(shown) = value(change).as_str() else { continue };
        match change.field.strip_prefix(name) {
            Some("") => text.push_str(shown),
            Some(attribute) => text.push_str(&format!("{}: {shown}\n", attribute.trim_start())),
            None => {}
        }
    }
    text
}
