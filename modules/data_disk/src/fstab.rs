//! `/etc/fstab`: one line between two marks; every other byte stays as it is. Pure.

use std::fmt;
use std::path::Path;

/// A line that mounts something, ours or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) spec: String,
    pub(crate) file: String,
    /// The serial number of the block the line stands in.
    pub(crate) serial: Option<String>,
    /// The line as it stands.
    pub(crate) text: String,
}

/// Marks without each other: somebody edited them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenMarks {
    pub(crate) number: usize,
}

impl fmt::Display for BrokenMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the mark in line {} of /etc/fstab has no counterpart: repair or remove the block by hand",
            self.number
        )
    }
}

const BEGIN: &str = "# BEGIN homelab.anvil data_disk ";
const END: &str = "# END homelab.anvil data_disk ";

/// The line for a disk; fields escaped as fstab(5) wants it.
pub(crate) fn line(uuid: &str, path: &Path, fstype: &str, opts: &[String]) -> String {
    format!("UUID={uuid} {} {fstype} {} 0 2", escape(&path.to_string_lossy()), opts.join(","))
}

/// Every line that mounts something.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut block: Option<String> = None;
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(serial) = line.strip_prefix(BEGIN) {
            block = Some(serial.to_owned());
        } else if line.starts_with(END) {
            block = None;
        }
        let mut fields = line.split_ascii_whitespace();
        if let (Some(spec), Some(file)) = (fields.next().filter(|spec| !spec.starts_with('#')), fields.next())
        {
            entries.push(Entry {
                number: index + 1,
                spec: unescape(spec).replace('"', ""),
                file: unescape(file),
                serial: block.clone(),
                text: line.to_owned(),
            });
        }
    }
    entries
}

/// The file with this line in the disk's block, which is made at the end when there is none.
pub(crate) fn with_line(text: &str, serial: &str, line: &str) -> Result<String, BrokenMarks> {
    let block = format!("{BEGIN}{serial}\n{line}\n{END}{serial}\n");
    let Some((start, end)) = find_block(text, serial)? else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{block}"));
    };
    Ok(format!("{}{block}{}", &text[..start], &text[end..]))
}

/// The bytes of the disk's block, its marks included.
fn find_block(text: &str, serial: &str) -> Result<Option<(usize, usize)>, BrokenMarks> {
    let (begin, end) = (format!("{BEGIN}{serial}"), format!("{END}{serial}"));
    let mut offset = 0;
    let mut started: Option<(usize, usize)> = None;
    let mut found = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let broken = Err(BrokenMarks { number: index + 1 });
        let content = line.trim_end();
        if content == begin {
            if started.is_some() || found.is_some() {
                return broken;
            }
            started = Some((offset, index + 1));
        } else if content == end {
            let Some((start, _)) = started.take() else { return broken };
            found = Some((start, offset + line.len()));
        }
        offset += line.len();
    }
    match started {
        Some((_, number)) => Err(BrokenMarks { number }),
        None => Ok(found),
    }
}

fn escape(field: &str) -> String {
    field.replace('\\', r"\134").replace(' ', r"\040").replace('\t', r"\011").replace('#', r"\043")
}

fn unescape(field: &str) -> String {
    field.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\043", "#").replace(r"\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str =
        "# /etc/fstab\nUUID=aaaa / ext4 defaults 0 1\n\n/dev/sr0\t/media/cdrom0 auto noauto 0 0\n";
    const LINE: &str = "UUID=bbbb /srv ext4 defaults,nofail 0 2";

    fn block(serial: &str, line: &str) -> String {
        format!("{BEGIN}{serial}\n{line}\n{END}{serial}\n")
    }

    #[test]
    fn the_line_is_written_once_and_replaced_in_its_place() {
        let first = with_line(OTHERS, "web01-data", LINE).unwrap();
        assert_eq!(first, format!("{OTHERS}{}", block("web01-data", LINE)));
        assert_eq!(with_line(&first, "web01-data", LINE).unwrap(), first);

        let more = format!("{first}tmpfs /tmp tmpfs defaults 0 0\n");
        let other = LINE.replace("defaults", "noatime");
        let changed = with_line(&more, "web01-data", &other).unwrap();
        assert_eq!(
            changed,
            format!("{OTHERS}{}tmpfs /tmp tmpfs defaults 0 0\n", block("web01-data", &other))
        );
    }

    #[test]
    fn disks_have_blocks_of_their_own() {
        let both = with_line(&with_line("", "data", LINE).unwrap(), "data2", LINE).unwrap();
        assert_eq!(both, format!("{}{}", block("data", LINE), block("data2", LINE)));
    }

    #[test]
    fn a_last_line_without_its_end_gets_one() {
        assert_eq!(with_line("x", "data", LINE).unwrap(), format!("x\n{}", block("data", LINE)));
    }

    #[test]
    fn broken_marks_are_left_to_people() {
        for (text, number) in [
            (format!("{BEGIN}data\n{LINE}\n"), 1),
            (format!("\n{END}data\n"), 2),
            (format!("{}{}", block("data", LINE), block("data", LINE)), 4),
            (format!("{BEGIN}data\n{BEGIN}data\n{END}data\n"), 2),
        ] {
            assert_eq!(with_line(&text, "data", LINE), Err(BrokenMarks { number }), "{text}");
        }
    }

    #[test]
    fn entries_know_their_block() {
        let text = format!("{OTHERS}{}LABEL=\"x\" /mnt/my\\040data xfs\nbroken\n", block("data", LINE));
        let found: Vec<_> = entries(&text)
            .into_iter()
            .map(|e| (e.number, e.spec, e.file, e.serial.unwrap_or_default()))
            .collect();
        let expected = [
            (2, "UUID=aaaa", "/", ""),
            (4, "/dev/sr0", "/media/cdrom0", ""),
            (6, "UUID=bbbb", "/srv", "data"),
            (8, "LABEL=x", "/mnt/my data", ""),
        ];
        assert_eq!(found, expected.map(|(n, a, b, c)| (n, a.to_owned(), b.to_owned(), c.to_owned())));
    }

    #[test]
    fn blanks_are_escaped() {
        let line = line("bbbb", Path::new("/mnt/my data#1"), "xfs", &["defaults".into(), "noatime".into()]);
        assert_eq!(line, r"UUID=bbbb /mnt/my\040data\0431 xfs defaults,noatime 0 2");
        assert_eq!(entries(&line)[0].file, "/mnt/my data#1");
    }

    proptest::proptest! {
        #[test]
        fn nothing_else_is_touched(before in "([ -~]{0,20}\n){0,4}", after in "([ -~]{0,20}\n){0,4}") {
            let text = format!("{before}{}{after}", block("data", "old"));
            let expected = format!("{before}{}{after}", block("data", LINE));
            proptest::prop_assert_eq!(with_line(&text, "data", LINE), Ok(expected));
        }

        #[test]
        fn a_path_survives_its_line(path in "/[ -~&&[^/]]{1,20}") {
            let line = line("bbbb", Path::new(&path), "ext4", &["defaults".into()]);
            proptest::prop_assert_eq!(&entries(&line)[0].file, &path);
        }
    }
}
