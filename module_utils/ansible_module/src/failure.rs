//! A failure as the user sees it: a stable code to branch on, a sentence, and named facts.

use std::fmt;

use deadline::Expired;
use serde_json::{Map, Value};

/// The stable name of a kind of failure, returned as `error_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(&'static str);

impl ErrorCode {
    /// The arguments are wrong in themselves; nothing was asked or written.
    pub const BAD_ARGUMENT: Self = Self("bad_argument");
    /// The arguments are sound, but the state of the world forbids the change; nothing was written.
    pub const REFUSED: Self = Self("refused");
    /// What the task names does not exist.
    pub const NOT_FOUND: Self = Self("not_found");
    /// Somebody else holds or changed the object.
    pub const CONFLICT: Self = Self("conflict");
    /// The deadline passed.
    pub const TIMEOUT: Self = Self("timeout");
    /// Credentials or privileges were not accepted.
    pub const AUTH: Self = Self("auth");
    /// The certificate or the TLS handshake was not accepted.
    pub const TLS: Self = Self("tls");
    /// No connection, or it broke.
    pub const UNREACHABLE: Self = Self("unreachable");
    /// A write was accepted and reads back differently.
    pub const READ_BACK_MISMATCH: Self = Self("read_back_mismatch");
    /// The system answered with an error of its own.
    pub const API_ERROR: Self = Self("api_error");
    /// A command on the host failed.
    pub const COMMAND_FAILED: Self = Self("command_failed");
    /// A signal ended the run.
    pub const INTERRUPTED: Self = Self("interrupted");
    /// A fault of this program.
    pub const INTERNAL: Self = Self("internal");

    /// A code of a module's own; document it in the module's return values.
    #[must_use]
    pub const fn custom(name: &'static str) -> Self {
        Self(name)
    }

    /// The word in the result.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a run failed. `details` become top-level keys of the result (`field`, `expected`, `holder`, ...).
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: ErrorCode,
    pub msg: String,
    pub details: Map<String, Value>,
    /// The write under way certainly did not happen: a result does not list it as written.
    pub nothing_sent: bool,
}

impl Failure {
    #[must_use]
    pub fn new(code: ErrorCode, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: Map::new(), nothing_sent: false }
    }

    /// An argument that is wrong in itself; `option` is its path as the user writes it (`disks[0].size`).
    #[must_use]
    pub fn bad_argument(option: impl Into<String>, why: impl fmt::Display) -> Self {
        let option = option.into();
        Self::new(ErrorCode::BAD_ARGUMENT, format!("option `{option}`: {why}")).with("option", option)
    }

    /// A sound request that the state of the world forbids.
    #[must_use]
    pub fn refused(msg: impl Into<String>) -> Self {
        Self::new(ErrorCode::REFUSED, msg)
    }

    #[must_use]
    pub fn not_found(msg: impl Into<String>) -> Self {
        Self::new(ErrorCode::NOT_FOUND, msg)
    }

    /// Adds a named fact to the result.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// A failure of [`apply`](crate::Module::apply) before anything was written. Without this word it counts
    /// as a write whose answer is lost.
    #[must_use]
    pub fn nothing_sent(mut self) -> Self {
        self.nothing_sent = true;
        self
    }

    /// Puts what was being done in front of the sentence: `reading VM 101: connection refused`.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.msg = format!("{what}: {}", self.msg);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.msg, self.code)
    }
}

impl std::error::Error for Failure {}

impl From<Expired> for Failure {
    fn from(expired: Expired) -> Self {
        match expired {
            Expired::TimedOut { budget } => Self::new(
                ErrorCode::TIMEOUT,
                format!("not done within `timeout` ({} s)", budget.as_secs_f64()),
            ),
            Expired::Interrupted => Self::new(ErrorCode::INTERRUPTED, "interrupted by a signal"),
        }
    }
}
