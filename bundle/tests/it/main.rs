//! What the collection says about itself, and what it says through Ansible.

#[cfg(test)]
mod checkout;
#[cfg(test)]
mod collection;
