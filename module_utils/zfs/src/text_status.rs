//! `zpool status -P`, the form that every version has.

use std::path::PathBuf;

use crate::vdev::{Class, Pool, Vdev, VdevKind};

/// Reads the output of `zpool status -P` (OpenZFS 0.8 to 2.3). `no pools available` is no pool.
///
/// # Errors
/// What was expected and is not there.
pub fn parse_status(text: &str) -> Result<Vec<Pool>, String> {
    let mut pools = Vec::new();
    let mut sections = text.split("  pool: ").enumerate();
    if let Some((_, before)) = sections.next()
        && !before.trim().is_empty()
        && before.trim() != "no pools available"
    {
        return Err(format!("expected `pool:`, found `{}`", before.trim()));
    }
    for (_, section) in sections {
        pools.push(parse_pool(section)?);
    }
    Ok(pools)
}

fn parse_pool(section: &str) -> Result<Pool, String> {
    let name = section.lines().next().unwrap_or_default().to_owned();
    let fail = |what: &str| format!("pool `{name}`: expected {what}");
    let state = section
        .lines()
        .find_map(|line| line.strip_prefix(" state: "))
        .ok_or_else(|| fail("`state:`"))?
        .trim()
        .to_owned();
    let mut lines =
        section.lines().skip_while(|line| *line != "config:").skip(1).filter(|line| !line.is_empty());
    let heading =
        lines.next().and_then(|line| line.strip_prefix('\t')).ok_or_else(|| fail("`config:` and a table"))?;
    let column = heading.find("STATE").ok_or_else(|| fail("a column STATE"))?;
    let rows: Vec<Row> =
        lines.map_while(|line| line.strip_prefix('\t')).map(|line| Row::parse(line, column)).collect();
    Ok(Pool { vdevs: top_level(&rows), name, state, guid: None })
}

/// A line of the table.
struct Row<'a> {
    /// The pool has 0, or the heading of a class; each level below one more.
    depth: usize,
    /// May hold blanks: a pool's name does.
    name: &'a str,
    /// Nothing in a heading, and where a spare is shown without one.
    state: &'a str,
    was: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str, column: usize) -> Self {
        let (name, rest) = line.split_at_checked(column).unwrap_or((line, ""));
        let depth = (name.len() - name.trim_start_matches(' ').len()) / 2;
        Self {
            depth,
            name: name.trim(),
            state: rest.split_whitespace().next().unwrap_or_default(),
            was: rest.split_once(" was ").and_then(|(_, path)| path.split_whitespace().next()),
        }
    }

    fn vdev(&self, class: Class, children: Vec<Vdev>) -> Vdev {
        let kind = if self.name.starts_with('/') { VdevKind::Leaf } else { VdevKind::of_name(self.name) };
        let path = match (&kind, self.was) {
            (VdevKind::Leaf, Some(was)) => Some(PathBuf::from(was)),
            (VdevKind::Leaf, None) if self.name.starts_with('/') => Some(PathBuf::from(self.name)),
            _ => None,
        };
        Vdev { name: self.name.to_owned(), kind, class, state: self.state.to_owned(), path, children }
    }
}

fn top_level(rows: &[Row<'_>]) -> Vec<Vdev> {
    let mut vdevs = Vec::new();
    let mut class = Class::Normal;
    let mut rest = rows;
    while let Some((row, below)) = rest.split_first() {
        rest = below;
        match Class::of_heading(row.name) {
            Some(found) if row.depth == 0 && row.state.is_empty() => class = found,
            _ if row.depth == 0 => class = Class::Normal,
            _ => {
                let (children, after) = children(row.depth, below, class);
                vdevs.push(row.vdev(class, children));
                rest = after;
            }
        }
    }
    vdevs
}

fn children<'r, 'a>(depth: usize, mut rows: &'r [Row<'a>], class: Class) -> (Vec<Vdev>, &'r [Row<'a>]) {
    let mut found = Vec::new();
    while let Some((row, below)) = rows.split_first() {
        if row.depth <= depth {
            break;
        }
        let (inner, after) = children(row.depth, below, class);
        found.push(row.vdev(class, inner));
        rows = after;
    }
    (found, rows)
}
