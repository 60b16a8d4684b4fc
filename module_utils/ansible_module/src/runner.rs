//! A module's life: observe → plan → apply → read back, owned here so that no module can report
//! `changed` by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use deadline::Deadline;
use serde_json::{Map, Value, json};

use crate::arguments::{self, Arguments, Internal};
use crate::failure::{ErrorCode, Failure};
use crate::plan::{Change, Plan, Proof, Step};
use crate::run::Run;
use crate::spec::Spec;
use crate::{cli, lock, output};

/// One Ansible module.
pub trait Module: Sized {
    /// What is observed: the module's picture of the real state.
    type State;
    /// One write, as data; what it carries out stands in [`Module::apply`].
    type Action;

    /// The module's name, option table and documentation.
    fn spec() -> Spec;

    /// From coerced arguments to a checked module. Everything that can be judged without asking
    /// anybody is judged here; no connection is needed yet.
    ///
    /// # Errors
    /// `bad_argument`.
    fn new(arguments: &Arguments, run: &Run) -> Result<Self, Failure>;

    /// What is worked on, for messages and the diff's header: `vm 101 (web01)`.
    fn subject(&self) -> String {
        Self::spec().name.to_owned()
    }

    /// The object to lock on this machine while working (`vm 101 on pve.example`); none by default.
    fn lock(&self) -> Option<String> {
        None
    }

    /// Reads the real state. No writes, ever. It is called once for a run that finds nothing to do,
    /// and again after each stage of a plan.
    ///
    /// # Errors
    /// Whatever reading can meet.
    fn observe(&mut self, run: &Run) -> Result<Self::State, Failure>;

    /// Pure: refuses, or lists the writes.
    ///
    /// # Errors
    /// `refused`, `conflict`, `not_found`.
    fn plan(&self, state: &Self::State) -> Result<Plan<Self::Action>, Failure>;

    /// Carries out one write. `state` is the last observation, made before this stage of the plan.
    ///
    /// # Errors
    /// Whatever writing can meet.
    fn apply(&mut self, action: &Self::Action, state: &Self::State, run: &Run) -> Result<(), Failure>;

    /// Pure: did this change take, judged by a fresh observation?
    fn proof(&self, change: &Change, state: &Self::State) -> Proof;

    /// The result's own keys (`vm`, `reservation`), in the system's field names. `planned` is the plan
    /// that check mode did not carry out: report the object as it would be.
    fn report(&self, state: &Self::State, planned: Option<&Plan<Self::Action>>) -> Map<String, Value>;

    /// Before/after texts of a module that changes a file; by default one line a changed field.
    fn diff(&self, plan: &Plan<Self::Action>, _state: &Self::State) -> Value {
        output::diff(&self.subject(), plan.changes())
    }

    /// Takes back what must not be left behind when a run ends early after its first write
    /// (a failure, a signal, the deadline). By default nothing: the next run repairs.
    fn undo(&mut self, _failure: &Failure, _run: &Run) {}

    /// Requests by method, shown from `-vv` on.
    fn api_calls(&self) -> Option<BTreeMap<String, u64>> {
        None
    }
}

/// A whole run: raw arguments in, the result object out.
pub(crate) fn run<M: Module>(mut raw: Map<String, Value>) -> Map<String, Value> {
    let spec = M::spec();
    let internal = Internal::take_from(&mut raw);
    let checked = match arguments::check(&spec, raw, internal.ignore_unknown_options) {
        Ok(checked) => checked,
        Err(failure) => return output::failed(&failure),
    };
    let timeout = match checked.arguments.timeout() {
        Ok(timeout) => timeout,
        Err(failure) => return output::failed(&failure),
    };
    let run = Run::new(&internal, Deadline::after(Duration::from_secs(timeout)));
    checked.warnings.into_iter().for_each(|warning| run.warn(warning));
    cli::watch_signals(run.deadline.interrupt_flag());

    let mut result = match M::new(&checked.arguments, &run) {
        Ok(mut module) => {
            let mut result = live(&mut module, &run).unwrap_or_else(|failure| output::failed(&failure));
            if let (true, Some(calls)) = (run.verbosity >= 2, module.api_calls()) {
                result.insert("api_calls".into(), json!(calls));
            }
            result
        }
        Err(failure) => output::failed(&failure),
    };
    let warnings = run.take_warnings();
    if !warnings.is_empty() {
        result.insert("warnings".into(), warnings.into());
    }
    if internal.inject_invocation.unwrap_or(true) && !internal.no_log {
        let module_args = checked.arguments.masked(&spec.full_table());
        result.insert("invocation".into(), json!({ "module_args": module_args }));
    }
    result
}

fn live<M: Module>(module: &mut M, run: &Run) -> Result<Map<String, Value>, Failure> {
    let _lock = match module.lock() {
        Some(object) if !run.check_mode => Some(lock::acquire(&object, run)?),
        _ => None,
    };
    let state = module.observe(run)?;
    let plan = module.plan(&state)?;
    plan.warnings.iter().for_each(|warning| run.warn(warning));
    let diff = (run.diff && !plan.is_empty()).then(|| module.diff(&plan, &state));

    let mut result = if plan.is_empty() {
        module.report(&state, None)
    } else if run.check_mode {
        module.report(&state, Some(&plan))
    } else {
        carry_out(module, &plan, state, run)?
    };
    result.insert("changed".into(), (!plan.is_empty()).into());
    if let Some(diff) = diff {
        result.insert("diff".into(), diff);
    }
    Ok(result)
}

/// Stage by stage: write, observe, prove.
fn carry_out<M: Module>(
    module: &mut M,
    plan: &Plan<M::Action>,
    mut state: M::State,
    run: &Run,
) -> Result<Map<String, Value>, Failure> {
    let mut written: Vec<&Change> = Vec::new();
    let mut read_back = ReadBack::default();
    for stage in plan.stages() {
        state = match stage_done(module, &stage, &state, run, &mut written, &mut read_back) {
            Ok(state) => state,
            Err(failure) => {
                if !written.is_empty() {
                    module.undo(&failure, run);
                }
                return Err(told_what_was_written(failure, &written));
            }
        };
    }
    let mut result = module.report(&state, None);
    result.insert("read_back".into(), read_back.into_value());
    Ok(result)
}

fn stage_done<'p, M: Module>(
    module: &mut M,
    stage: &[&'p Step<M::Action>],
    state: &M::State,
    run: &Run,
    written: &mut Vec<&'p Change>,
    read_back: &mut ReadBack,
) -> Result<M::State, Failure> {
    for step in stage {
        run.check()?;
        // Counted before it is sent: a write whose answer is lost may have happened.
        written.extend(&step.changes);
        output::writing_begins();
        module.apply(&step.action, state, run).inspect_err(|failure| {
            if failure.nothing_sent {
                written.truncate(written.len() - step.changes.len());
            }
        })?;
    }
    let observed =
        module.observe(run).map_err(|failure| failure.while_doing("reading back what was written"))?;
    let changes = stage.iter().flat_map(|step| &step.changes);
    read_back.judge(changes, |change| module.proof(change, &observed), &module.subject())?;
    Ok(observed)
}

/// A failure after the first write says so: `changed` is true, with the fields that were written.
fn told_what_was_written(failure: Failure, written: &[&Change]) -> Failure {
    if written.is_empty() {
        return failure;
    }
    let fields: Vec<&str> = written.iter().map(|change| change.field.as_str()).collect();
    failure.with("changed", true).with("written", fields)
}

/// The proofs of a run, as `read_back` in the result.
#[derive(Default)]
struct ReadBack {
    held: Vec<String>,
    pending: Map<String, Value>,
    unreadable: Map<String, Value>,
}

impl ReadBack {
    fn judge<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        proof: impl Fn(&Change) -> Proof,
        subject: &str,
    ) -> Result<(), Failure> {
        let mut mismatches = Vec::new();
        for change in changes {
            let field = change.field.clone();
            match proof(change) {
                Proof::Held => self.held.push(field),
                Proof::Pending(why) => drop(self.pending.insert(field, why.into())),
                Proof::Unreadable(why) => drop(self.unreadable.insert(field, why.into())),
                Proof::Mismatch { found } => mismatches.push((change, found)),
            }
        }
        if mismatches.is_empty() { Ok(()) } else { Err(mismatch(subject, &mismatches)) }
    }

    fn into_value(self) -> Value {
        let mut value = json!({ "held": self.held });
        for (name, reasons) in [("pending", self.pending), ("unreadable", self.unreadable)] {
            if !reasons.is_empty() {
                value[name] = reasons.into();
            }
        }
        value
    }
}

fn mismatch(subject: &str, mismatches: &[(&Change, Value)]) -> Failure {
    let show = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        Value::String(s) => format!("`{s}`"),
        other => format!("`{other}`"),
    };
    let sentences: Vec<String> = mismatches
        .iter()
        .map(|(change, found)| {
            format!("`{}`: asked for {}, reads back {}", change.field, show(&change.after), show(found))
        })
        .collect();
    let objects: Vec<Value> = mismatches
        .iter()
        .map(|(change, found)| json!({"field": change.field, "expected": change.after, "found": found}))
        .collect();
    let (first, found) = &mismatches[0];
    Failure::new(
        ErrorCode::READ_BACK_MISMATCH,
        format!("{subject}: the write was accepted and did not take: {}", sentences.join("; ")),
    )
    .with("field", first.field.clone())
    .with("expected", first.after.clone())
    .with("found", found.clone())
    .with("mismatches", objects)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::spec::{Opt, Table};

    /// A module over a tiny world: a name and a switch; the switch stands behind a gate.
    struct Lamp {
        asked: Asked,
        world: World,
    }

    #[derive(Deserialize)]
    struct Asked {
        name: String,
        on: bool,
        #[serde(default)]
        fault: String,
    }

    #[derive(Clone, Default)]
    struct World {
        name: String,
        on: bool,
        observed: u64,
    }

    enum Write {
        Name,
        On,
    }

    impl Module for Lamp {
        type State = World;
        type Action = Write;

        fn spec() -> Spec {
            Spec::new("lamp", "A lamp").options(Table::new(vec![
                Opt::str("name").required(),
                Opt::bool("on").default(true),
                Opt::str("fault").default(""),
                Opt::str("pin").no_log(),
            ]))
        }

        fn new(arguments: &Arguments, _run: &Run) -> Result<Self, Failure> {
            Ok(Self { asked: arguments.parse()?, world: World::default() })
        }

        fn observe(&mut self, _run: &Run) -> Result<World, Failure> {
            self.world.observed += 1;
            Ok(self.world.clone())
        }

        fn plan(&self, state: &World) -> Result<Plan<Write>, Failure> {
            let mut plan = Plan::new();
            if state.name != self.asked.name {
                plan.step(
                    Write::Name,
                    vec![Change::new("name", state.name.clone(), self.asked.name.clone())],
                );
            }
            plan.gate();
            if state.on != self.asked.on {
                plan.step(Write::On, vec![Change::new("on", state.on, self.asked.on)]);
            }
            Ok(plan)
        }

        fn apply(&mut self, action: &Write, _state: &World, _run: &Run) -> Result<(), Failure> {
            match action {
                Write::Name if self.asked.fault == "name dropped" => {}
                Write::Name if self.asked.fault == "no hands" => {
                    return Err(Failure::new(ErrorCode::API_ERROR, "nothing was sent").nothing_sent());
                }
                Write::Name => self.world.name = self.asked.name.clone(),
                Write::On if self.asked.fault == "switch broken" => {
                    return Err(Failure::new(ErrorCode::API_ERROR, "the switch is broken"));
                }
                Write::On => self.world.on = self.asked.on,
            }
            Ok(())
        }

        fn proof(&self, change: &Change, state: &World) -> Proof {
            match change.field.as_str() {
                "name" => Proof::equal(&change.after, state.name.clone()),
                _ => Proof::equal(&change.after, state.on),
            }
        }

        fn report(&self, state: &World, planned: Option<&Plan<Write>>) -> Map<String, Value> {
            let name = if planned.is_some() { &self.asked.name } else { &state.name };
            let lamp = json!({"lamp": {"name": name, "on": state.on, "observed": state.observed}});
            lamp.as_object().cloned().unwrap_or_default()
        }
    }

    fn run_lamp(arguments: Value) -> Value {
        let Value::Object(raw) = arguments else { panic!("an object") };
        Value::Object(run::<Lamp>(raw))
    }

    #[test]
    fn a_run_writes_stage_by_stage_and_proves_each() {
        insta::assert_json_snapshot!(
            run_lamp(json!({"name": "desk", "_ansible_diff": true, "_ansible_inject_invocation": false})), @r#"
        {
          "lamp": {
            "name": "desk",
            "on": true,
            "observed": 3
          },
          "read_back": {
            "held": [
              "name",
              "on"
            ]
          },
          "changed": true,
          "diff": {
            "before_header": "lamp",
            "after_header": "lamp",
            "before": "name: \non: false\n",
            "after": "name: desk\non: true\n"
          }
        }
        "#);
    }

    #[test]
    fn nothing_to_do_is_one_observation() {
        let result = run_lamp(json!({"name": "", "on": false}));
        assert_eq!(result["changed"], false);
        assert_eq!(result["lamp"]["observed"], 1);
    }

    #[test]
    fn check_mode_only_observes_and_reports_what_would_be() {
        let result = run_lamp(json!({"name": "desk", "_ansible_check_mode": true}));
        assert_eq!(result["changed"], true);
        assert_eq!(result["lamp"], json!({"name": "desk", "on": false, "observed": 1}));
        assert!(result.get("diff").is_none(), "a diff only when asked");
    }

    #[test]
    fn what_stands_behind_a_gate_is_not_sent_when_the_proof_fails() {
        insta::assert_json_snapshot!(
            run_lamp(json!({"name": "desk", "fault": "name dropped", "_ansible_inject_invocation": false})), @r#"
        {
          "field": "name",
          "expected": "desk",
          "found": "",
          "mismatches": [
            {
              "field": "name",
              "expected": "desk",
              "found": ""
            }
          ],
          "changed": true,
          "written": [
            "name"
          ],
          "failed": true,
          "msg": "lamp: the write was accepted and did not take: `name`: asked for `desk`, reads back ``",
          "error_code": "read_back_mismatch"
        }
        "#);
    }

    #[test]
    fn a_failure_after_a_write_says_what_was_written() {
        let result = run_lamp(json!({"name": "desk", "fault": "switch broken"}));
        assert_eq!(result["failed"], true);
        assert_eq!(result["changed"], true);
        assert_eq!(result["written"], json!(["name", "on"]));
        assert_eq!(result["error_code"], "api_error");
    }

    #[test]
    fn a_write_that_did_not_begin_is_not_called_written() {
        let result = run_lamp(json!({"name": "desk", "fault": "no hands"}));
        assert_eq!(result["failed"], true);
        assert_eq!(result["changed"], false);
        assert!(result.get("written").is_none(), "{result}");
    }

    #[test]
    fn the_invocation_masks_secrets() {
        let result = run_lamp(json!({"name": "x", "pin": "4711-unguessable"}));
        assert_eq!(result["invocation"]["module_args"]["pin"], "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER");
        assert_eq!(result["invocation"]["module_args"]["timeout"], 60);
    }

    #[test]
    fn no_log_and_2_21_leave_the_invocation_out() {
        for key in [
            json!({"name": "x", "_ansible_no_log": true}),
            json!({"name": "x", "_ansible_inject_invocation": false}),
        ] {
            assert!(run_lamp(key).get("invocation").is_none());
        }
    }
}
