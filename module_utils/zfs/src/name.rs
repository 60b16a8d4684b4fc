//! Names that a pool may have.

/// Pools of the system itself: Proxmox VE boots from the first, others keep their kernels on the second.
const OF_THE_SYSTEM: [&str; 2] = ["rpool", "bpool"];

/// Words that begin no pool's name (`zpool_name_valid` of OpenZFS' lib/libzfs/libzfs_pool.c).
const RESERVED_BEGINNINGS: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// The longest name of a dataset, 255, leaves room for a child (`ZFS_MAX_DATASET_NAME_LEN`).
const LONGEST: usize = 200;

/// # Errors
/// Why no pool should be made with this name. ZFS would take a blank; tools that split at blanks would not.
pub fn check_pool_name(name: &str) -> Result<(), String> {
    if OF_THE_SYSTEM.contains(&name) {
        return Err(format!(
            "`{name}` is the name of a pool that the system itself lives on: choose another one"
        ));
    }
    if name == "log" || RESERVED_BEGINNINGS.iter().any(|word| name.starts_with(word)) {
        return Err(format!(
            "`{name}` is reserved by ZFS: expected a name that is not `log` and does not begin with {}",
            RESERVED_BEGINNINGS.join(", ")
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    let looks_like_a_disk = name.starts_with('c') && name[1..].starts_with(|c: char| c.is_ascii_digit());
    if !name.starts_with(|c: char| c.is_ascii_alphabetic())
        || !name.chars().all(plain)
        || looks_like_a_disk
        || name.len() > LONGEST
    {
        return Err(format!(
            "expected a letter, then letters, digits, `_`, `-`, `.` and `:`, not `c` and a digit at the beginning, at most \
             {LONGEST} characters, found `{name}`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_system_reserved_ones_and_odd_ones_are_refused() {
        for name in ["tank", "vmdata", "Tank-2", "a", "logs", "data_1.x:y", "mirage", "c-pool", "sparrow"] {
            assert_eq!(check_pool_name(name), Ok(()), "{name}");
        }
        for name in [
            "rpool",
            "bpool",
            "mirror",
            "mirror0",
            "raidz",
            "raidz1x",
            "draid",
            "spare",
            "spares",
            "log",
            "c0",
            "c0d0",
            "",
            "1tank",
            "-tank",
            "bad name",
            "tank/data",
            "tank@x",
            "täng",
            "a\nb",
            &"x".repeat(201),
        ] {
            assert!(check_pool_name(name).is_err(), "{name}");
        }
    }
}
