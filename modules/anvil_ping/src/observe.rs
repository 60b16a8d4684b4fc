//! What the process can tell of itself and its host.

use std::os::unix::fs::MetadataExt;
use std::{env, fs};

use ansible_module::{ErrorCode, Failure};

/// Where and as whom this process runs.
#[derive(Debug)]
pub struct Surroundings {
    pub(crate) host: Option<String>,
    pub(crate) uid: u32,
    pub(crate) user: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) program: Option<String>,
}

pub(crate) fn surroundings() -> Result<Surroundings, Failure> {
    let uid = effective_uid()?;
    let path = |path: std::io::Result<std::path::PathBuf>| Some(path.ok()?.display().to_string());
    Ok(Surroundings {
        host: fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()),
        uid,
        user: fs::read_to_string("/etc/passwd").ok().and_then(|passwd| user_named(&passwd, uid)),
        cwd: path(env::current_dir()),
        program: path(env::current_exe()),
    })
}

/// proc(5): the directory of a process belongs to its effective user.
fn effective_uid() -> Result<u32, Failure> {
    let process = fs::metadata("/proc/self").map_err(|error| {
        Failure::new(
            ErrorCode::NOT_FOUND,
            format!("expected /proc to be mounted on the host: /proc/self: {error}"),
        )
    })?;
    Ok(process.uid())
}

fn user_named(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_uid_past_lines_that_are_none() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\n+nis\nweb:x:1000:0::/:/bin/sh\n";
        for (uid, user) in [(0, Some("root")), (1000, Some("web")), (1, None)] {
            assert_eq!(user_named(passwd, uid).as_deref(), user, "uid {uid}");
        }
    }
}
