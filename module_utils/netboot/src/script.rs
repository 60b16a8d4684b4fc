//! GRUB scripts: one menu entry for a machine, and a look at a script of somebody else's.

use std::fmt;
use std::str::FromStr;

/// The longest command line that Linux takes on x86 (COMMAND_LINE_SIZE less the byte at its end).
const LONGEST_COMMAND_LINE: usize = 2047;

/// What cannot be put into a script, in words that follow the name of the thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError(String);

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

fn fault<T>(why: impl Into<String>) -> Result<T, ScriptError> {
    Err(ScriptError(why.into()))
}

/// A file as GRUB finds it however it was loaded: `(http,10.0.0.2)/vmlinuz`, `(tftp)/vmlinuz`, `/vmlinuz` on the
/// device that GRUB itself came from, `$prefix/vmlinuz` beside `grub.cfg`.
///
/// A path without any of these beginnings is taken from `$root` over TFTP, and is no valid request over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrubPath(String);

impl FromStr for GrubPath {
    type Err = ScriptError;

    /// Also takes a URL, `http://10.0.0.2:8080/vmlinuz`, and makes GRUB's form of it.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let text = &text.replacen("${prefix}/", "$prefix/", 1);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,()[]@%+=~$".contains(c);
        if let Some(bad) = text.chars().find(|c| !plain(*c)) {
            return fault(format!("expected a path without the character {bad:?}, found `{text}`"));
        }
        let path = match text.split_once("://") {
            Some((scheme @ ("http" | "tftp"), rest)) => match rest.split_once('/') {
                Some((server, path)) if !server.is_empty() => format!("({scheme},{server})/{path}"),
                _ => return fault(format!("expected {scheme}://SERVER/PATH, found `{text}`")),
            },
            Some((scheme, _)) => {
                return fault(format!(
                    "GRUB reads http:// and tftp:// only, found `{scheme}://` in `{text}`"
                ));
            }
            None => text.to_owned(),
        };
        if !is_absolute(&path) || path[1..].contains('$') {
            return fault(format!(
                "expected an absolute path (`/PATH`, `$prefix/PATH`, `(http,SERVER)/PATH` or a URL), found `{text}`: over \
                 HTTP a relative one cannot be fetched"
            ));
        }
        Ok(Self(path))
    }
}

fn is_absolute(path: &str) -> bool {
    let after_device = |rest: &str| {
        rest.split_once(')').is_some_and(|(name, path)| !name.is_empty() && path.starts_with('/'))
    };
    path.strip_prefix('(').is_some_and(after_device)
        || ["/", "$prefix/"].iter().any(|start| path.starts_with(start) && path.len() > start.len())
}

impl fmt::Display for GrubPath {
    /// As a word of a script.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.starts_with('$') { write!(f, "\"{}\"", self.0) } else { f.write_str(&self.0) }
    }
}

/// Splits a kernel's arguments into words. Every word reaches the kernel as it stands: `$`, `;` and `&` mean nothing
/// to GRUB in it.
///
/// # Errors
/// Quotes and backslashes, which GRUB changes on the way (grub-core/lib/cmdline.c), and control characters.
pub fn kernel_arguments(text: &str) -> Result<Vec<String>, ScriptError> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let bad = words.iter().find(|word| word.chars().any(|c| c.is_control() || "'\"\\".contains(c)));
    match bad {
        Some(word) => {
            fault(format!("expected kernel arguments without quotes and backslashes, found `{word}`"))
        }
        None => Ok(words),
    }
}

/// What a machine's file shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Load this, without asking.
    Install { kernel: GrubPath, initrd: Vec<GrubPath>, arguments: Vec<String> },
    /// Load the first of these files that an EFI system partition has, else hand back to the firmware.
    LocalDisk { loaders: Vec<String> },
}

impl Entry {
    /// A script with one menu entry, which is taken after `timeout` seconds.
    ///
    /// # Errors
    /// A title that cannot be quoted, or a command line longer than a kernel takes.
    pub fn script(&self, title: &str, timeout: u32) -> Result<String, ScriptError> {
        if title.is_empty() || title.contains(|c: char| c.is_control() || c == '\'') {
            return fault(format!("expected a title without `'` and control characters, found `{title}`"));
        }
        let body = match self {
            Self::Install { kernel, initrd, arguments } => install(kernel, initrd, arguments)?,
            Self::LocalDisk { loaders } => local_disk(loaders),
        };
        Ok(format!("set default=0\nset timeout={timeout}\nmenuentry '{title}' {{\n{body}}}\n"))
    }
}

fn install(kernel: &GrubPath, initrd: &[GrubPath], arguments: &[String]) -> Result<String, ScriptError> {
    let length = arguments.iter().map(|word| word.len() + 1).sum::<usize>();
    if length > LONGEST_COMMAND_LINE {
        return fault(format!(
            "expected kernel arguments of at most {LONGEST_COMMAND_LINE} bytes, found {length}: the kernel cuts the rest off"
        ));
    }
    let words: String = arguments.iter().map(|word| format!(" {}", quoted(word))).collect();
    let images: String = initrd.iter().map(|path| format!(" {path}")).collect();
    Ok(format!("  linux {kernel}{words}\n  initrd{images}\n"))
}

/// The firmware itself would not go on to the next entry of its boot order: GRUB's `exit` means success to it
/// (edk2 BdsEntry.c, BootBootOptions, opens its menu then), so the disk's own loader is looked up.
fn local_disk(loaders: &[String]) -> String {
    format!(
        "  for loader in {}; do\n    if search --no-floppy --file --set=esp $loader; then\n      chainloader ($esp)$loader\n      \
         boot\n    fi\n  done\n  exit 1\n",
        loaders.join(" ")
    )
}

/// As one word of a script; single quotes were refused.
fn quoted(word: &str) -> String {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=+./:,@%~[]".contains(c));
    if plain { word.to_owned() } else { format!("'{word}'") }
}

/// Commands whose words (all of them, or the first one) name files.
const ALL_WORDS: [&str; 4] = ["initrd", "initrdefi", "initrd16", "module2"];
const FIRST_WORD: [&str; 11] = [
    ".",
    "chainloader",
    "configfile",
    "devicetree",
    "legacy_configfile",
    "linux",
    "linux16",
    "linuxefi",
    "multiboot",
    "multiboot2",
    "source",
];

/// The first command of a script that names a file by a relative path, with that path: HTTP boot cannot fetch it.
///
/// Looks at the beginnings of commands only: a script is checked for real by grub-script-check.
#[must_use]
pub fn relative_path(script: &str) -> Option<(String, String)> {
    script
        .lines()
        .map(|line| line.split_once(" #").map_or(line, |(code, _)| code))
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split([';', '{', '}']))
        .find_map(|command| {
            let mut words = command.split_whitespace().skip_while(|word| {
                ["then", "else", "do", "if", "elif", "while", "until", "!"].contains(word)
            });
            let name = words.next()?;
            let files =
                words.filter(|word| !word.starts_with('-')).map(|word| word.trim_matches(['"', '\'']));
            let count =
                if ALL_WORDS.contains(&name) { usize::MAX } else { usize::from(FIRST_WORD.contains(&name)) };
            let relative =
                files.take(count).find(|path| !path.is_empty() && !path.starts_with(['/', '(', '$', '+']))?;
            Some((name.to_owned(), relative.to_owned()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> GrubPath {
        text.parse().unwrap()
    }

    #[test]
    fn a_url_becomes_grubs_form_of_it() {
        for (text, word) in [
            ("/fedora/vmlinuz", "/fedora/vmlinuz"),
            ("http://10.0.0.2:8080/f/vmlinuz", "(http,10.0.0.2:8080)/f/vmlinuz"),
            ("tftp://boot.lab/vmlinuz", "(tftp,boot.lab)/vmlinuz"),
            ("(http,10.0.0.2)/vmlinuz", "(http,10.0.0.2)/vmlinuz"),
            ("(tftp)/vmlinuz", "(tftp)/vmlinuz"),
            ("$prefix/vmlinuz", "\"$prefix/vmlinuz\""),
            ("${prefix}/vmlinuz", "\"$prefix/vmlinuz\""),
        ] {
            assert_eq!(path(text).to_string(), word);
        }
    }

    #[test]
    fn a_path_that_depends_on_how_grub_was_loaded_is_refused() {
        for (text, why) in [
            ("vmlinuz", "expected an absolute path"),
            ("../vmlinuz", "expected an absolute path"),
            ("", "expected an absolute path"),
            ("/", "expected an absolute path"),
            ("()/vmlinuz", "expected an absolute path"),
            ("(http,10.0.0.2)vmlinuz", "expected an absolute path"),
            ("$root/vmlinuz", "expected an absolute path"),
            ("/x/$y", "expected an absolute path"),
            ("https://10.0.0.2/vmlinuz", "GRUB reads http:// and tftp:// only"),
            ("http:///vmlinuz", "expected http://SERVER/PATH"),
            ("/a b", "without the character ' '"),
            ("/a;reboot", "without the character ';'"),
        ] {
            let error = text.parse::<GrubPath>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_install_is_one_entry_that_asks_nobody() {
        let entry = Entry::Install {
            kernel: path("/fedora/vmlinuz"),
            initrd: vec![path("/fedora/initrd.img"), path("http://10.0.0.2/extra.img")],
            arguments: kernel_arguments(
                "ip=dhcp  inst.ks=http://10.0.0.2/ks?host=web01&x=$y console=ttyS0,115200",
            )
            .unwrap(),
        };
        insta::assert_snapshot!(entry.script("Install web01", 0).unwrap(), @r"
        set default=0
        set timeout=0
        menuentry 'Install web01' {
          linux /fedora/vmlinuz ip=dhcp 'inst.ks=http://10.0.0.2/ks?host=web01&x=$y' console=ttyS0,115200
          initrd /fedora/initrd.img (http,10.0.0.2)/extra.img
        }
        ");
    }

    #[test]
    fn the_local_disk_is_found_by_its_loader() {
        let entry = Entry::LocalDisk {
            loaders: ["/EFI/fedora/shimx64.efi", "/EFI/BOOT/BOOTX64.EFI"].map(String::from).to_vec(),
        };
        insta::assert_snapshot!(entry.script("web01", 3).unwrap(), @r"
        set default=0
        set timeout=3
        menuentry 'web01' {
          for loader in /EFI/fedora/shimx64.efi /EFI/BOOT/BOOTX64.EFI; do
            if search --no-floppy --file --set=esp $loader; then
              chainloader ($esp)$loader
              boot
            fi
          done
          exit 1
        }
        ");
    }

    #[test]
    fn what_would_reach_the_kernel_otherwise_is_refused() {
        for text in ["a='b'", "a=\"b c\"", r"a=b\c", "a=\u{1}"] {
            assert!(kernel_arguments(text).is_err(), "{text}");
        }
        let entry = |arguments| Entry::Install { kernel: path("/k"), initrd: vec![path("/i")], arguments };
        let error = entry(vec!["x".repeat(2047)]).script("t", 0).unwrap_err().to_string();
        assert!(error.contains("at most 2047 bytes, found 2048"), "{error}");
        assert!(entry(vec!["x".repeat(2046)]).script("t", 0).is_ok());
        for title in ["", "it's", "a\nb"] {
            assert!(entry(vec![]).script(title, 0).is_err(), "{title}");
        }
    }

    #[test]
    fn relative_paths_in_a_script_are_found() {
        let found = |script: &str| relative_path(script).map(|(command, path)| format!("{command} {path}"));
        for (script, expected) in [
            ("menuentry x {\n linux vmlinuz quiet\n}", Some("linux vmlinuz")),
            ("linux /vmlinuz root=x; initrd /a.img b.img", Some("initrd b.img")),
            ("if configfile grub.cfg; then true; fi", Some("configfile grub.cfg")),
            ("menuentry x { chainloader 'boot.efi' }", Some("chainloader boot.efi")),
            ("source \"$prefix/x.cfg\"\nconfigfile ${prefix}/y\nchainloader +1\nchainloader (hd0)+1", None),
            ("# linux vmlinuz\nlinux (http,10.0.0.2)/vmlinuz a b # initrd x\ninitrd --nounzip /i", None),
            ("set linux=vmlinuz\necho linux vmlinuz", None),
        ] {
            assert_eq!(found(script).as_deref(), expected, "{script}");
        }
    }
}
