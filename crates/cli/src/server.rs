//! A server to speak to: requests, lists over their pages, refusals in its own words.

pub(crate) mod events;

pub(crate) use ureq::http::Method;

use crate::failure::{Failure, Refusal, is_passing};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use ureq::{
    Agent, Body,
    http::{Request, Response, header},
    tls::{Certificate, RootCerts, TlsConfig},
};
use url::{Host, Url};

/// Longest wait for the beginning of a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest wait for one answer that is no stream.
const PATIENCE: Duration = Duration::from_secs(60);
/// Items asked for at once, the most that a list gives.
const PAGE: usize = 200;
/// Longest answer that is read, and all pages of a list together: 200 versions of 4 MiB each, and room.
const LONGEST: u64 = 1 << 30;
/// Most pages of a list: a million items.
const MOST_PAGES: usize = 5_000;

/// Who speaks to which server.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    /// Shown as `Authorization: Bearer`.
    pub(crate) token: Option<String>,
    /// Whom to act as, where the server believes that.
    pub(crate) actor: Option<String>,
    /// In which tenant to act, for those who are in several.
    pub(crate) tenant: Option<String>,
}

/// A server to speak to.
pub(crate) struct Server {
    agent: Agent,
    base: Url,
    identity: Identity,
    /// The workspace that was chosen, by slug or id.
    chosen: Option<String>,
    /// Its id, once it was looked up.
    workspace: OnceLock<String>,
}

/// A query, name by name.
pub(crate) type Query<'q> = &'q [(&'q str, &'q str)];

impl Server {
    /// Takes an address, and a workspace where one was chosen.
    ///
    /// # Errors
    /// When the address is none of a web server, says more than where it is, or would carry a token over a network in clear
    /// text.
    pub(crate) fn new(address: &str, identity: Identity, workspace: Option<&str>) -> Result<Self, Failure> {
        let base = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(base) = base else {
            return Err(Failure::Usage("the server's address begins with http:// or https://".to_owned()));
        };
        // The address is told in messages and kept in the profile, where a secret does not belong.
        if !base.username().is_empty()
            || base.password().is_some()
            || base.query().is_some()
            || base.fragment().is_some()
        {
            let message =
                "the server's address has no name, password, query or fragment: a token is given by --token-stdin";
            return Err(Failure::Usage(message.to_owned()));
        }
        if identity.token.is_some() && base.scheme() == "http" && !is_loopback(&base) {
            return Err(Failure::Usage("a token is sent over https, or to this machine alone".to_owned()));
        }
        let chosen = workspace.map(str::to_owned);
        Ok(Self { agent: agent(&base), base, identity, chosen, workspace: OnceLock::new() })
    }

    /// The address without a slash at its end.
    pub(crate) fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// The id of the workspace that commands work in: of the one that was chosen, else of the only one that is seen, else
    /// of the one that is called `default`.
    pub(crate) fn workspace(&self) -> Result<&str, Failure> {
        if let Some(known) = self.workspace.get() {
            return Ok(known);
        }
        if let Some(id) = self.chosen.as_ref().filter(|chosen| uuid::Uuid::parse_str(chosen).is_ok()) {
            return Ok(self.workspace.get_or_init(|| id.clone()));
        }
        let seen = self.list(&["workspaces"], &[])?;
        let wanted = self.chosen.as_deref().unwrap_or("default");
        let named = |listed: &&Value| word(listed, "slug") == wanted;
        let found = match (seen.as_slice(), &self.chosen) {
            ([only], None) => Some(only),
            (several, _) => several.iter().find(named),
        };
        let Some(found) = found else {
            let hint = "no such workspace is seen: say which with --workspace SLUG";
            return Err(Failure::Usage(hint.to_owned()));
        };
        let id = text(found, "workspace_id")?;
        Ok(self.workspace.get_or_init(|| id.to_owned()))
    }

    /// What lies at a path below `/v1`.
    pub(crate) fn get(&self, path: &[&str], query: Query<'_>) -> Result<Value, Failure> {
        let url = self.url(path, query)?;
        self.read(self.send(&self.request(&Method::GET, &url, &[])?)?)
    }

    /// The same with the tag of its revision, for [`Self::change_at`].
    pub(crate) fn tagged(&self, path: &[&str]) -> Result<(String, Value), Failure> {
        let url = self.url(path, &[])?;
        let answer = self.send(&self.request(&Method::GET, &url, &[])?)?;
        let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let value = self.read(answer)?;
        Ok((tag.ok_or_else(|| self.strange())?, value))
    }

    /// What lies at a path; none when there is nothing to be seen.
    pub(crate) fn find(&self, path: &[&str], query: Query<'_>) -> Result<Option<Value>, Failure> {
        match self.get(path, query) {
            Err(Failure::Refused(refusal)) if refusal.status == 404 => Ok(None),
            found => found.map(Some),
        }
    }

    /// Every item of a list, page by page.
    pub(crate) fn list(&self, path: &[&str], query: Query<'_>) -> Result<Vec<Value>, Failure> {
        self.list_some(path, query, usize::MAX)
    }

    /// The first items of a list.
    ///
    /// # Errors
    /// When a page is no list, the next one is said to be elsewhere, or there is no end to them.
    pub(crate) fn list_some(&self, path: &[&str], query: Query<'_>, most: usize) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut url = self.url(path, query)?;
        url.query_pairs_mut().append_pair("limit", &most.clamp(1, PAGE).to_string());
        let mut room = LONGEST;
        for _ in 0..MOST_PAGES {
            let answer = self.send(&self.request(&Method::GET, &url, &[])?)?;
            let link = answer.headers().get(header::LINK).and_then(|link| link.to_str().ok()).and_then(next_of);
            let (page, length) = self.read_within(answer, room)?;
            let Value::Array(page) = page else { return Err(self.strange()) };
            room = room.saturating_sub(length);
            items.extend(page);
            if items.len() >= most {
                items.truncate(most);
                return Ok(items);
            }
            let Some(link) = link else { return Ok(items) };
            // A link to another server would carry the token there, and a list without what it links to is not the list.
            let next = self.base.join(&link).ok().filter(|next| next.origin() == self.base.origin());
            url = next.ok_or_else(|| self.strange())?;
        }
        Err(self.strange())
    }

    /// Posts a body and gives the resource of the answer. The request has a key of its own, so that it may be sent again
    /// where nobody knows whether it arrived.
    pub(crate) fn post(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.post_keyed(path, body, &uuid::Uuid::new_v4().to_string(), &[])
    }

    /// Posts a body under a key that says what is asked for: who asks for it a second time, in whichever process, gets what
    /// the first one got.
    pub(crate) fn post_once(&self, path: &[&str], body: &Value, key: &str) -> Result<Value, Failure> {
        self.post_keyed(path, body, key, &[])
    }

    fn post_keyed(&self, path: &[&str], body: &Value, key: &str, headers: &[(&str, &str)]) -> Result<Value, Failure> {
        let headers = [headers, &[("Idempotency-Key", key)]].concat();
        let request = self.request(&Method::POST, &self.url(path, &[])?, &headers)?.map(|()| body.to_string());
        let ask = || self.read(self.send(&request)?);
        match ask() {
            Err(Failure::Unreachable { .. }) => ask(),
            answer => answer,
        }
    }

    /// Replaces fields of a resource, or the whole of it, and gives the resource of the answer.
    pub(crate) fn change(&self, method: &Method, path: &[&str], body: &Value) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let request = self.request(method, &url, &[])?.map(|()| body.to_string());
        self.read(self.send(&request)?)
    }

    /// Replaces fields of a resource that is still at the revision of a tag.
    pub(crate) fn change_at(&self, tag: &str, path: &[&str], body: &Value) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let request = self.request(&Method::PATCH, &url, &[(header::IF_MATCH.as_str(), tag)])?;
        self.read(self.send(&request.map(|()| body.to_string()))?)
    }

    fn url(&self, path: &[&str], query: Query<'_>) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().push("v1").extend(path),
            Err(()) => return Err(self.strange()),
        };
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// A request with everything but its body.
    fn request(&self, method: &Method, url: &Url, headers: &[(&str, &str)]) -> Result<Request<()>, Failure> {
        let mut request = Request::builder().method(method).uri(url.as_str());
        if *method != Method::GET {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bearer = self.identity.token.as_ref().map(|token| format!("Bearer {token}"));
        let own = [
            ("Authorization", bearer),
            ("X-Actor-Ref", self.identity.actor.clone()),
            ("X-Tenant-Id", self.identity.tenant.clone()),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).map_err(|_| Failure::Usage("a token, an actor or a tenant cannot be sent as it is".to_owned()))
    }

    fn send<B: ureq::AsSendBody + Clone>(&self, request: &Request<B>) -> Result<Response<Body>, Failure> {
        self.agent.run(request.clone()).map_err(|error| self.unreachable(&error))
    }

    /// The body of an answer that is no refusal.
    fn read(&self, answer: Response<Body>) -> Result<Value, Failure> {
        Ok(self.read_within(answer, LONGEST)?.0)
    }

    /// The same of at most so many bytes, and how many it has.
    fn read_within(&self, mut answer: Response<Body>, longest: u64) -> Result<(Value, u64), Failure> {
        let status = answer.status();
        let body =
            answer.body_mut().with_config().limit(longest).read_to_vec().map_err(|error| self.unreachable(&error))?;
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        match value {
            Some(value) if status.is_success() => Ok((value, length)),
            None if status.is_success() && body.is_empty() => Ok((Value::Null, 0)),
            Some(value) if value.get("detail").is_some() => {
                Err(Failure::Refused(Box::new(Refusal::of(status.as_u16(), &value))))
            }
            Some(_) | None if status.is_success() => Err(self.strange()),
            Some(_) | None if !is_passing(status.as_u16()) => {
                Err(Failure::Foreign { server: self.address().to_owned(), status })
            }
            Some(_) | None => {
                let cause = format!("what answers there with {status} does not speak as Fairway does");
                Err(Failure::Unreachable { server: self.address().to_owned(), cause })
            }
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        Failure::Unreachable { server: self.address().to_owned(), cause: error.to_string() }
    }

    /// Something answers there, and it is no Fairway.
    fn strange(&self) -> Failure {
        let cause = "what answers there does not speak as Fairway does".to_owned();
        Failure::Unreachable { server: self.address().to_owned(), cause }
    }
}

/// A client for an address. What a proxy of the environment is for is a network; this machine is reached directly.
fn agent(base: &Url) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("fairway/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(PATIENCE));
    if base.scheme() == "https" {
        let found = rustls_native_certs::load_native_certs().certs;
        let roots: Vec<Certificate<'static>> =
            found.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    if is_loopback(base) {
        config = config.proxy(None);
    }
    config.build().into()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// The address of the next page in a `Link` header.
fn next_of(link: &str) -> Option<String> {
    let next = link.split(',').find(|one| one.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    Some(rest.split_once('>')?.0.to_owned())
}

/// A member of an answer where it is a text, else an empty one.
pub(crate) fn word<'v>(answer: &'v Value, name: &str) -> &'v str {
    answer.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A member of an answer that must be a text.
///
/// # Errors
/// When it is none: then it is no answer of Fairway.
pub(crate) fn text<'v>(answer: &'v Value, name: &str) -> Result<&'v str, Failure> {
    let found = answer.get(name).and_then(Value::as_str);
    found.ok_or_else(|| Failure::Unfit(format!("the server's answer has no `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, token: Option<&str>) -> Result<Server, Failure> {
        Server::new(address, Identity { token: token.map(str::to_owned), ..Identity::default() }, None)
    }

    #[test]
    fn paths_lie_below_the_server_s_address() {
        for (address, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/a/b%2Fc?q=x+y"),
            ("https://example.org/fairway/", "https://example.org/fairway/v1/a/b%2Fc?q=x+y"),
        ] {
            let url = server(address, None).unwrap().url(&["a", "b/c"], &[("q", "x y")]).unwrap();
            assert_eq!(url.as_str(), expected);
        }
        for wrong in ["", "8080", "localhost:8080", "file:///etc"] {
            assert!(matches!(server(wrong, None), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn an_address_says_where_and_nothing_more() {
        for wrong in [
            "https://ada@example.org",
            "https://:s3cret@example.org",
            "https://example.org/?t=s3cret",
            "https://example.org/#s3cret",
        ] {
            let Err(Failure::Usage(message)) = server(wrong, None) else { panic!("{wrong} is taken") };
            assert!(!message.contains("s3cret") && !message.contains("ada"), "{message}");
        }
    }

    #[test]
    fn a_token_is_not_sent_in_clear_text() {
        for (address, goes) in [
            ("https://fairway.example.org", true),
            ("http://localhost:8080", true),
            ("http://[::1]:8080", true),
            ("http://127.0.0.1:8080", true),
            ("http://fairway.example.org", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(server(address, Some("t")).is_ok(), goes, "{address}");
            assert!(server(address, None).is_ok());
        }
    }

    #[test]
    fn the_next_page_is_found_among_the_links() {
        assert_eq!(next_of("</v1/a?cursor=x>; rel=\"next\"").as_deref(), Some("/v1/a?cursor=x"));
        assert_eq!(next_of("</a>; rel=\"prev\", </b>; rel=\"next\"").as_deref(), Some("/b"));
        assert_eq!(next_of("</a>; rel=\"prev\""), None);
    }
}
