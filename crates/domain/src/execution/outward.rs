//! Calls of addresses that contents name: by the tools of agents, and by hooks.
//!
//! What is called is nobody's of this service, so all of it is bounded: where a call may go, how long it takes, how much
//! comes back. A call is made at most once; whoever makes it decides what a lost answer means.

use super::tool::{McpCall, McpError};
use crate::{secret::SecretRef, slug::Slug};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::time::Duration;

/// Longest time of a call, from its beginning to the last byte of its answer (contract 8).
pub const LONGEST: Duration = Duration::from_secs(10);
/// Most bytes of an answer (contract 8).
pub const MOST: usize = 64 * 1024;

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Asks for something.
    Get,
    /// Sends something.
    Post,
    /// Puts something in its place.
    Put,
    /// Changes something.
    Patch,
    /// Takes something away.
    Delete,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// The spelling in content and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The method of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// Whether what is said goes into a body; otherwise it goes into the query.
    #[must_use]
    pub const fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

/// One call of an address.
#[derive(Clone, PartialEq, Debug)]
pub struct OutwardCall {
    /// The address.
    pub address: String,
    /// What follows it, beginning with a slash; empty for the address itself.
    pub path: String,
    /// How.
    pub method: Method,
    /// What is said: a JSON object, or the parts of a query.
    pub said: Map<String, Value>,
    /// What opens it, sent as a bearer token.
    pub secret: Option<SecretRef>,
    /// What names the call, the same however often it is sent: header `Idempotency-Key`.
    pub call_id: String,
    /// Longest time; never longer than [`LONGEST`].
    pub time: Duration,
    /// Hosts that it may go to, `*.` standing for any name below; `None` where every host is as good as another.
    pub hosts: Option<Vec<String>>,
}

/// Why a call has no answer that could be used. Nothing here repeats an address, a secret or a byte of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OutwardError {
    /// Nothing may be sent there.
    #[error("nothing may be sent to this address")]
    Forbidden,
    /// This server could not find out whose secrets to take.
    #[error("the call could not be prepared")]
    Unprepared,
    /// What opens it cannot be read.
    #[error("the secret of the call cannot be read")]
    Secret,
    /// Nobody took the connection.
    #[error("nobody answers at this address")]
    Unreachable,
    /// It was sent, and no whole answer came in time: whether it had an effect is not known.
    #[error("there was no answer in time")]
    TimedOut,
    /// It was sent, and the answer broke off: whether it had an effect is not known.
    #[error("the answer broke off")]
    Broken,
    /// The answer is longer than it may be.
    #[error("the answer is too long")]
    TooLong,
    /// It was answered with a status that is no success, or with a redirection, which nobody follows.
    #[error("it was answered with a refusal")]
    Refused,
    /// The answer is neither JSON nor text.
    #[error("the answer cannot be read")]
    Malformed,
}

impl OutwardError {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Forbidden,
        Self::Unprepared,
        Self::Secret,
        Self::Unreachable,
        Self::TimedOut,
        Self::Broken,
        Self::TooLong,
        Self::Refused,
        Self::Malformed,
    ];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Forbidden => "call_forbidden",
            Self::Unprepared => "call_unprepared",
            Self::Secret => "call_secret_unavailable",
            Self::Unreachable => "call_unreachable",
            Self::TimedOut => "call_timeout",
            Self::Broken => "call_broken",
            Self::TooLong => "call_answer_too_long",
            Self::Refused => "call_refused",
            Self::Malformed => "call_malformed_answer",
        }
    }

    /// The failure of that code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }
}

/// Makes calls.
#[async_trait]
pub trait Outward: Send + Sync {
    /// Makes a call once, with the secrets of this tenant. The answer is JSON, or a text where it says that it is one;
    /// an empty one is null.
    async fn call(&self, tenant: &Slug, call: &OutwardCall) -> Result<Value, OutwardError>;

    /// Calls a tool of a server once, with the secrets of this tenant, if it is what was pinned: what it says of itself is
    /// read in front of the call. The result is JSON, or a text.
    async fn use_tool(&self, tenant: &Slug, call: &McpCall) -> Result<Value, McpError>;
}
