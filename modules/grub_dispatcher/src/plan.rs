//! Pure: what was asked and what was found make a refusal, or the new file.

use ansible_module::{Change, Failure, Plan};
use netboot::{Menu, Syntax, menu, without_block};
use serde_json::{Map, Value, json};

use crate::args::{Args, Presence};
use crate::observe::State;

/// The one write: the file's new content.
#[derive(Clone, Debug)]
pub(crate) struct Write(pub(crate) Vec<u8>);

pub(crate) fn plan(args: &Args, state: &State) -> Result<Plan<Write>, Failure> {
    let mut plan = Plan::new();
    let Some(wanted) = &state.wanted else { return Ok(plan) };
    if let Syntax::Faulty(after) = &state.after {
        let path = args.path();
        let path = path.display();
        if !matches!(state.before, Syntax::Faulty(_)) {
            return Err(Failure::refused(format!(
                "grub-script-check finds a fault in the new {path}: {after}"
            )));
        }
        plan.warn(format!("grub-script-check finds a fault in {path}, also without the block: {after}"));
    }
    if args.state == Presence::Present {
        warn_of_the_menu(&mut plan, menu(wanted));
    }
    if state.content.as_ref() != Some(wanted) {
        plan.step(
            Write(wanted.clone()),
            vec![Change::new("grub.cfg", text(state.content.as_deref()), text(Some(wanted)))],
        );
    }
    Ok(plan)
}

/// What machines without a file of their own meet.
fn warn_of_the_menu(plan: &mut Plan<Write>, menu: Menu) {
    if !menu.has_entries {
        plan.warn("grub.cfg has no menu entry: a machine without a file of its own stops at GRUB's prompt");
    } else if menu.timeout == Some(0) {
        plan.warn("grub.cfg sets timeout=0: a machine without a file of its own takes the first entry without asking");
    }
}

pub(crate) fn text(content: Option<&[u8]>) -> Value {
    content.map_or(Value::Null, |content| String::from_utf8_lossy(content).into())
}

pub(crate) fn report(args: &Args, state: &State, planned: Option<&Plan<Write>>) -> Map<String, Value> {
    let content = if planned.is_some() { &state.wanted } else { &state.content };
    let content = content.as_deref().unwrap_or_default();
    let has_block = without_block(content).is_ok_and(|rest| rest != content);
    let report = json!({
        "path": args.path(),
        "state": if has_block { "present" } else { "absent" },
        "menu_timeout": menu(content).timeout,
        "script_checked": state.after == Syntax::Sound,
    });
    Map::from_iter([("grub_dispatcher".to_owned(), report)])
}
