//! The text of `identity.yml`: read as YAML, edited as lines, so that comments and other keys survive.

use net_types::{MacAddress, Vmid};
use serde_norway::{Mapping, Value};

pub(crate) const VMID_KEY: &str = "anvil_assigned_vmid";
pub(crate) const MAC_KEY: &str = "anvil_assigned_mac";

/// How a file begins that `ansible-vault` encrypted.
const VAULT: &str = "$ANSIBLE_VAULT;";

const NEW_FILE: &str = "---\n# The VMID and the MAC name each other; they stay as long as the VM lives.\n";

/// What a file says of a host's identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) vmid: Option<Vmid>,
    pub(crate) mac: Option<MacAddress>,
}

impl Declared {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Whether one of the two keys stands at the top level, however it is written (in quotes, in JSON, merged). A
/// text that is no YAML declares what stands at its left margin.
pub(crate) fn declares(text: &str) -> bool {
    let keys = [VMID_KEY, MAC_KEY];
    let at_margin = |key: &&str| text.lines().any(|line| value_at(line, key).is_some());
    let parsed = || mapping(text).is_ok_and(|found| keys.iter().any(|key| found.contains_key(*key)));
    keys.iter().any(|key| text.contains(key)) && (keys.iter().any(at_margin) || parsed())
}

/// Reads both keys; null, `0` and an empty text mean "not assigned".
///
/// # Errors
/// A sentence: what is wrong with the file, and the cure.
pub(crate) fn read(text: &str) -> Result<Declared, String> {
    if text.starts_with(VAULT) {
        return Err(
            "it is encrypted with ansible-vault; an identity is no secret: decrypt the file, or move its \
                    secrets into a file of their own beside it"
                .into(),
        );
    }
    let mapping = mapping(text)?;
    Ok(Declared {
        vmid: vmid(mapping.get(VMID_KEY)).map_err(|why| format!("`{VMID_KEY}`: {why}"))?,
        mac: mac(mapping.get(MAC_KEY), text).map_err(|why| format!("`{MAC_KEY}`: {why}"))?,
    })
}

/// The text with both keys set. Lines that are there keep their place, everything else is untouched.
///
/// # Errors
/// A sentence when the text is no block mapping, into which a line cannot be put.
pub(crate) fn with_identity(text: Option<&str>, vmid: Vmid, mac: MacAddress) -> Result<String, String> {
    let old = text.unwrap_or(NEW_FILE);
    let declared = read(old)?;
    let mut expected = mapping(old)?;
    let mut new = old.to_owned();
    if declared.vmid.is_none() {
        new = with_line(&new, VMID_KEY, &vmid.to_string());
        expected.insert(VMID_KEY.into(), vmid.get().into());
    }
    if declared.mac.is_none() {
        new = with_line(&new, MAC_KEY, &format!("\"{mac}\""));
        expected.insert(MAC_KEY.into(), mac.to_string().into());
    }
    match mapping(&new) {
        Ok(found) if found == expected => Ok(new),
        _ => Err("the identity cannot be added without changing what is there: expected one key a line, beginning \
                  at the left margin; rewrite the file so"
            .into()),
    }
}

fn mapping(text: &str) -> Result<Mapping, String> {
    let merged = serde_norway::from_str(text.trim_start_matches(BOM))
        .and_then(|mut value: Value| value.apply_merge().map(|()| value));
    match merged {
        Ok(Value::Mapping(mapping)) => Ok(mapping),
        Ok(Value::Null) => Ok(Mapping::new()),
        Ok(_) => Err("expected YAML with keys and values, found something else".into()),
        Err(error) => Err(format!("expected YAML with keys and values: {error}")),
    }
}

fn vmid(value: Option<&Value>) -> Result<Option<Vmid>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() || text == "0" => Ok(None),
        Some(Value::Number(number)) if number.as_u64() == Some(0) => Ok(None),
        Some(Value::String(text)) => {
            text.parse().map(Some).map_err(|error: net_types::Invalid| error.to_string())
        }
        Some(value) => serde_norway::from_value(value.clone()).map(Some).map_err(|error| error.to_string()),
    }
}

fn mac(value: Option<&Value>, text: &str) -> Result<Option<MacAddress>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(mac)) if mac.is_empty() => Ok(None),
        Some(Value::String(mac)) if is_plain(text, MAC_KEY) && is_number_in_yaml_1_1(mac) => {
            Err(format!("Ansible reads {mac} as a number; put it in quotes: \"{mac}\""))
        }
        Some(Value::String(mac)) => {
            mac.parse().map(Some).map_err(|error: net_types::Invalid| error.to_string())
        }
        Some(_) => Err("expected a MAC address as text; put it in quotes".into()),
    }
}

/// Whether the value of a top-level key is written without quotes.
fn is_plain(text: &str, key: &str) -> bool {
    let value = text.lines().find_map(|line| value_at(line, key));
    value.is_some_and(|value| !value.trim_start().starts_with(['"', '\'']))
}

/// YAML 1.1, which Ansible reads, takes `52:54:00:12:34:56` for a number to the base of 60: of any size in front,
/// below 60 behind (type int of the YAML 1.1 repository).
fn is_number_in_yaml_1_1(text: &str) -> bool {
    let Some((first, rest)) = text.split_once(':') else { return false };
    !first.starts_with('0')
        && first.bytes().all(|b| b.is_ascii_digit())
        && rest.split(':').all(|digits| digits.parse().is_ok_and(|number: u8| number < 60))
}

/// What a text file may begin with; no part of its first line.
const BOM: char = '\u{feff}';

/// What follows `key:`, with or without quotes around it, when the line begins with it.
fn value_at<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_start_matches(BOM);
    let quoted = |quote: char| line.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote);
    let rest = line.strip_prefix(key).or_else(|| quoted('"')).or_else(|| quoted('\''))?;
    rest.trim_start_matches(' ').strip_prefix(':')
}

fn with_line(text: &str, key: &str, value: &str) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut replaced = false;
    let mut new: String = text
        .split_inclusive('\n')
        .map(|line| match value_at(line, key) {
            Some(old) if !replaced => {
                replaced = true;
                let comment = old.find(" #").map_or("", |at| old[at..].trim_end_matches(['\r', '\n']));
                let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
                let bom = if line.starts_with(BOM) { "\u{feff}" } else { "" };
                format!("{bom}{key}: {value}{comment}{end}")
            }
            _ => line.to_owned(),
        })
        .collect();
    if !replaced {
        if !new.is_empty() && !new.ends_with('\n') {
            new.push_str(end);
        }
        new.push_str(&format!("{key}: {value}{end}"));
    }
    new
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identity() -> (Vmid, MacAddress) {
        (Vmid::new(1001).unwrap(), "02:a5:00:00:03:e9".parse().unwrap())
    }

    fn edited(text: &str) -> Result<String, String> {
        let (vmid, mac) = identity();
        with_identity(Some(text), vmid, mac)
    }

    #[test]
    fn a_new_file_says_what_it_is_for() {
        let (vmid, mac) = identity();
        insta::assert_snapshot!(with_identity(None, vmid, mac).unwrap(), @r#"
        ---
        # The VMID and the MAC name each other; they stay as long as the VM lives.
        anvil_assigned_vmid: 1001
        anvil_assigned_mac: "02:a5:00:00:03:e9"
        "#);
    }

    #[test]
    fn comments_order_and_other_keys_survive() {
        for (before, after) in [
            ("", "anvil_assigned_vmid: 1001\nanvil_assigned_mac: \"02:a5:00:00:03:e9\"\n"),
            ("# mine\n", "# mine\nanvil_assigned_vmid: 1001\nanvil_assigned_mac: \"02:a5:00:00:03:e9\"\n"),
            (
                "rack:   b4 # above\nanvil_assigned_vmid: 0 # until assigned\n\nlast: [1,  2]",
                "rack:   b4 # above\nanvil_assigned_vmid: 1001 # until assigned\n\nlast: [1,  2]\n\
                 anvil_assigned_mac: \"02:a5:00:00:03:e9\"\n",
            ),
            (
                "anvil_assigned_mac:\nanvil_assigned_vmid: 1001 # by hand\nnote: |\n  anvil_assigned_mac: text\n",
                "anvil_assigned_mac: \"02:a5:00:00:03:e9\"\nanvil_assigned_vmid: 1001 # by hand\nnote: |\n  \
                 anvil_assigned_mac: text\n",
            ),
            (
                "a: 1\r\nanvil_assigned_vmid:\r\n",
                "a: 1\r\nanvil_assigned_vmid: 1001\r\nanvil_assigned_mac: \"02:a5:00:00:03:e9\"\r\n",
            ),
            (
                "\u{feff}anvil_assigned_vmid: 0\n'anvil_assigned_mac': ''\n",
                "\u{feff}anvil_assigned_vmid: 1001\nanvil_assigned_mac: \"02:a5:00:00:03:e9\"\n",
            ),
        ] {
            assert_eq!(edited(before).as_deref(), Ok(after), "{before:?}");
        }
    }

    #[test]
    fn an_identity_that_is_written_stays_as_it_is_written() {
        let text =
            "anvil_assigned_mac: '02-A5-00-00-03-E9'   # as the label says\nanvil_assigned_vmid: \"1001\"\n";
        assert_eq!(edited(text).as_deref(), Ok(text));
    }

    #[test]
    fn a_text_that_takes_no_line_is_refused() {
        for text in ["{rack: b4}\n", "a: 1\n...\n", "  indented: 1\n"] {
            let why = edited(text).unwrap_err();
            assert!(why.contains("one key a line"), "{text:?}: {why}");
        }
    }

    #[test]
    fn what_is_not_assigned_yet_reads_as_nothing() {
        for text in [
            "",
            "---\n",
            "# only a comment",
            "a: 1",
            "anvil_assigned_vmid: 0\nanvil_assigned_mac:",
            "anvil_assigned_vmid: ''\nanvil_assigned_mac: ''",
            "anvil_assigned_vmid: '0'",
        ] {
            assert_eq!(read(text), Ok(Declared::default()), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_an_identity_is_refused_in_words() {
        let errors: String = [
            "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
            "- a\n",
            "a: [1\n",
            "a: 1\na: 2\n",
            "anvil_assigned_vmid: 99\n",
            "anvil_assigned_vmid: 5000000000\n",
            "anvil_assigned_vmid: '{{ x }}'\n",
            "anvil_assigned_vmid: [1]\n",
            "anvil_assigned_mac: 17\n",
            "anvil_assigned_mac: 02:a5:00\n",
            "anvil_assigned_mac: 22:11:00:00:03:17\n",
            "'anvil_assigned_mac': 72:11:00:00:03:17\n",
        ]
        .into_iter()
        .map(|text| read(text).unwrap_err() + "\n")
        .collect();
        insta::assert_snapshot!(errors, @r#"
        it is encrypted with ansible-vault; an identity is no secret: decrypt the file, or move its secrets into a file of their own beside it
        expected YAML with keys and values, found something else
        expected YAML with keys and values: did not find expected ',' or ']' at line 2 column 1, while parsing a flow sequence at line 1 column 4
        expected YAML with keys and values: duplicate entry with key "a"
        `anvil_assigned_vmid`: "99" is not a VMID: expected a whole number from 100 to 999999999, found 99
        `anvil_assigned_vmid`: invalid value: integer `5000000000`, expected a VMID: a whole number from 100 to 999999999
        `anvil_assigned_vmid`: "{{ x }}" is not a VMID: expected a whole number from 100 to 999999999, found something else than digits
        `anvil_assigned_vmid`: invalid type: sequence, expected a VMID: a whole number from 100 to 999999999
        `anvil_assigned_mac`: expected a MAC address as text; put it in quotes
        `anvil_assigned_mac`: "02:a5:00" is not a MAC address: expected 6 bytes of two hex digits each (like 02:a5:00:00:00:64), found 3 bytes
        `anvil_assigned_mac`: Ansible reads 22:11:00:00:03:17 as a number; put it in quotes: "22:11:00:00:03:17"
        `anvil_assigned_mac`: Ansible reads 72:11:00:00:03:17 as a number; put it in quotes: "72:11:00:00:03:17"
        "#);
    }

    #[test]
    fn digits_alone_are_a_number_only_without_quotes_and_leading_zero() {
        for text in [
            "anvil_assigned_mac: '22:11:00:00:03:17'",
            "anvil_assigned_mac: 02:11:00:00:03:17",
            "anvil_assigned_mac: 22:11:00:00:03:77",
        ] {
            assert!(read(text).unwrap().mac.is_some(), "{text}");
        }
    }

    #[test]
    fn only_a_key_at_the_top_level_declares() {
        for (text, declared) in [
            ("anvil_assigned_vmid: 1", true),
            ("a: 1\nanvil_assigned_mac : x", true),
            ("\"anvil_assigned_vmid\": 1", true),
            ("{\"a\": 1, \"anvil_assigned_vmid\": 1}", true),
            ("{a: 1,\n anvil_assigned_mac: x}", true),
            ("\u{feff}anvil_assigned_vmid: 1", true),
            ("base: &base\n  anvil_assigned_vmid: 1\n<<: *base", true),
            ("anvil_assigned_vmid: 1\na: [", true),
            ("{\"a\": {\"anvil_assigned_vmid\": 1}}", false),
            ("vmid: \"{{ anvil_assigned_vmid | default(0) }}\"", false),
            ("a:\n  anvil_assigned_vmid: 1", false),
            ("# anvil_assigned_vmid: 1", false),
            ("anvil_assigned_vmid_old: 1", false),
        ] {
            assert_eq!(declares(text), declared, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_line_that_was_there_is_still_there(
            lines in prop::collection::vec("(#[ a-z]{0,9}|[a-d]{1,3}: [a-z0-9]{1,9}|)", 0..8),
            newline in any::<bool>(),
        ) {
            let mut text = lines.join("\n");
            if newline { text.push('\n'); }
            prop_assume!(read(&text).is_ok());
            let new = edited(&text).unwrap();
            prop_assert!(new.starts_with(&text));
            let (vmid, mac) = identity();
            prop_assert_eq!(read(&new), Ok(Declared { vmid: Some(vmid), mac: Some(mac) }));
            prop_assert_eq!(edited(&new), Ok(new.clone()));
        }
    }
}
