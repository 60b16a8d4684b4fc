//! The block of `grub.cfg` by which GRUB takes a machine's own file.

use std::fmt;

use crate::mac_file::FILE_PREFIX;

const BEGIN: &str = "# BEGIN homelab.anvil grub_dispatcher";
const END: &str = "# END homelab.anvil grub_dispatcher";

/// The block. `[ -s ]` is the one test for a file that works over TFTP in GRUB 2.06 to 2.14; both paths are absolute,
/// as HTTP needs them. `$fw_path` is the directory of the loader (Red Hat's GRUB, and Debian's from 2.12 on), where GRUB
/// has its prefix elsewhere; without one it is the root of the server. `configfile` ends in the machine's own menu, and
/// comes back only when somebody leaves that.
#[must_use]
pub fn block(menu_timeout: u32) -> String {
    format!(
        "{BEGIN}\n\
         # A machine with a file of its own takes it; every other one goes on to the menu below.\n\
         if [ -n \"$net_default_mac\" ]; then\n  \
           if [ -s \"$prefix/{FILE_PREFIX}$net_default_mac\" ]; then\n    \
             configfile \"$prefix/{FILE_PREFIX}$net_default_mac\"\n  \
           elif [ -s \"$fw_path/{FILE_PREFIX}$net_default_mac\" ]; then\n    \
             configfile \"$fw_path/{FILE_PREFIX}$net_default_mac\"\n  \
           fi\n\
         fi\n\
         set timeout={menu_timeout}\n\
         {END}\n"
    )
}

/// What a `grub.cfg` gets below the block when there was none: GRUB would show its prompt instead of a menu.
pub const FIRST_MENU: &str =
    "\nmenuentry 'Go on without the network' {\n  exit 1\n}\nmenuentry 'Firmware setup' {\n  fwsetup\n}\n";

/// The marks of the block are not a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenMarks {
    line: usize,
    why: &'static str,
}

impl fmt::Display for BrokenMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for BrokenMarks {}

/// A `grub.cfg` with this block: where it has one, that is replaced; else it comes first, before anything that takes
/// long or decides something. `None` takes the block out. Every other byte stays.
///
/// # Errors
/// [`BrokenMarks`]: a beginning without an end, an end without a beginning, or a second block.
pub fn with_block(config: &[u8], block: Option<&str>) -> Result<Vec<u8>, BrokenMarks> {
    let (before, after) = match find(config)? {
        Some((start, end)) => (&config[..start], &config[end..]),
        None => (&config[..0], config),
    };
    Ok([before, block.unwrap_or_default().as_bytes(), after].concat())
}

/// The bytes of a `grub.cfg` that are not the block's.
///
/// # Errors
/// [`BrokenMarks`].
pub fn without_block(config: &[u8]) -> Result<Vec<u8>, BrokenMarks> {
    with_block(config, None)
}

/// Where the block begins, and where it has ended.
fn find(config: &[u8]) -> Result<Option<(usize, usize)>, BrokenMarks> {
    let (mut begun, mut found, mut at) = (None, None, 0);
    for (index, line) in config.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let fail = |why| Err(BrokenMarks { line: index + 1, why });
        match (line.trim_ascii(), begun) {
            (mark, None) if mark == BEGIN.as_bytes() && found.is_none() => begun = Some((at, index + 1)),
            (mark, _) if mark == BEGIN.as_bytes() => return fail("a second block of grub_dispatcher begins"),
            (mark, Some((start, _))) if mark == END.as_bytes() => {
                found = Some((start, at + line.len()));
                begun = None;
            }
            (mark, None) if mark == END.as_bytes() => {
                return fail("a block of grub_dispatcher ends that did not begin");
            }
            _ => {}
        }
        at += line.len();
    }
    match begun {
        Some((_, line)) => {
            Err(BrokenMarks { line, why: "a block of grub_dispatcher begins that does not end" })
        }
        None => Ok(found),
    }
}

/// What a machine without a file of its own gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Seconds; -1 waits for ever. None where nothing sets it to a number.
    pub timeout: Option<i64>,
    /// Whether anything in the file itself or in a file that it loads can be chosen.
    pub has_entries: bool,
}

/// Reads the menu out of a `grub.cfg`, block included: the last `set timeout=` counts.
#[must_use]
pub fn menu(config: &[u8]) -> Menu {
    let text = String::from_utf8_lossy(config);
    let lines = || text.lines().map(str::trim_start);
    let value = |line: &str| {
        let value = line.strip_prefix("set ").unwrap_or(line).trim_start().strip_prefix("timeout=")?;
        value.split([' ', ';', '#']).next()?.trim_matches(['"', '\'']).parse().ok()
    };
    let in_block = |line: &&str| line.contains("$net_default_mac");
    let offers = |line: &str| {
        ["menuentry", "submenu", "configfile", "source", ".", "blscfg", "normal"]
            .contains(&line.split_whitespace().next().unwrap_or_default())
    };
    Menu {
        timeout: lines().filter_map(value).next_back(),
        has_entries: lines().filter(|line| !in_block(line)).any(offers),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_block_is_this() {
        insta::assert_snapshot!(block(30), @r#"
        # BEGIN homelab.anvil grub_dispatcher
        # A machine with a file of its own takes it; every other one goes on to the menu below.
        if [ -n "$net_default_mac" ]; then
          if [ -s "$prefix/grub.cfg-$net_default_mac" ]; then
            configfile "$prefix/grub.cfg-$net_default_mac"
          elif [ -s "$fw_path/grub.cfg-$net_default_mac" ]; then
            configfile "$fw_path/grub.cfg-$net_default_mac"
          fi
        fi
        set timeout=30
        # END homelab.anvil grub_dispatcher
        "#);
    }

    #[test]
    fn it_comes_first_and_is_replaced_where_it_stands() {
        let menu = b"set default=1\r\nmenuentry 'caf\xe9' { true; }";
        let first = with_block(menu, Some(&block(30))).unwrap();
        assert_eq!(first, [block(30).as_bytes(), menu].concat());
        let moved = [b"# mine\n", first.as_slice()].concat();
        let again = with_block(&moved, Some(&block(5))).unwrap();
        assert_eq!(again, [b"# mine\n", block(5).as_bytes(), menu].concat());
        assert_eq!(without_block(&again).unwrap(), [b"# mine\n", &menu[..]].concat());
    }

    #[test]
    fn marks_that_are_no_pair_are_named_by_line() {
        for (text, said) in [
            (format!("true\n{BEGIN}\ntrue\n"), "line 2: a block of grub_dispatcher begins that does not end"),
            (format!("{END}\n"), "line 1: a block of grub_dispatcher ends that did not begin"),
            (format!("{BEGIN}\n{BEGIN}\n{END}\n"), "line 2: a second block of grub_dispatcher begins"),
            (format!("{BEGIN}\n{END}\n{BEGIN}\n{END}\n"), "line 3: a second block of grub_dispatcher begins"),
        ] {
            assert_eq!(with_block(text.as_bytes(), Some("x")).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn the_menu_is_read_as_grub_would_set_it() {
        let of = |rest: &str| menu(&with_block(rest.as_bytes(), Some(&block(30))).unwrap());
        let seen = |rest: &str| (of(rest).timeout, of(rest).has_entries);
        assert_eq!(seen(""), (Some(30), false));
        assert_eq!(seen(FIRST_MENU), (Some(30), true));
        assert_eq!(seen("set timeout=\"5\"\nsource $prefix/x86_64-efi/grub.cfg\n"), (Some(5), true));
        assert_eq!(seen("timeout=-1; export timeout\nsubmenu 'x' {\n}\n"), (Some(-1), true));
        assert_eq!(seen("set timeout=$t\n  menuentry 'x' { true; }"), (Some(30), true));
    }

    proptest! {
        #[test]
        fn a_block_goes_in_once_and_comes_out_again(rest: Vec<u8>, timeout: u32) {
            let with = with_block(&rest, Some(&block(timeout))).unwrap();
            prop_assert_eq!(with_block(&with, Some(&block(timeout))).unwrap(), with.clone());
            prop_assert_eq!(without_block(&with).unwrap(), rest);
        }
    }
}
