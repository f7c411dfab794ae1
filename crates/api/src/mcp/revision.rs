//! Which revision a request speaks, and what is told to one that speaks another.

use super::wrong;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName},
    },
};
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::{Value, json};

/// The revisions that are spoken: the last with a handshake, and the present one.
pub(crate) const REVISIONS: [ProtocolVersion; 2] = [HANDSHAKEN, ProtocolVersion::V_2026_07_28];
/// What is spoken with whoever names none: no other one of those that are spoken allows it.
const HANDSHAKEN: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// The header that names it.
pub(super) const HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Where a request names it besides, since 2026-07-28.
const IN_META: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// The method that agrees on one. What it names is an offer, and the answer names one that is spoken.
const HANDSHAKE: &str = "initialize";

/// Lets a request through whose revision is spoken, with the one to go by where it names none itself.
///
/// # Errors
/// When it names another one.
pub(super) fn read(request: &HttpRequest, document: &Value) -> Result<Option<ProtocolVersion>, Unspoken> {
    let is_handshake = document.get("method").and_then(Value::as_str) == Some(HANDSHAKE);
    match (named(request.headers()), is_handshake) {
        (Named::Nothing, true) => Ok(None),
        (Named::Nothing, false) if document.pointer(IN_META).is_some() => Ok(None),
        (Named::Nothing, false) => Ok(Some(HANDSHAKEN)),
        (Named::One(name), true) => {
            let offered = document.pointer("/params/protocolVersion").and_then(Value::as_str);
            if offered == Some(name) { Ok(None) } else { Err(Unspoken::Torn) }
        }
        (Named::One(name), false) if REVISIONS.iter().any(|spoken| spoken.as_str() == name) => Ok(None),
        (Named::One(name), false) => Err(Unspoken::Other(name.to_owned())),
        (Named::Garbage, _) => Err(Unspoken::Garbage),
    }
}

/// What the header names.
enum Named<'r> {
    Nothing,
    One(&'r str),
    /// Several at once, or what is no text.
    Garbage,
}

fn named(headers: &HeaderMap) -> Named<'_> {
    let mut values = headers.get_all(HEADER);
    match (values.next(), values.next()) {
        (None, _) => Named::Nothing,
        (Some(value), None) => value.to_str().map_or(Named::Garbage, Named::One),
        (Some(_), Some(_)) => Named::Garbage,
    }
}

/// Why a request is not answered in the revision that it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unspoken {
    /// The header of a handshake says something else than the handshake.
    Torn,
    /// It is another revision than those that are spoken.
    Other(String),
    /// It is no name of a revision.
    Garbage,
}

impl Unspoken {
    /// 400, in the words of the protocol: a client is told what is spoken here and what it asked for. That is repeated where
    /// it could be the name of a revision.
    pub(super) fn told(&self, document: &Value) -> HttpResponse {
        let message = "this revision of the protocol is not spoken here";
        let (code, message, data) = match self {
            Self::Torn => {
                (ErrorCode::HEADER_MISMATCH, "MCP-Protocol-Version is not what the handshake names", Value::Null)
            }
            Self::Other(name) if is_date(name) => {
                let data = json!({ "supported": REVISIONS, "requested": name });
                (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message, data)
            }
            Self::Other(_) | Self::Garbage => {
                (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message, json!({ "supported": REVISIONS }))
            }
        };
        wrong(StatusCode::BAD_REQUEST, document, code, message, data)
    }
}

/// Revisions are named by their days.
fn is_date(name: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.split('-');
    let day = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(day, (Some(year), Some(month), Some(day), None) if digits(year, 4) && digits(month, 2) && digits(day, 2))
}
