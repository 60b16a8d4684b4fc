//! What the collection says about itself, asked through Ansible.

#[cfg(test)]
mod checkout;
