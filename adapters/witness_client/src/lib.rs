//! Requests cosignatures of checkpoints from the witnesses of the transparency log (C2SP `tlog-witness`), through
//! the egress guard.

use async_trait::async_trait;
use fairway_domain::transparency_log::{
    NoteSignature, Witness, WitnessError, WitnessKey, WitnessRequest, WitnessResponse,
};
use fairway_egress::{
    EgressError, EgressRequest, EndpointClient, Guard, Method, ResponseLimits, StatusCode, Url, header,
};
use std::time::Duration;

/// Timeout of a request. The caller may set a shorter one for a cosignature.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a response, in bytes.
const MAX_BODY: usize = 16 << 10;
/// The media type of a response that contains the log size that the witness cosigned last.
const SIZE_TYPE: &str = "text/x.tlog.size";

/// A witness that is reached over HTTP.
#[derive(Clone, Debug)]
pub struct HttpWitness {
    key: WitnessKey,
    endpoint: EndpointClient,
}

/// The response of a witness does not conform to the protocol.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum ResponseError {
    #[error("the witness returned status {0}")]
    Status(StatusCode),
    #[error("the response of the witness has another form")]
    Form,
}

impl HttpWitness {
    /// Creates the client of the witness with this key at this submission prefix. The operator configured the
    /// address, so this client's guard allows its exact origin.
    ///
    /// # Errors
    /// When requests cannot be sent to the address.
    pub fn new(guard: &Guard, key: WitnessKey, address: &Url) -> Result<Self, EgressError> {
        let guard = guard.clone().with_allowed_origin(address);
        let endpoint = guard.endpoint(address.as_str(), ResponseLimits { timeout: TIMEOUT, max_body: MAX_BODY })?;
        Ok(Self { key, endpoint })
    }
}

fn unavailable(source: impl std::error::Error + Send + Sync + 'static) -> WitnessError {
    WitnessError::Unavailable(Box::new(source))
}

#[async_trait]
impl Witness for HttpWitness {
    fn key(&self) -> &WitnessKey {
        &self.key
    }

    async fn add_checkpoint(&self, request: &WitnessRequest) -> Result<WitnessResponse, WitnessError> {
        let call = EgressRequest {
            method: Method::POST,
            path: "add-checkpoint".to_owned(),
            headers: header::HeaderMap::new(),
            body: request.to_string().into(),
        };
        let response = self.endpoint.send(call).await.map_err(unavailable)?;
        let status = response.status();
        let is_size = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == SIZE_TYPE);
        let body = response.read_all().await.map_err(unavailable)?;
        let text = std::str::from_utf8(&body).map_err(|_| unavailable(ResponseError::Form))?;
        read_response(status, is_size, text)
    }
}

/// Interprets a response. The status 409 means that the witness last cosigned another size of the log. With 404 or
/// 403, the witness does not know the log or its key. With 422, the consistency proof is invalid.
fn read_response(status: StatusCode, is_size: bool, text: &str) -> Result<WitnessResponse, WitnessError> {
    match status {
        StatusCode::OK => {
            let lines = NoteSignature::parse_lines(text).map_err(unavailable)?;
            Ok(WitnessResponse::Cosigned(lines))
        }
        StatusCode::CONFLICT if is_size => {
            let size = text.strip_suffix('\n').unwrap_or(text).parse();
            size.map(WitnessResponse::SizeMismatch).map_err(|_| unavailable(ResponseError::Form))
        }
        // A 409 without a size means that the witness cosigned the same size with another root hash.
        StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => Err(WitnessError::Contradicted),
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Err(WitnessError::UnknownLog),
        other => Err(unavailable(ResponseError::Status(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_response_of_the_protocol() {
        let line = "\u{2014} witness.example+ AAAA\n";
        for (status, is_size, text, expected) in [
            (StatusCode::OK, false, "\u{2014} witness.example AAAAAAA=\n", "Cosigned"),
            (StatusCode::OK, false, line, "Unavailable"),
            (StatusCode::OK, false, "", "Unavailable"),
            (StatusCode::CONFLICT, true, "17\n", "SizeMismatch(17)"),
            (StatusCode::CONFLICT, true, "-1\n", "Unavailable"),
            (StatusCode::CONFLICT, true, "99999999999999999999\n", "Unavailable"),
            (StatusCode::CONFLICT, false, "17\n", "Contradicted"),
            (StatusCode::UNPROCESSABLE_ENTITY, false, "", "Contradicted"),
            (StatusCode::NOT_FOUND, false, "", "UnknownLog"),
            (StatusCode::FORBIDDEN, false, "", "UnknownLog"),
            (StatusCode::BAD_REQUEST, false, "", "Unavailable"),
            (StatusCode::INTERNAL_SERVER_ERROR, false, "", "Unavailable"),
        ] {
            let result = format!("{:?}", read_response(status, is_size, text));
            assert!(result.contains(expected), "{status} {text:?}: {result}");
        }
    }
}
