//! ansible_module
