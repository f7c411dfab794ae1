//! An external runtime gateway over HTTP. Requests are never repeated. `docs/operations/gateway.md` specifies the
//! wire format.

use crate::ipc::{MAX_RESPONSE_BYTES, Response};
use async_trait::async_trait;
use fairway_domain::execution::script::{
    GatewayFailure, InterruptedScriptBehaviour, Language, MAX_DURATION, PreparedGateway, ScriptGateway, ScriptLimits,
    ScriptRequest, ScriptResult,
};
use fairway_domain::id::ExecutionId;
use fairway_domain::secret::Secret;
use fairway_egress::{
    EgressError, EgressRefusal, EgressRequest, EndpointClient, Guard, Method, ResponseLimits, StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::json;
use std::{fmt, time::Duration};

/// Time that the gateway may take for a request in addition to the script's time limit.
const GATEWAY_MARGIN: Duration = Duration::from_secs(5);

/// Sends scripts to an external gateway at a configured address.
#[derive(Clone)]
pub struct HttpGateway {
    endpoint: EndpointClient,
    authorization: Option<HeaderValue>,
}

/// A token that is not a valid header value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the token has characters that a header cannot contain")]
pub struct UnusableToken;

impl fmt::Debug for HttpGateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpGateway").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl HttpGateway {
    /// Creates the client of the gateway at this address. The operator configured the address, so this client's
    /// guard allows its exact origin. Requests contain no token until one is set with [`Self::with_token`].
    ///
    /// # Errors
    /// When the address is invalid or cannot be used by the guard.
    pub fn new(guard: &Guard, address: &str) -> Result<Self, EgressError> {
        let limits = ResponseLimits { timeout: MAX_DURATION + GATEWAY_MARGIN, max_body: MAX_RESPONSE_BYTES };
        let url = Url::parse(address).map_err(|_| EgressRefusal::InvalidAddress)?;
        let guard = guard.clone().with_allowed_origin(&url);
        Ok(Self { endpoint: guard.endpoint(address, limits)?, authorization: None })
    }

    /// Adds an access token to all requests.
    ///
    /// # Errors
    /// When the token is not a valid header value.
    pub fn with_token(self, token: &Secret) -> Result<Self, UnusableToken> {
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| UnusableToken)?;
        authorization.set_sensitive(true);
        Ok(Self { authorization: Some(authorization), ..self })
    }

    async fn send_script(&self, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let execution_id = request.execution_id.to_string();
        let idempotency_key = HeaderValue::from_str(&execution_id).map_err(|_| GatewayFailure::Unreachable)?;
        headers.insert(HeaderName::from_static("idempotency-key"), idempotency_key);
        headers.extend(self.authorization.clone().map(|authorization| (header::AUTHORIZATION, authorization)));
        let body = json!({
            "execution_id": execution_id,
            "language": request.script.language.as_str(),
            "code": request.script.code,
            "limits": request.limits.as_json(),
        });
        let call = EgressRequest { method: Method::POST, path: String::new(), headers, body: body.to_string().into() };
        let to_failure = |error| gateway_failure(error, request.execution_id);
        let response = self.endpoint.send(call).await.map_err(to_failure)?;
        if response.status() != StatusCode::OK {
            tracing::info!(
                execution_id = %request.execution_id,
                status = response.status().as_u16(),
                "the runtime gateway returned a status other than 200; ending the run as unknown"
            );
            return Err(GatewayFailure::Lost);
        }
        Response::read(&response.read_all().await.map_err(to_failure)?, request.limits.output_bytes)
    }
}

impl ScriptGateway for HttpGateway {
    fn name(&self) -> &'static str {
        "external"
    }

    fn interrupted_script_behaviour(&self) -> InterruptedScriptBehaviour {
        InterruptedScriptBehaviour::MayContinue
    }

    fn prepare(&self, _: Language, _: ScriptLimits) -> Box<dyn PreparedGateway> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl PreparedGateway for HttpGateway {
    async fn run(self: Box<Self>, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure> {
        tokio::time::timeout(request.limits.wall_time + GATEWAY_MARGIN, self.send_script(request))
            .await
            .map_err(|_| GatewayFailure::TimedOut)?
    }
}

/// Converts a failure for the caller; the log records its cause. If the script was not sent, it did not run.
/// Otherwise its outcome is unknown.
fn gateway_failure(error: EgressError, execution_id: ExecutionId) -> GatewayFailure {
    let failure = match error {
        EgressError::Refused(_) | EgressError::Unresolved | EgressError::Unreachable | EgressError::Tls => {
            GatewayFailure::Unreachable
        }
        EgressError::TimedOut => GatewayFailure::TimedOut,
        EgressError::Redirected | EgressError::TooLong | EgressError::Encoded | EgressError::Incomplete => {
            GatewayFailure::Lost
        }
    };
    let (code, source) = (failure.code(), &error as &dyn std::error::Error);
    match failure {
        GatewayFailure::Unreachable => {
            tracing::info!(
                %execution_id,
                code,
                error = source,
                "failed to call the runtime gateway; ending the run as failed"
            );
        }
        GatewayFailure::TimedOut | GatewayFailure::Lost => {
            tracing::info!(
                %execution_id,
                code,
                error = source,
                "failed to receive the response of the runtime gateway; ending the run as unknown"
            );
        }
    }
    failure
}

#[cfg(test)]
mod tests;
