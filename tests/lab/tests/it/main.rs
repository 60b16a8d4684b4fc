//! The lab's own tests: a double that lies is worse than none.

mod guests;
mod lab;
mod proxy;
mod pve;
