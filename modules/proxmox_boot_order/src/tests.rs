//! The window as a table of logs, and the plans.

mod plans;
mod windows;
