//! Kea's answers (doc/sphinx/arm/ctrl-channel.rst): `{"result": N, "text": "...", "arguments": ...}`.

use serde_json::Value;

use crate::Error;

/// An answer that is not a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Kea's sentence for people; often empty.
    pub text: String,
    /// `Null` when there are none.
    pub arguments: Value,
    /// Result 3: the command worked and found nothing.
    pub empty: bool,
}

/// Reads what a UNIX socket answers (one object) or what HTTP answers (a list with one object per service).
pub(crate) fn parse(command: &str, body: Value) -> Result<Answer, Error> {
    let answer = match body {
        Value::Array(mut answers) if answers.len() == 1 => answers.remove(0),
        Value::Object(_) => body,
        Value::Array(answers) => {
            return Err(Error::protocol(
                command,
                "the answer of one server",
                &format!("{} answers", answers.len()),
            ));
        }
        _ => return Err(Error::protocol(command, "an answer of Kea", "something else")),
    };
    let text = answer["text"].as_str().unwrap_or_default().to_owned();
    match answer["result"].as_i64() {
        Some(result @ (0 | 3)) => {
            Ok(Answer { text, arguments: answer["arguments"].clone(), empty: result == 3 })
        }
        Some(2) => Err(Error::Unsupported { command: command.to_owned() }),
        Some(401) => Err(Error::Unauthorized),
        Some(_) => Err(Error::Refused { command: command.to_owned(), text }),
        None => Err(Error::protocol(command, "a result number", "none")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_of_an_answer() {
        let shown = |body: Value| match parse("config-get", body) {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        };
        insta::assert_snapshot!(shown(json!([{"result": 0, "arguments": {"a": 1}}])), @r#"Answer { text: "", arguments: Object {"a": Number(1)}, empty: false }"#);
        insta::assert_snapshot!(shown(json!({"result": 3, "text": "0 leases found."})), @r#"Answer { text: "0 leases found.", arguments: Null, empty: true }"#);
        insta::assert_snapshot!(shown(json!([{"result": 2, "text": "'x' command not supported."}])), @"this Kea does not know the command config-get");
        insta::assert_snapshot!(shown(json!([{"result": 1, "text": "bad"}])), @"Kea refuses config-get: bad");
        insta::assert_snapshot!(shown(json!({"result": 401, "text": "Unauthorized"})), @"Kea asks for basic authentication and does not accept the user and password given (401)");
        insta::assert_snapshot!(shown(json!([])), @"config-get: expected the answer of one server, found 0 answers: is this the control agent of a DHCPv4 server?");
        insta::assert_snapshot!(shown(json!("hello")), @"config-get: expected an answer of Kea, found something else: is this the control agent of a DHCPv4 server?");
        insta::assert_snapshot!(shown(json!({"ok": true})), @"config-get: expected a result number, found none: is this the control agent of a DHCPv4 server?");
    }
}
