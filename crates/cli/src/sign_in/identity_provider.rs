//! The client of a server's identity provider: settings, endpoints and requests.

use crate::{
    failure::Failure,
    http_client::{ServerClient, http_agent, is_loopback, string_or_empty},
    terminal_text::sanitize,
};
use oauth2::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::slice;
use url::{Url, form_urlencoded};

/// Maximum size of a provider's response, in bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// The address of a provider's endpoint that tokens may be sent to: HTTPS, or plain HTTP on loopback.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Endpoint(Url);

impl TryFrom<String> for Endpoint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let url = Url::parse(&text).map_err(|_| "an address of the identity provider is no URL")?;
        if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)) {
            Ok(Self(url))
        } else {
            Err("an address of the identity provider is not protected by HTTPS")
        }
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.0.into()
    }
}

impl Endpoint {
    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }

    /// Posts a form, and discards the content of the response.
    pub(super) fn post_form(&self, form: &[(&str, &str)]) -> Result<(), ProviderError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = ureq::http::Request::post(self.0.as_str())
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(body.into_bytes());
        let response = send(request.map_err(|_| ProviderError::Request)?)?;
        if response.status().is_success() { Ok(()) } else { Err(ProviderError::Status(response.status().as_u16())) }
    }
}

/// Failure of a request to an identity provider.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    #[error("an address of the identity provider is no address of a request")]
    Request,
    #[error("{0}")]
    Connection(String),
    #[error("the response has the status {0}")]
    Status(u16),
}

/// Sends a request of the OAuth library.
pub(super) fn send_request(request: HttpRequest) -> Result<HttpResponse, ProviderError> {
    send(request)
}

fn send(request: ureq::http::Request<Vec<u8>>) -> Result<HttpResponse, ProviderError> {
    let url = Url::parse(&request.uri().to_string()).map_err(|_| ProviderError::Request)?;
    let failed = |error: ureq::Error| ProviderError::Connection(error.to_string());
    let mut response = http_agent(&url).run(request).map_err(failed)?;
    let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(failed)?;
    Ok(response.map(|_| body))
}

/// An identity provider that a server accepts.
pub(super) struct Provider {
    pub(super) issuer: String,
    settings: Value,
    discovery: Value,
}

/// Selects a provider from those that a server accepts.
#[derive(Clone, Copy)]
pub(super) enum ProviderChoice<'a> {
    /// The provider with this address or name.
    Named(&'a str),
    /// The first provider at which people can sign in with the command line, else the first provider.
    ForPeople,
    /// The first provider.
    First,
}

impl ProviderChoice<'_> {
    /// The settings of the selected provider. If the server's response has no list, it describes the only provider.
    fn select(self, settings: &Value) -> Result<Value, Failure> {
        let list = settings.get("issuers").and_then(Value::as_array);
        let issuers = list.map_or(slice::from_ref(settings), Vec::as_slice);
        let find_issuer = |key, expected| issuers.iter().find(|issuer| string_or_empty(issuer, key) == expected);
        let selected = match self {
            Self::Named(expected) => find_issuer("issuer", expected).or_else(|| find_issuer("name", expected)),
            Self::ForPeople => {
                let has_client = |issuer: &&Value| issuer.get("cli_client_id").is_some_and(Value::is_string);
                issuers.iter().find(has_client).or(Some(settings))
            }
            Self::First => Some(settings),
        };
        selected.cloned().ok_or_else(|| {
            let accepted: Vec<String> =
                issuers.iter().map(|issuer| sanitize(string_or_empty(issuer, "issuer"))).collect();
            Failure::Usage(format!("the server accepts no such issuer; it accepts {}", accepted.join(", ")))
        })
    }
}

impl Provider {
    /// Reads the provider's discovery document; `None` if the server has no sign-in.
    ///
    /// # Errors
    /// When the server does not accept the selected provider. When the server or the provider cannot be reached, or the
    /// document belongs to another issuer.
    pub(super) fn of(server: &ServerClient, choice: ProviderChoice<'_>) -> Result<Option<Self>, Failure> {
        let settings = server.get(&["sign-in"], &[])?;
        if string_or_empty(&settings, "mode") == "local" {
            return match choice {
                ProviderChoice::Named(_) => Err(Failure::Usage("the server accepts no issuer (local mode)".to_owned())),
                ProviderChoice::ForPeople | ProviderChoice::First => Ok(None),
            };
        }
        let settings = choice.select(&settings)?;
        let issuer = crate::http_client::required_string(&settings, "issuer")?.to_owned();
        let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let unreachable = |cause: String| Failure::Unreachable { server: issuer.clone(), cause };
        let endpoint = Endpoint::try_from(address).map_err(|refusal| unreachable(refusal.to_owned()))?;
        let request = ureq::http::Request::get(endpoint.0.as_str()).body(Vec::new());
        let response = request.map_err(|_| ProviderError::Request).and_then(send);
        let response = response.map_err(|error| unreachable(error.to_string()))?;
        let discovery: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        // Refuses the document of another issuer, because that issuer's endpoints would receive the tokens.
        if !response.status().is_success() || string_or_empty(&discovery, "issuer") != issuer {
            return Err(unreachable("its discovery document is missing or that of another issuer".to_owned()));
        }
        Ok(Some(Self { issuer, settings, discovery }))
    }

    /// The identifier of the OAuth client that represents `fairway`.
    pub(super) fn cli_client_id(&self) -> Result<&str, Failure> {
        let found = self.settings.get("cli_client_id").and_then(Value::as_str);
        found.ok_or_else(|| {
            let message = "the issuer has no client for the command line: pass a token by --token-stdin, or ask the \
                           operator of the server to set FAIRWAY_OIDC_CLI_CLIENT_ID, or `cli_client_id` of its \
                           `[[issuers]]` table";
            Failure::Usage(message.to_owned())
        })
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.settings.get("scopes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    pub(super) fn token_endpoint(&self) -> Result<Endpoint, Failure> {
        self.endpoint("token_endpoint")?.ok_or_else(|| Failure::Unreachable {
            server: self.issuer.clone(),
            cause: "its discovery document has no `token_endpoint`".to_owned(),
        })
    }

    pub(super) fn device_endpoint(&self) -> Result<Option<Endpoint>, Failure> {
        self.endpoint("device_authorization_endpoint")
    }

    pub(super) fn revocation_endpoint(&self) -> Result<Option<Endpoint>, Failure> {
        self.endpoint("revocation_endpoint")
    }

    fn endpoint(&self, name: &str) -> Result<Option<Endpoint>, Failure> {
        let Some(address) = self.discovery.get(name).and_then(Value::as_str) else { return Ok(None) };
        let unreachable =
            |refusal: &'static str| Failure::Unreachable { server: self.issuer.clone(), cause: refusal.to_owned() };
        Endpoint::try_from(address.to_owned()).map(Some).map_err(unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_protect_tokens() {
        for address in ["https://idp.example/token", "http://127.0.0.1:9/token", "http://localhost:9/token"] {
            assert!(Endpoint::try_from(address.to_owned()).is_ok(), "{address}");
        }
        for address in ["http://idp.example/token", "ftp://127.0.0.1/token", "token", "", "http://127.0.0.1.example/"] {
            assert!(Endpoint::try_from(address.to_owned()).is_err(), "{address}");
        }
    }
}
