//! Extended error information (DSP0266, "error responses"), made readable.

use serde_json::Value;

/// One entry of `@Message.ExtendedInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// `Base.1.4.PropertyNotWritable`; empty when the BMC sent none.
    pub id: String,
    /// A sentence, with the arguments filled in.
    pub text: String,
    /// Every argument and related property, for looking one up.
    pub about: Vec<String>,
}

/// How much of an answer reaches the user.
const LONGEST: usize = 300;

impl Message {
    /// Whether the message's key (the last part of its id) is `key`.
    #[must_use]
    pub fn is(&self, key: &str) -> bool {
        self.key().eq_ignore_ascii_case(key)
    }

    fn key(&self) -> &str {
        self.id.rsplit('.').next().unwrap_or_default()
    }

    fn says_nothing(&self) -> bool {
        matches!(self.key(), "Success" | "GeneralError" | "ExtendedInfo")
    }
}

/// Every message of an answer, in order, without repetitions; those that say nothing only when there is no other.
pub(crate) fn of(body: &Value) -> Vec<Message> {
    let info = [&body["error"]["@Message.ExtendedInfo"], &body["@Message.ExtendedInfo"], &body["Messages"]]
        .into_iter()
        .find(|info| !info.is_null());
    let mut messages: Vec<Message> = match info {
        Some(Value::Array(entries)) => entries.iter().map(message).collect(),
        Some(entry @ Value::Object(_)) => vec![message(entry)],
        _ => Vec::new(),
    };
    if messages.iter().any(|message| !message.says_nothing()) {
        messages.retain(|message| !message.says_nothing());
    }
    if messages.is_empty() {
        messages.extend(body["error"]["message"].as_str().map(|text| Message {
            id: body["error"]["code"].as_str().unwrap_or_default().to_owned(),
            text: text.to_owned(),
            about: Vec::new(),
        }));
    }
    let mut seen = Vec::new();
    messages.retain(|message| {
        let is_new = !seen.contains(&message.text);
        seen.push(message.text.clone());
        is_new
    });
    messages
}

/// The messages as one short text.
pub(crate) fn short(messages: &[Message]) -> String {
    let text = messages.iter().map(|message| message.text.trim()).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}...", text[..cut].trim_end()),
        None => text,
    }
}

fn message(entry: &Value) -> Message {
    let texts = |value: &Value| -> Vec<String> {
        let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect()
    };
    let id = entry["MessageId"].as_str().or(entry["MessageID"].as_str()).unwrap_or_default().to_owned();
    let arguments = texts(&entry["MessageArgs"]);
    let text = entry["Message"].as_str().unwrap_or_default().trim();
    let text = if text.is_empty() { of_registry(&id, &arguments) } else { filled(text, &arguments) };
    let mut about = arguments;
    about.extend(texts(&entry["RelatedProperties"]));
    Message { id, text, about }
}

/// `%1`, `%2` replaced by the arguments.
fn filled(text: &str, arguments: &[String]) -> String {
    arguments
        .iter()
        .enumerate()
        .rev()
        .fold(text.to_owned(), |text, (index, argument)| text.replace(&format!("%{}", index + 1), argument))
}

/// Some BMCs (iLO) send the id and the arguments only: what the Base registry means by them.
fn of_registry(id: &str, arguments: &[String]) -> String {
    let key = id.rsplit('.').next().unwrap_or_default();
    let meaning = match key {
        "PropertyValueNotInList" => "The value %1 of the property %2 is not one of those allowed.",
        "PropertyNotWritable" => "The property %1 cannot be written.",
        "PropertyUnknown" => "The property %1 is unknown.",
        "PropertyMissing" => "The property %1 is required and missing.",
        "PropertyValueTypeError" => "The value %1 of the property %2 has the wrong type.",
        "PropertyValueConflict" => {
            "The property %1 cannot be written because of the value of the property %2."
        }
        "ActionParameterMissing" => "The action %1 requires the parameter %2.",
        "ActionParameterUnknown" | "ActionParameterNotSupported" => {
            "The parameter %2 of the action %1 is not supported."
        }
        "ActionNotSupported" => "The action %1 is not supported.",
        "ActionParameterValueConflict" => {
            "The parameter %1 of an action conflicts with the state of the resource."
        }
        "InvalidOperationForSystemState" => {
            "The operation is not possible in the present state of the system."
        }
        "UnableToModifyDuringSystemPOST" => {
            "Nothing can be changed while the system runs its power-on self-test."
        }
        "PreconditionFailed" => "The ETag does not match the resource's.",
        "PreconditionRequired" => "The request needs an If-Match header.",
        "InsufficientPrivilege" => "The account lacks a privilege for this.",
        "NoValidSession" => "There is no valid session.",
        "SessionLimitExceeded" => "All sessions of the BMC are in use.",
        "ResourceInUse" => "The resource is in use.",
        "LicenseKeyRequired" => "A licence is required for this.",
        _ => return format!("{id} {}", arguments.join(", ")).trim().to_owned(),
    };
    filled(meaning, arguments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(body: &Value) -> Vec<String> {
        of(body).into_iter().map(|message| message.text).collect()
    }

    #[test]
    fn arguments_are_filled_in() {
        let body = json!({"error": {"code": "Base.1.8.GeneralError", "message": "See the list", "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.8.PropertyValueNotInList", "MessageArgs": ["Cd", "BootSourceOverrideTarget"],
             "Message": "The value '%1' for %2 is not allowed.", "RelatedProperties": ["#/Boot/BootSourceOverrideTarget"]},
        ]}});
        assert_eq!(texts(&body), ["The value 'Cd' for BootSourceOverrideTarget is not allowed."]);
        assert!(of(&body)[0].is("PropertyValueNotInList"));
        assert!(of(&body)[0].about.contains(&"#/Boot/BootSourceOverrideTarget".to_owned()));
    }

    #[test]
    fn an_id_alone_is_put_into_words() {
        let body = json!({"error": {"code": "iLO.0.10.ExtendedInfo", "message": "See @Message.ExtendedInfo", "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.4.PropertyNotWritable", "MessageArgs": ["BootSourceOverrideMode"]},
            {"MessageId": "iLO.2.14.UnsupportedThing", "MessageArgs": ["x", "y"]},
        ]}});
        assert_eq!(
            texts(&body),
            ["The property BootSourceOverrideMode cannot be written.", "iLO.2.14.UnsupportedThing x, y"]
        );
    }

    #[test]
    fn what_says_nothing_is_left_out_and_repetitions_are_said_once() {
        let entry = |id: &str, text: &str| json!({"MessageId": id, "Message": text});
        let body = json!({"error": {"@Message.ExtendedInfo": [
            entry("Base.1.0.GeneralError", "A general error has occurred."),
            entry("IDRAC.1.6.PSU501", "The server is already powered on."),
            entry("IDRAC.1.6.PSU501", "The server is already powered on."),
        ]}});
        assert_eq!(texts(&body), ["The server is already powered on."]);
        let general =
            json!({"error": {"@Message.ExtendedInfo": [entry("Base.1.0.GeneralError", "Something.")]}});
        assert_eq!(texts(&general), ["Something."]);
    }

    #[test]
    fn odd_places_and_shapes_are_read() {
        for body in [
            json!({"@Message.ExtendedInfo": {"MessageId": "Base.1.0.X", "Message": "odd"}}),
            json!({"error": {"message": "odd", "code": "X"}}),
            json!({"Messages": [{"MessageId": "T.1", "Message": "odd"}]}),
        ] {
            assert_eq!(texts(&body), ["odd"], "{body}");
        }
        for body in [json!(null), json!([]), json!({"error": "odd"}), json!("odd")] {
            assert_eq!(texts(&body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let message = Message { text: "ü".repeat(1000), ..Message::default() };
        assert_eq!(short(&[message]).chars().count(), LONGEST + 3);
    }
}
