//! The supported protocol revisions, and the check of the revision that a request names.

use super::rpc_error;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName},
    },
};
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::{Value, json};

/// The supported revisions: the last one with a handshake, and the current one.
pub(crate) const REVISIONS: [ProtocolVersion; 2] = [DEFAULT_REVISION, ProtocolVersion::V_2026_07_28];
/// The revision of requests that name none. Requests of the other supported revision must name it.
const DEFAULT_REVISION: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// HTTP header that names the protocol revision of a request.
pub(super) const HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// JSON pointer to the revision in the message, since 2026-07-28.
const META_POINTER: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// The method that negotiates the revision. Its parameters offer a revision, and the response names a supported
/// one.
const INITIALIZE_METHOD: &str = "initialize";

/// Checks the revision of a request. Returns the revision to add if the request names none.
///
/// # Errors
/// When the request names an unsupported revision.
pub(super) fn check_revision(
    request: &HttpRequest,
    document: &Value,
) -> Result<Option<ProtocolVersion>, UnsupportedRevision> {
    let is_handshake = document.get("method").and_then(Value::as_str) == Some(INITIALIZE_METHOD);
    match (revision_header(request.headers()), is_handshake) {
        (RevisionHeader::Absent, true) => Ok(None),
        (RevisionHeader::Absent, false) if document.pointer(META_POINTER).is_some() => Ok(None),
        (RevisionHeader::Absent, false) => Ok(Some(DEFAULT_REVISION)),
        (RevisionHeader::Single(name), true) => {
            let offered = document.pointer("/params/protocolVersion").and_then(Value::as_str);
            if offered == Some(name) { Ok(None) } else { Err(UnsupportedRevision::HeaderMismatch) }
        }
        (RevisionHeader::Single(name), false) if REVISIONS.iter().any(|revision| revision.as_str() == name) => Ok(None),
        (RevisionHeader::Single(name), false) => Err(UnsupportedRevision::Unknown(name.to_owned())),
        (RevisionHeader::Malformed, _) => Err(UnsupportedRevision::Malformed),
    }
}

/// The protocol revision that the header of a request names.
enum RevisionHeader<'r> {
    Absent,
    Single(&'r str),
    /// Several values, or a value that is not text.
    Malformed,
}

fn revision_header(headers: &HeaderMap) -> RevisionHeader<'_> {
    let mut values = headers.get_all(HEADER);
    match (values.next(), values.next()) {
        (None, _) => RevisionHeader::Absent,
        (Some(value), None) => value.to_str().map_or(RevisionHeader::Malformed, RevisionHeader::Single),
        (Some(_), Some(_)) => RevisionHeader::Malformed,
    }
}

/// Why the revision of a request is unsupported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum UnsupportedRevision {
    /// The header differs from the handshake message.
    HeaderMismatch,
    /// The revision is not supported.
    Unknown(String),
    /// The header is not the name of a revision.
    Malformed,
}

impl UnsupportedRevision {
    /// A 400 as a JSON-RPC error with the supported revisions. It repeats the requested revision only if that has
    /// the form of a revision name.
    pub(super) fn to_response(&self, document: &Value) -> HttpResponse {
        let message = "this protocol revision is not supported";
        let (code, message, data) = match self {
            Self::HeaderMismatch => {
                (ErrorCode::HEADER_MISMATCH, "MCP-Protocol-Version does not match the handshake", Value::Null)
            }
            Self::Unknown(name) if is_date(name) => {
                let data = json!({ "supported": REVISIONS, "requested": name });
                (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message, data)
            }
            Self::Unknown(_) | Self::Malformed => {
                (ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, message, json!({ "supported": REVISIONS }))
            }
        };
        rpc_error(StatusCode::BAD_REQUEST, document, code, message, data)
    }
}

/// Whether a text is a date, the form of revision names.
fn is_date(name: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.split('-');
    let day = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(day, (Some(year), Some(month), Some(day), None) if digits(year, 4) && digits(month, 2) && digits(day, 2))
}
