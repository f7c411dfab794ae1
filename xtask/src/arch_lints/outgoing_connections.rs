//! Restricts outgoing connections: requests on behalf of callers must use the guard in `crates/egress`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Names of types and crates that open connections: sockets, and clients of HTTP, buckets and trace collectors.
const CLIENT_NAMES: &[&str] = &[
    "reqwest",
    "hyper::client",
    "hyper_util",
    "awc",
    "ureq",
    "isahc",
    "curl::easy",
    "object_store",
    "opentelemetry_otlp",
    "TcpStream::connect",
    "TcpSocket",
    "UdpSocket",
    "UnixStream::connect",
];

/// Exempt paths: the guard itself, code outside the product, and connections to addresses from settings or the
/// command line.
const EXEMPT_PATHS: &[&str] = &[
    "crates/egress/src",
    "crates/testkit/src",
    "crates/bench/src",
    // `fairway` connects to the server that the user names.
    "crates/cli/src/http_client.rs",
    "crates/cli/src/http_client",
    // `fairway login` connects to the identity provider that the server names.
    "crates/cli/src/sign_in/identity_provider.rs",
    // Spans go to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    "crates/api/src/telemetry.rs",
    // Artifacts go to the bucket of `FAIRWAY_ARTIFACTS_URL`.
    "adapters/artifacts/src",
];

/// The product's source files that open connections directly.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for source in sources {
        let relative = source.strip_prefix(root).unwrap_or(source);
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", relative.display()))?;
        found.extend(violation(relative, &text));
    }
    for exempt_path in EXEMPT_PATHS {
        if !root.join(exempt_path).exists() {
            bail!("{exempt_path} does not exist: remove it from the list of exempt paths");
        }
    }
    Ok(found)
}

fn violation(path: &Path, text: &str) -> Option<String> {
    let is_product = path.starts_with("crates") || path.starts_with("adapters");
    let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "benches");
    if !is_product || is_test || EXEMPT_PATHS.iter().any(|exempt_path| path.starts_with(exempt_path)) {
        return None;
    }
    let is_named = |client: &&&str| {
        text.lines().map(str::trim_start).any(|line| !line.starts_with("//") && contains_word(line, client))
    };
    let client = CLIENT_NAMES.iter().find(is_named)?;
    Some(format!("{}: `{client}` opens connections without the guard of crates/egress", path.display()))
}

/// Whether the line contains the name as a separate word.
fn contains_word(line: &str, client: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(client).any(|(start, _)| {
        let before = line.get(..start).and_then(|before| before.chars().next_back());
        let after = line.get(start + client.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_clients_outside_the_guard() {
        for (path, text) in [
            ("adapters/providers/src/openai.rs", "use reqwest::Client;"),
            ("adapters/document_fetcher/src/lib.rs", "    let got = reqwest::get(url).await?;"),
            ("adapters/secrets/src/vault.rs", "use hyper_util::client::legacy::Client;"),
            ("crates/api/src/serve.rs", "let stream = std::net::TcpStream::connect(address)?;"),
            ("crates/operations/src/delivery.rs", "use {awc::Client, std::fmt};"),
            ("crates/cli/src/sync/apply.rs", "use ureq::Agent;"),
        ] {
            assert!(violation(Path::new(path), text).is_some(), "{path}: {text}");
        }
    }

    #[test]
    fn accepts_the_guard_its_types_tests_and_comments() {
        for (path, text) in [
            ("crates/egress/src/endpoint_client.rs", "use reqwest::Client;"),
            ("crates/cli/src/http_client/events.rs", "use ureq::Body;"),
            ("crates/api/src/http/request_id_log_and_metrics/tests.rs", "let client = reqwest::Client::new();"),
            ("crates/api/tests/it/walk.rs", "use reqwest::Client;"),
            ("xtask/src/check_api.rs", "use reqwest::Client;"),
            ("adapters/providers/src/account_connection.rs", "use fairway_egress::{Call, EndpointClient};"),
            ("adapters/providers/src/account_connection.rs", "// Not by reqwest itself."),
            ("crates/api/src/serve.rs", "fn accepted(stream: TcpStream) -> MyTcpSocketAddress {}"),
        ] {
            assert_eq!(violation(Path::new(path), text), None, "{path}: {text}");
        }
    }

    #[test]
    fn rejects_missing_exempt_paths() {
        let root = tempfile::tempdir().unwrap();
        assert!(violations(root.path(), &[]).is_err());
    }
}
