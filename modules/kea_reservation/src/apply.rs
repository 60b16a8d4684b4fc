//! Every write.

pub(crate) mod kea;
pub(crate) mod opnsense;
