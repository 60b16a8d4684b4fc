use std::fmt;

/// A text that is not what it should be: a sentence that quotes it, says what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    text: String,
    what: &'static str,
    expected: String,
    found: String,
}

impl Invalid {
    pub(crate) fn new(
        text: impl fmt::Display,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { text: text.to_string(), what, expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, what, expected, found } = self;
        write!(f, "\"{}\" is not {what}: expected {expected}, found {found}", text.escape_debug())
    }
}

impl std::error::Error for Invalid {}

/// Serde through the type's own text; a bare number (YAML reads `0:1:2` and `12e4` as such) asks for quotes.
macro_rules! serde_as_text {
    ($type:ty, $what:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "{} as quoted text", $what)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

pub(crate) use serde_as_text;
