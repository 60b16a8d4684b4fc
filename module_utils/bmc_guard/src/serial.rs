use std::fmt;

/// What firmware reports where nobody entered a serial.
const PLACEHOLDERS: [&str; 14] = [
    "to be filled by o.e.m",
    "to be filled by oem",
    "none",
    "null",
    "n/a",
    "unknown",
    "not specified",
    "not available",
    "not applicable",
    "default string",
    "system serial number",
    "chassis serial number",
    "0123456789",
    "1234567890",
];

/// A serial number or service tag that tells one server from all others; compared without case and padding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(String);

impl Serial {
    /// `None` when the text is blank, a placeholder, or one character over and over. Blanks and dots around it
    /// are padding (fixed-length FRU fields).
    #[must_use]
    pub fn known(text: &str) -> Option<Self> {
        let is_padding = |c: char| c.is_whitespace() || c.is_control() || c == '.';
        let text = text.trim_matches(is_padding).to_ascii_lowercase();
        let first = text.chars().next()?;
        let tells = text.chars().any(|c| c != first) && !PLACEHOLDERS.contains(&text.as_str());
        tells.then(|| Self(text.to_ascii_uppercase()))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_case_do_not_matter() {
        for text in ["CLLV0R3", " cllv0r3", "CLLV0R3   ", "..CLLV0R3.", "\tCLLV0R3\n"] {
            assert_eq!(Serial::known(text).unwrap().to_string(), "CLLV0R3");
        }
    }

    #[test]
    fn what_tells_nothing_is_unknown() {
        for text in [
            "",
            "          ",
            "To be filled by O.E.M.",
            "To Be Filled By O.E.M",
            "None",
            "N/A",
            "Default string",
            "System Serial Number",
            "0000000",
            "..0000000.",
            "XXXXXXX",
            "1",
            "0123456789",
        ] {
            assert_eq!(Serial::known(text), None, "{text:?}");
        }
    }
}
