use std::fmt;

use secrecy::SecretString;
use serde_json::Value;

use crate::error::{ErrorKind, HttpError};

/// The methods the APIs of the collection use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub(crate) fn carries_body(self) -> bool {
        !matches!(self, Self::Get | Self::Delete)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a request carries.
#[derive(Clone)]
pub enum Body {
    None,
    /// Percent-encoded pairs: the body of a write, the query of a GET or DELETE.
    Form(Vec<(String, String)>),
    /// A JSON document; a GET or DELETE cannot carry one.
    Json(Value),
}

/// One request. `path` is appended to the client's base URL; its segments are already percent-encoded.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub body: Body,
    /// Further headers; the values may be secrets (tickets, CSRF tokens).
    pub headers: Vec<(String, SecretString)>,
}

impl fmt::Debug for Request {
    /// Method and path only: bodies and headers carry passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Request {
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: Body::None, headers: Vec::new() }
    }

    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path)
    }

    #[must_use]
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::Post, path)
    }

    #[must_use]
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::Put, path)
    }

    #[must_use]
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::Patch, path)
    }

    #[must_use]
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::Delete, path)
    }

    #[must_use]
    pub fn form(mut self, pairs: Vec<(String, String)>) -> Self {
        self.body = Body::Form(pairs);
        self
    }

    #[must_use]
    pub fn json(mut self, document: Value) -> Self {
        self.body = Body::Json(document);
        self
    }

    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: SecretString) -> Self {
        self.headers.push((name.into(), value));
        self
    }
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// The reason phrase as the server sent it, or the usual one of the status.
    pub reason: String,
    pub body: Vec<u8>,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// Method and URL that were asked, for messages.
    pub(crate) target: String,
}

impl Response {
    /// True for 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of that name, which is given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// # Errors
    /// [`ErrorKind::Protocol`] when the body is not JSON; the message shows how it begins.
    pub fn json(&self) -> Result<Value, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = self.text();
            let start: String = text.chars().take(200).collect();
            let message = format!(
                "{}: {} {} with a body that is not JSON ({error}). It begins: {start:?}",
                self.target, self.status, self.reason
            );
            HttpError::new(ErrorKind::Protocol, message).maybe_reached()
        })
    }
}
