//! The server's API, as seeding uses it.

use anyhow::{Context as _, bail};
use fairway_domain::tenant::DEFAULT_WORKSPACE;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use std::time::Duration;
use url::Url;

/// Longest wait for one answer. Activation, the longest, takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Items asked for at once, the most that a list gives.
const PAGE: usize = 200;

/// A server to speak to.
pub(super) struct Remote {
    client: Client,
    base: Url,
}

/// The workspace that everything is made in, as a query parameter.
pub(super) fn workspace() -> (&'static str, String) {
    ("workspace_id", DEFAULT_WORKSPACE.to_string())
}

impl Remote {
    pub(super) fn new(server: &str) -> anyhow::Result<Self> {
        let base = Url::parse(server).with_context(|| format!("`{server}` is no address"))?;
        if !matches!(base.scheme(), "http" | "https") {
            bail!("`{server}` is no address of a web server");
        }
        // The address that was given is meant, and not what a proxy makes of it.
        let client = Client::builder().no_proxy().timeout(PATIENCE).build()?;
        Ok(Self { client, base })
    }

    /// What lies at a path below `/v1`; none when there is nothing to be seen.
    pub(super) async fn find(
        &self,
        actor: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> anyhow::Result<Option<Value>> {
        let (status, answer) = self.send(actor, Method::GET, self.address(path, query)?, None).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            _ if status.is_success() => Ok(Some(answer)),
            _ => Err(refused(&Method::GET, path, status, &answer)),
        }
    }

    /// Every item of a list.
    pub(super) async fn list(
        &self,
        actor: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        loop {
            let mut query = query.to_vec();
            query.extend([("limit", PAGE.to_string()), ("offset", items.len().to_string())]);
            let page = self.find(actor, path, &query).await?;
            let Some(Value::Array(page)) = page else { bail!("`{}` is no list here", path.join("/")) };
            let is_last = page.len() < PAGE;
            items.extend(page);
            if is_last {
                return Ok(items);
            }
        }
    }

    /// The item of a list in the default workspace whose slug is this.
    pub(super) async fn find_by_slug(
        &self,
        actor: &str,
        path: &[&str],
        query: &[(&str, String)],
        slug: &str,
    ) -> anyhow::Result<Option<Value>> {
        let mut query = query.to_vec();
        query.push(workspace());
        let items = self.list(actor, path, &query).await?;
        Ok(items.into_iter().find(|item| item.get("slug").and_then(Value::as_str) == Some(slug)))
    }

    /// Posts a body and gives the resource of the answer.
    pub(super) async fn post(&self, actor: &str, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.change(actor, Method::POST, path, body).await
    }

    /// Replaces fields of a resource and gives the resource of the answer.
    pub(super) async fn patch(&self, actor: &str, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        self.change(actor, Method::PATCH, path, body).await
    }

    async fn change(&self, actor: &str, method: Method, path: &[&str], body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.send(actor, method.clone(), self.address(path, &[])?, Some(body)).await?;
        if status.is_success() { Ok(answer) } else { Err(refused(&method, path, status, &answer)) }
    }

    fn address(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().push("v1").extend(path),
            Err(()) => bail!("`{}` is no address of a web server", self.base),
        };
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn send(
        &self,
        actor: &str,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let request = self.client.request(method, url).header("X-Actor-Ref", actor);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let unreachable = || format!("the server at {} cannot be reached", self.base);
        let answer = request.send().await.with_context(unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.with_context(unreachable)?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// The server's own words for why not.
fn refused(method: &Method, path: &[&str], status: StatusCode, answer: &Value) -> anyhow::Error {
    let detail = answer.get("detail").map_or_else(|| "without saying why".to_owned(), Value::to_string);
    anyhow::anyhow!("{method} /v1/{} was refused with {}: {detail}", path.join("/"), status.as_u16())
}

/// A member of an answer that must be a text.
pub(super) fn text<'a>(answer: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    answer.get(name).and_then(Value::as_str).with_context(|| format!("the server's answer has no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(server: &str) -> anyhow::Result<Remote> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Remote::new(server)
    }

    #[test]
    fn addresses_are_below_the_server_s() {
        for (server, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/a/b%2Fc?q=x+y"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/a/b%2Fc?q=x+y"),
            ("https://example.org/fairway/", "https://example.org/fairway/v1/a/b%2Fc?q=x+y"),
        ] {
            let url = remote(server).unwrap().address(&["a", "b/c"], &[("q", "x y".to_owned())]).unwrap();
            assert_eq!(url.as_str(), expected);
        }
        assert_eq!(remote("http://h").unwrap().address(&["a"], &[]).unwrap().as_str(), "http://h/v1/a");
        for wrong in ["", "8080", "localhost:8080", "file:///etc"] {
            assert!(remote(wrong).is_err(), "{wrong}");
        }
    }
}
