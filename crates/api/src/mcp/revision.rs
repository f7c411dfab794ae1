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
/// 400 with the revisions that are spoken.
pub(super) fn read(request: &HttpRequest, document: &Value) -> Result<Option<ProtocolVersion>, HttpResponse> {
    let is_handshake = document.get("method").and_then(Value::as_str) == Some(HANDSHAKE);
    match (named(request.headers()), is_handshake) {
        (Named::Nothing, true) => Ok(None),
        (Named::Nothing, false) if document.pointer(IN_META).is_some() => Ok(None),
        (Named::Nothing, false) => Ok(Some(HANDSHAKEN)),
        (Named::One(name), true) => {
            let offered = document.pointer("/params/protocolVersion").and_then(Value::as_str);
            if offered == Some(name) {
                return Ok(None);
            }
            let message = "MCP-Protocol-Version is not what the handshake names";
            Err(wrong(StatusCode::BAD_REQUEST, document, ErrorCode::HEADER_MISMATCH, message, None))
        }
        (Named::One(name), false) if REVISIONS.iter().any(|spoken| spoken.as_str() == name) => Ok(None),
        (Named::One(name), false) => Err(unsupported(document, Some(name))),
        (Named::Garbage, _) => Err(unsupported(document, None)),
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

/// The protocol has a client told what it asked for. That is repeated where it could be the name of a revision.
fn unsupported(document: &Value, name: Option<&str>) -> HttpResponse {
    let data = match name.filter(|name| is_date(name)) {
        Some(name) => json!({ "supported": REVISIONS, "requested": name }),
        None => json!({ "supported": REVISIONS }),
    };
    let message = "this revision of the protocol is not spoken here";
    let code = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION;
    wrong(StatusCode::BAD_REQUEST, document, code, message, Some(data))
}

/// Revisions are named by their days.
fn is_date(name: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.split('-');
    let day = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(day, (Some(year), Some(month), Some(day), None) if digits(year, 4) && digits(month, 2) && digits(day, 2))
}
