//! Outgoing HTTP calls of agent tools and hooks. The addresses come from the contents of assets.
//!
//! The servers are untrusted, so each call is bounded in destination, time and response size. A call is made at most
//! once; the caller decides how to treat a lost response.

use super::tool::{McpCall, McpError};
use crate::{secret::SecretRef, slug::Slug};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::time::Duration;

/// The maximum time of a call, from its start to the last byte of the response.
pub const MAX_DURATION: Duration = Duration::from_secs(10);
/// The maximum size of a response, in bytes.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The HTTP method of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpMethod {
    /// The method GET; the arguments become query parameters.
    Get,
    /// The method POST; the arguments become a JSON body.
    Post,
    /// The method PUT; the arguments become a JSON body.
    Put,
    /// The method PATCH; the arguments become a JSON body.
    Patch,
    /// The method DELETE; the arguments become query parameters.
    Delete,
}

impl HttpMethod {
    /// Every method.
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// The form in content and on the wire.
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

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }

    /// Whether the method sends the arguments as a JSON body; otherwise they become query parameters.
    #[must_use]
    pub const fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }
}

/// An outgoing HTTP call of an agent tool or a hook.
#[derive(Clone, PartialEq, Debug)]
pub struct HttpCall {
    /// The base URL of the server.
    pub address: String,
    /// The path that is appended to the base URL, with a leading slash; empty for the base URL itself.
    pub path: String,
    /// The HTTP method of the call.
    pub method: HttpMethod,
    /// The arguments of the call, sent as a JSON object or as query parameters.
    pub arguments: Map<String, Value>,
    /// The reference to the secret that is sent as bearer token, if any.
    pub secret: Option<SecretRef>,
    /// The idempotency key of the call, sent as header `Idempotency-Key`. A resumed run that repeats the call sends the
    /// same key.
    pub call_id: String,
    /// The maximum time of this call, which is at most [`MAX_DURATION`].
    pub timeout: Duration,
    /// The hosts that the call may reach, where `*.` matches any subdomain; `None` permits every host.
    pub allowed_hosts: Option<Vec<String>>,
}

/// The failure of an HTTP call. No message contains an address, a secret or a part of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HttpCallError {
    /// The destination or a header of the call is not allowed.
    #[error("calls to this address are not allowed")]
    Forbidden,
    /// The tenant of the call could not be loaded, so its secrets cannot be resolved.
    #[error("the call could not be prepared")]
    TenantUnresolved,
    /// The secret store could not return the secret.
    #[error("the secret of the call cannot be read")]
    SecretUnavailable,
    /// The connection could not be established.
    #[error("the address is unreachable")]
    Unreachable,
    /// The request was sent, but no complete response arrived in time. Its effect is unknown.
    #[error("the call timed out")]
    TimedOut,
    /// The request was sent, but the response was truncated. Its effect is unknown.
    #[error("the response was cut off")]
    Truncated,
    /// The response exceeds [`MAX_RESPONSE_BYTES`].
    #[error("the response is too long")]
    TooLong,
    /// The response has an error status or is a redirection; the client never follows redirections.
    #[error("the server responded with an error status")]
    ErrorStatus,
    /// The response is neither JSON nor text.
    #[error("the response could not be read")]
    Malformed,
}

impl HttpCallError {
    /// Every failure.
    pub const ALL: [Self; 9] = [
        Self::Forbidden,
        Self::TenantUnresolved,
        Self::SecretUnavailable,
        Self::Unreachable,
        Self::TimedOut,
        Self::Truncated,
        Self::TooLong,
        Self::ErrorStatus,
        Self::Malformed,
    ];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Forbidden => "call_forbidden",
            Self::TenantUnresolved => "call_unprepared",
            Self::SecretUnavailable => "call_secret_unavailable",
            Self::Unreachable => "call_unreachable",
            Self::TimedOut => "call_timeout",
            Self::Truncated => "call_broken",
            Self::TooLong => "call_answer_too_long",
            Self::ErrorStatus => "call_refused",
            Self::Malformed => "call_malformed_answer",
        }
    }

    /// Parses the stable code of a failure.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }
}

/// The port through which agent tools and hooks call HTTP addresses and MCP servers.
#[async_trait]
pub trait HttpCaller: Send + Sync {
    /// Makes one call with the secrets of the tenant. The result is JSON, or text if the response declares a text type.
    /// An empty response yields null.
    async fn call(&self, tenant: &Slug, call: &HttpCall) -> Result<Value, HttpCallError>;

    /// Checks the current description of an MCP tool against its pin, then calls the tool once with the secrets of the
    /// tenant. The result is JSON or text.
    async fn call_tool(&self, tenant: &Slug, call: &McpCall) -> Result<Value, McpError>;
}
