//! Checks whether the endpoints of connections respond, through the egress guard.

use crate::ToolAndHookClient;
use async_trait::async_trait;
use fairway_domain::{
    connection::probe::{EndpointProber, Probe, ProbeError, ProbeProtocol},
    execution::http_call::{MAX_DURATION, MAX_RESPONSE_BYTES},
    slug::Slug,
};
use fairway_egress::header::HeaderMap;
use fairway_egress::{EgressError, EgressRequest, Method, header};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

/// The default port of PostgreSQL.
const POSTGRES_PORT: u16 = 5432;
/// The default port of mail servers.
const SMTP_PORT: u16 = 25;
/// PostgreSQL's request for encryption: the length of the message, and the request code 80877103.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

#[async_trait]
impl EndpointProber for ToolAndHookClient {
    async fn probe(&self, tenant: &Slug, probe: &Probe) -> Result<(), ProbeError> {
        let check = async {
            match probe.protocol {
                ProbeProtocol::Http | ProbeProtocol::S3 => self.probe_http(tenant, probe).await,
                ProbeProtocol::Postgres => self.probe_postgres(&probe.endpoint).await,
                ProbeProtocol::Smtp => self.probe_smtp(&probe.endpoint).await,
            }
        };
        timeout(MAX_DURATION, check).await.map_err(|_| ProbeError::TimedOut)?
    }
}

impl ToolAndHookClient {
    async fn probe_http(&self, tenant: &Slug, probe: &Probe) -> Result<(), ProbeError> {
        let endpoint = self.endpoint(&probe.endpoint, MAX_RESPONSE_BYTES).map_err(probe_error)?;
        let mut headers = HeaderMap::new();
        if let Some(token) = &probe.token {
            let value = self.secret_header(tenant, token, "Bearer ", None).await;
            headers.insert(header::AUTHORIZATION, value.map_err(|_| ProbeError::SecretUnavailable)?);
        }
        let request = EgressRequest { method: Method::GET, path: String::new(), headers, body: Vec::new().into() };
        let response = endpoint.send(request).await.map_err(probe_error)?;
        // An object store refuses anonymous requests with a client error, which also shows that it is running.
        let is_healthy = response.status().is_success()
            || probe.protocol == ProbeProtocol::S3 && response.status().is_client_error();
        if is_healthy { Ok(()) } else { Err(ProbeError::Refused) }
    }

    /// Sends PostgreSQL's request for encryption. A PostgreSQL server answers with one letter: `S` or `N`.
    async fn probe_postgres(&self, endpoint: &str) -> Result<(), ProbeError> {
        let mut stream = self.guard.dial(endpoint, POSTGRES_PORT).await.map_err(probe_error)?;
        stream.write_all(&SSL_REQUEST).await.map_err(|_| ProbeError::Unreachable)?;
        match stream.read_u8().await {
            Ok(b'S' | b'N') => Ok(()),
            Ok(_) => Err(ProbeError::Malformed),
            Err(_) => Err(ProbeError::Unreachable),
        }
    }

    /// Reads the greeting of a mail server. A server that accepts mail greets with status 220.
    async fn probe_smtp(&self, endpoint: &str) -> Result<(), ProbeError> {
        let mut stream = self.guard.dial(endpoint, SMTP_PORT).await.map_err(probe_error)?;
        let mut greeting = [0_u8; 3];
        stream.read_exact(&mut greeting).await.map_err(|_| ProbeError::Unreachable)?;
        match &greeting {
            b"220" => Ok(()),
            [b'4' | b'5', _, _] => Err(ProbeError::Refused),
            _ => Err(ProbeError::Malformed),
        }
    }
}

/// Converts a failure. The log records its cause without the address, which may contain a secret.
fn probe_error(error: EgressError) -> ProbeError {
    tracing::info!(
        error = &error as &dyn std::error::Error,
        "failed to check the endpoint of a connection; recording the check as failed"
    );
    match error {
        EgressError::Refused(_) => ProbeError::Forbidden,
        EgressError::Unresolved | EgressError::Unreachable | EgressError::Tls => ProbeError::Unreachable,
        EgressError::TimedOut => ProbeError::TimedOut,
        EgressError::Redirected => ProbeError::Refused,
        EgressError::TooLong | EgressError::Encoded | EgressError::Incomplete => ProbeError::Malformed,
    }
}
