//! Ansible's contract for a binary module, and the runner that owns a module's life.
//!
//! A module implements [`Module`]: an option table ([`Spec`]), and the four steps
//! observe → plan → apply → read back. The runner does the rest: arguments (a file named in argv[1],
//! or standard input), coercion as AnsibleModule does it, check mode, diff, locks, the deadline,
//! signals, secrets, and one JSON object on standard output.
//!
//! ```no_run
//! use ansible_module::{Arguments, Change, Failure, Module, Plan, Proof, Run, Spec};
//! # use serde_json::{Map, Value};
//! struct Motd { text: String }
//! # impl Module for Motd {
//! #   type State = String; type Action = ();
//! #   fn spec() -> Spec { Spec::new("motd", "Sets the message of the day") }
//! #   fn new(_: &Arguments, _: &Run) -> Result<Self, Failure> { unimplemented!() }
//! #   fn observe(&mut self, _: &Run) -> Result<String, Failure> { unimplemented!() }
//! #   fn plan(&self, _: &String) -> Result<Plan<()>, Failure> { unimplemented!() }
//! #   fn apply(&mut self, _: &(), _: &String, _: &Run) -> Result<(), Failure> { unimplemented!() }
//! #   fn proof(&self, _: &Change, _: &String) -> Proof { unimplemented!() }
//! #   fn report(&self, _: &String, _: Option<&Plan<()>>) -> Map<String, Value> { unimplemented!() }
//! # }
//! fn main() -> std::process::ExitCode {
//!     ansible_module::main(&[ansible_module::Entry::of::<Motd>()])
//! }
//! ```
//!
//! This crate knows no domain: nothing in it names Proxmox, DHCP or disks.

mod arguments;
mod cli;
mod coerce;
mod docs;
mod failure;
mod lock;
mod output;
mod plan;
mod run;
mod runner;
mod secrets;
mod spec;

pub use arguments::{Arguments, Internal};
pub use cli::{Entry, main};
pub use docs::{documentation, examples, returns};
pub use failure::{ErrorCode, Failure};
pub use plan::{Change, Item, Plan, Proof, Step};
pub use run::Run;
pub use runner::Module;
pub use spec::{Kind, Opt, Rule, Spec, Table};
