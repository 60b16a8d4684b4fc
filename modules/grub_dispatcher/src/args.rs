//! The option table and the checked arguments.

use std::path::PathBuf;

use ansible_module::{Arguments, Failure, Opt, Spec, Table};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    Present,
    Absent,
}

/// What the task asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Args {
    pub(crate) prefix_dir: PathBuf,
    pub(crate) state: Presence,
    pub(crate) menu_timeout: u32,
}

impl Args {
    pub(crate) fn check(arguments: &Arguments) -> Result<Self, Failure> {
        let args: Self = arguments.parse()?;
        if !args.prefix_dir.is_absolute() {
            let why = format!("expected an absolute path, found `{}`", args.prefix_dir.display());
            return Err(Failure::bad_argument("prefix_dir", why));
        }
        Ok(args)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.prefix_dir.join("grub.cfg")
    }
}

pub(crate) fn spec() -> Spec {
    Spec::new("grub_dispatcher", "Make grub.cfg look up the file of the machine that boots")
        .describe(
            "Runs on the boot server. Puts a block between two marks of its own at the beginning of C(grub.cfg): a machine \
             whose MAC address has a file beside it (M(homelab.anvil.grub_mac_config)) takes that one, every other machine goes \
             on to the menu in the rest of the file. Every other byte of the file stays.",
        )
        .describe(
            "The loader of Debian and Ubuntu never looks for such a file by itself, that of Fedora only where its prefix \
             begins with C((tftp). The block works with both, over TFTP and HTTP, from GRUB 2.06 to 2.14: it looks in \
             C($prefix), and then in C($fw_path), where the loader itself came from.",
        )
        .describe(
            "Where there is no C(grub.cfg) one is made, with a menu that goes on without the network or into the firmware's \
             setup; that menu is then yours. The new file is checked with C(grub-script-check) (C(grub2-script-check)) where it \
             is installed.",
        )
        .note("A block that you moved stays where you moved it.")
        .requirement("On the boot server: nothing; grub-common (Debian) or grub2-tools (Fedora) for the check of the script")
        .seealso(&["homelab.anvil.grub_mac_config", "homelab.anvil.netboot_watch"])
        .options(Table::new(vec![
            Opt::path("prefix_dir").required().aliases(&["prefix"]).doc(
                "Directory of C(grub.cfg) on the boot server, such as C(/var/lib/tftpboot/grub) or C(/srv/tftp/grub).",
            ),
            Opt::str("state")
                .default("present")
                .choices(&["present", "absent"])
                .doc("With V(absent) the block is taken out; the rest of the file stays."),
            Opt::int("menu_timeout").default(30).doc(
                "Seconds that the menu waits, for a machine without a file of its own. A C(set timeout) in the rest of the file \
                 wins.",
            ),
        ]))
        .examples(EXAMPLES)
        .returns(RETURNS)
}

const EXAMPLES: &str = r"
- name: GRUB takes a machine's own file
  homelab.anvil.grub_dispatcher:
    prefix_dir: /var/lib/tftpboot/grub
  become: true
";

const RETURNS: &str = r"
grub_dispatcher:
  description: The file as it is; in check mode as it would be.
  returned: success
  type: dict
  contains:
    path:
      description: The file.
      type: str
      sample: /var/lib/tftpboot/grub/grub.cfg
    state:
      description: Whether it has the block.
      type: str
      sample: present
    menu_timeout:
      description: Seconds that the menu waits for a machine without a file of its own, -1 for ever; null when the file does not say.
      type: int
      sample: 30
    script_checked:
      description: Whether C(grub-script-check) found the file sound; false where it is not installed.
      type: bool
";
