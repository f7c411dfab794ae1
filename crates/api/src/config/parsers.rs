//! Parsers of single settings. An error states the expected form and never the value.

use super::{AuthMode, DatabaseLocation, LocalModeExposure};
use crate::{
    embeddable_page::FrameAncestors,
    http::{
        client_address::TrustedProxies,
        site_guard::{HostName, Scheme},
    },
};
use fairway_artifacts::Location;
use fairway_domain::{
    access::{ActorKind, ActorRef},
    execution::dispatch::DispatchPolicy,
    redaction::NationalId,
    secret::ServerSecretRef,
    slug::Slug,
    transparency_log::{LogOriginBase, WitnessKey},
};
use fairway_egress::{Allowance, Guard, ServerMode};
use fairway_message_sender::MailServer;
use fairway_operations::generator::ProvisioningMode;
use ipnet::IpNet;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use tracing_subscriber::EnvFilter;
use url::Url;

/// Maximum duration of a setting in seconds: ten years.
const MAX_DURATION_SECONDS: u64 = 3650 * 86_400;

/// Maximum value of the setting that limits queued runs.
const MAX_QUEUE_CAP: u32 = 10_000_000;

/// Maximum value of the setting that limits waiting requests.
const MAX_WAITING_REQUESTS: usize = 100_000;
/// Bounds of the memory limit in MiB. An idle server uses about 55 MiB in a release build.
const MIN_MEMORY_LIMIT_MIB: usize = 64;
const MAX_MEMORY_LIMIT_MIB: usize = 1 << 20;

/// A text that may contain a credential. Its display forms omit the credential.
#[derive(Clone, PartialEq, Eq)]
pub struct TextWithCredential(String);

impl TextWithCredential {
    pub(super) const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, to connect with.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The host names of a PostgreSQL URL, which may list several, without ports.
    pub(super) fn hosts(&self) -> Vec<String> {
        let hosts = self.authority().map_or("", |authority| authority.hosts);
        hosts.split(',').filter_map(HostName::parse).map(HostName::into_name).collect()
    }

    /// Scheme, hosts and ports of the URL, without user, password, path and parameters. Without `@`, a port may in fact
    /// be a password, so ports are omitted. An invalid host hides the whole URL.
    fn redacted_origin(&self) -> String {
        let hidden = "[redacted]".to_owned();
        let Some(Authority { scheme, has_user, hosts }) = self.authority() else { return hidden };
        if hosts.is_empty() {
            return format!("{scheme}://");
        }
        let redact = |host| HostName::parse(host).map(|name| if has_user { host.to_owned() } else { name.into_name() });
        let redacted: Option<Vec<String>> = hosts.split(',').map(redact).collect();
        redacted.map_or(hidden, |hosts| format!("{scheme}://{}", hosts.join(",")))
    }

    /// The authority of the URL; `None` if it is ambiguous.
    fn authority(&self) -> Option<Authority<'_>> {
        let (scheme, after_scheme) = self.0.split_once("://")?;
        let address = after_scheme.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = address.split_once('/').unwrap_or((address, ""));
        // A slash in a password ends the authority too early, so a later `@` makes the URL ambiguous.
        if path.contains('@') || after_scheme.split(['?', '#']).skip(1).any(|part| part.contains('@')) {
            return None;
        }
        let split = authority.rsplit_once('@');
        Some(Authority { scheme, has_user: split.is_some(), hosts: split.map_or(authority, |(_, hosts)| hosts) })
    }
}

/// The parts of a URL that name a server.
struct Authority<'a> {
    scheme: &'a str,
    /// Whether a user precedes the hosts.
    has_user: bool,
    /// Comma-separated hosts with their ports.
    hosts: &'a str,
}

impl fmt::Debug for TextWithCredential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[redacted]")
    }
}

/// Format of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Each log line is one JSON object.
    Json,
    /// Each log line is text for people.
    Text,
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => out.write_str("embedded"),
            Self::Url(url) => out.write_str(&url.redacted_origin()),
        }
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8080".to_owned())
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must name a directory".to_owned()) } else { Ok(text.into()) }
}

pub(super) fn max_waiting_requests(text: &str) -> Result<usize, String> {
    let requests = text.parse().ok().filter(|requests| (1..=MAX_WAITING_REQUESTS).contains(requests));
    requests.ok_or_else(|| format!("must be a number of requests from 1 to {MAX_WAITING_REQUESTS}"))
}

pub(super) fn memory_limit(text: &str) -> Result<usize, String> {
    let mebibytes =
        text.parse().ok().filter(|limit: &usize| (MIN_MEMORY_LIMIT_MIB..=MAX_MEMORY_LIMIT_MIB).contains(limit));
    let refusal = || format!("must be a number of MiB from {MIN_MEMORY_LIMIT_MIB} to {MAX_MEMORY_LIMIT_MIB}");
    mebibytes.map(|limit| limit << 20).ok_or_else(refusal)
}

pub(super) fn dispatch(text: &str) -> Result<DispatchPolicy, String> {
    DispatchPolicy::parse(text).ok_or_else(|| "must be `inline`, `queued` or `hybrid`".to_owned())
}

pub(super) fn generator_provisioning(text: &str) -> Result<ProvisioningMode, String> {
    ProvisioningMode::parse(text).ok_or_else(|| "must be `on` or `off`".to_owned())
}

pub(super) fn queue_cap(text: &str) -> Result<u32, String> {
    let cap = text.parse().ok().filter(|cap| (1..=MAX_QUEUE_CAP).contains(cap));
    cap.ok_or_else(|| format!("must be a number of runs from 1 to {MAX_QUEUE_CAP}"))
}

pub(super) fn database(text: &str) -> Result<DatabaseLocation, String> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    match text {
        "embedded" => Ok(DatabaseLocation::Embedded),
        _ if is_url => Ok(DatabaseLocation::Url(TextWithCredential(text.to_owned()))),
        _ => Err("must be `embedded` or a `postgres://` address".to_owned()),
    }
}

pub(super) fn store_location(text: &str) -> Result<Location, String> {
    Location::parse(text).map_err(|refusal| format!("is not a location for artifacts: {refusal}"))
}

pub(super) fn log_origin(text: &str) -> Result<LogOriginBase, String> {
    LogOriginBase::parse(text).map_err(|refusal| refusal.to_string())
}

/// Parses a secret reference. The error omits the text, because it may be the secret itself.
pub(super) fn server_secret(text: &str) -> Result<ServerSecretRef, String> {
    ServerSecretRef::parse(text)
        .map_err(|_| "must be `env:NAME`, `file:path` or `vault:path#key`, and never the key itself".to_owned())
}

/// Parses a list of witnesses, each a verifier key and an address with a space between them.
pub(super) fn witnesses(text: &str) -> Result<Vec<(WitnessKey, Url)>, String> {
    let witness = |item: &str| {
        let (key, address) = item.split_once(' ')?;
        Some((WitnessKey::parse(key).ok()?, web_address(address.trim()).ok()?))
    };
    let witnesses: Option<Vec<_>> = list(text).map(witness).collect();
    witnesses.ok_or_else(|| {
        "must list witnesses as `<name>+<key id>+<base64> https://witness.example`, separated by commas".to_owned()
    })
}

pub(super) fn auth_mode(text: &str) -> Result<AuthMode, String> {
    match text {
        "local" => Ok(AuthMode::Local),
        "oidc" => Ok(AuthMode::Oidc),
        _ => Err("must be `local` or `oidc`".to_owned()),
    }
}

/// Parses the acknowledgement that local mode may be exposed. The only accepted value states the consequence.
pub(super) fn local_mode_exposure(text: &str) -> Result<LocalModeExposure, String> {
    match text {
        "" => Ok(LocalModeExposure::Refused),
        "i-understand" => Ok(LocalModeExposure::Accepted),
        _ => Err("must be `i-understand` or unset".to_owned()),
    }
}

pub(super) fn hosts(text: &str) -> Result<Vec<HostName>, String> {
    let host = |name| HostName::parse(name).ok_or("must list host names, with or without a port");
    Ok(list(text).map(host).collect::<Result<_, _>>()?)
}

pub(super) fn scheme(text: &str) -> Result<Scheme, String> {
    match text {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err("must be `http` or `https`".to_owned()),
    }
}

/// Maximum value of the settings for burst size and requests per minute.
const MAX_RATE: u32 = 1_000_000;

pub(super) fn rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|rate| (1..=MAX_RATE).contains(rate));
    rate.ok_or_else(|| format!("must be a number of requests from 1 to {MAX_RATE}"))
}

/// Parses networks or single addresses.
pub(super) fn trusted_proxies(text: &str) -> Result<TrustedProxies, String> {
    let network = |text: &str| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let networks = list(text).map(network).collect::<Result<_, _>>();
    networks.map(TrustedProxies::new).map_err(|_| "must list networks such as 10.0.0.0/8, or addresses".to_owned())
}

pub(super) fn allowances(text: &str) -> Result<Vec<Allowance>, String> {
    let allowances = list(text).map(Allowance::parse).collect::<Result<_, _>>();
    allowances.map_err(|_| {
        "must list networks such as 10.0.0.0/8, addresses or host names, each with `:port` or without".to_owned()
    })
}

/// Parses `embedded` or the URL of an external gateway.
pub(super) fn gateway(text: &str) -> Result<Option<Url>, String> {
    if text == "embedded" {
        return Ok(None);
    }
    let rule = "must be `embedded` or an address such as https://gateway.example/scripts, without credentials";
    web_address(text).map(Some).map_err(|_| rule.to_owned())
}

/// Parses the URL of an HTTP server. It must not contain credentials, which have a setting of their own.
pub(super) fn web_address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    });
    url.ok_or_else(|| "must be an address such as https://vault.example:8200, without credentials".to_owned())
}

/// Parses the URL of a mail server, which may contain a password.
pub(super) fn mail_server(text: &str) -> Result<TextWithCredential, String> {
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    match MailServer::parse(&guard, text, "fairway@example.com") {
        Ok(_) => token(text),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Parses the address of the sender of e-mails.
pub(super) fn mail_sender(text: &str) -> Result<String, String> {
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    match MailServer::parse(&guard, "smtps://mail.example", text) {
        Ok(_) => Ok(text.to_owned()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

pub(super) fn token(text: &str) -> Result<TextWithCredential, String> {
    Ok(TextWithCredential::new(text.to_owned()))
}

/// Parses a token that is sent in a header.
pub(super) fn bearer_token(text: &str) -> Result<TextWithCredential, String> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible { token(text) } else { Err("must contain only visible ASCII characters".to_owned()) }
}

pub(super) fn slugs(text: &str) -> Result<Vec<Slug>, String> {
    let slugs = list(text).map(Slug::parse).collect::<Result<_, _>>();
    slugs.map_err(|_| "must list slugs of workloads".to_owned())
}

pub(super) fn frame_ancestors(text: &str) -> Result<FrameAncestors, String> {
    let rule = "must be `'none'`, or list `'self'` and origins such as https://portal.example";
    FrameAncestors::parse(text).ok_or_else(|| rule.to_owned())
}

pub(super) fn internal_clients(text: &str) -> Result<Vec<ActorRef>, String> {
    let service = |name| {
        let actor = ActorRef::parse(name).ok().filter(|actor| actor.kind() == ActorKind::Service);
        actor.ok_or("must list services as `service:<name>`")
    };
    Ok(list(text).map(service).collect::<Result<_, _>>()?)
}

pub(super) fn principals(text: &str) -> Result<Vec<ActorRef>, String> {
    let principal = |name| {
        let is_principal =
            |actor: &ActorRef| matches!(actor.kind(), ActorKind::User | ActorKind::Group | ActorKind::Service);
        let actor = ActorRef::parse(name).ok().filter(is_principal);
        actor.ok_or("must list principals as `user:<name>`, `group:<name>` or `service:<name>`")
    };
    Ok(list(text).map(principal).collect::<Result<_, _>>()?)
}

/// Parses the address of the server: scheme, host and port without a path, so that addresses below it are unambiguous.
pub(super) fn public_url(text: &str) -> Result<Url, String> {
    let rule = "must be an address such as https://fairway.example, without path, query, fragment and credentials";
    let url = web_address(text).map_err(|_| rule.to_owned())?;
    let is_origin = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if is_origin { Ok(url) } else { Err(rule.to_owned()) }
}

pub(super) fn national_ids(text: &str) -> Result<Vec<NationalId>, String> {
    let schemes = || NationalId::ALL.map(NationalId::as_str).join(", ");
    list(text)
        .map(|name| NationalId::parse(name).ok_or_else(|| format!("must list schemes from {}", schemes())))
        .collect()
}

/// Parses the name of an account or a model: 1 to 200 visible ASCII characters.
pub(super) fn account_or_model_name(text: &str) -> Result<String, String> {
    let is_valid = (1..=200).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid
        .then(|| text.to_owned())
        .ok_or_else(|| "must be a name of 1 to 200 visible characters without spaces".to_owned())
}

/// Parses `250ms`, `30s`, `10m`, `12h` or `30d`: more than zero, and at most ten years.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let rule = || "must be a time span such as 500ms, 30s, 10m, 12h or 30d".to_owned();
    let unit_start = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(rule)?;
    let (digits, unit) = text.split_at_checked(unit_start).ok_or_else(rule)?;
    let count: u64 = digits.parse().map_err(|_| rule())?;
    let seconds_per_unit = match unit {
        "ms" => return Some(Duration::from_millis(count)).filter(|span| is_valid_duration(*span)).ok_or_else(rule),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(rule()),
    };
    let seconds = count.checked_mul(seconds_per_unit).ok_or_else(rule)?;
    Some(Duration::from_secs(seconds)).filter(|span| is_valid_duration(*span)).ok_or_else(rule)
}

fn is_valid_duration(span: Duration) -> bool {
    !span.is_zero() && span <= Duration::from_secs(MAX_DURATION_SECONDS)
}

pub(super) fn log_filter(text: &str) -> Result<String, String> {
    let is_valid = EnvFilter::builder().parse(text).is_ok();
    if is_valid {
        Ok(text.to_owned())
    } else {
        Err("must contain directives such as `info` or `warn,fairway_api=debug`".to_owned())
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("must be `json` or `text`".to_owned()),
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations() {
        for (text, milliseconds) in
            [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("12h", 43_200_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for invalid in [
            "",
            "30",
            "s",
            "0s",
            "0ms",
            "-1s",
            "1.5s",
            "30 s",
            "1w",
            "1S",
            "99999999999999999999s",
            "4000d",
            "213503982334602d",
            "٣s",
        ] {
            assert!(duration(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn redacts_credentials_in_urls() {
        for (text, expected) in [
            ("postgres://app:hunter2@db.example:5432/fairway?sslmode=require", "postgres://db.example:5432"),
            ("postgres://db.example/fairway?password=hunter2", "postgres://db.example"),
            ("postgresql://app:a@hunter2@db/x", "postgresql://db"),
            ("postgres://app:hun/ter2@db/x", "[redacted]"),
            ("postgres://app:hun?ter2@db/x", "[redacted]"),
            ("postgres://app:hun#ter2@db/x", "[redacted]"),
            ("postgres://db", "postgres://db"),
            // Without `@`, the user is read as the host; a password that is an invalid port hides the whole URL.
            ("postgres://app:hunter2", "[redacted]"),
            ("postgres://app:hunter2/x", "[redacted]"),
            ("postgres://app:12345/x", "postgres://app"),
            ("postgres://app%3Ahunter2/x", "[redacted]"),
            ("postgres://db:5432,app:hunter2/x", "[redacted]"),
            ("postgres://app:hunter2@db:hunter2/x", "[redacted]"),
            ("postgres://app:hunter2@a:5432,[::1]:5433/x", "postgres://a:5432,[::1]:5433"),
            ("postgres://a:5432,b:5433/x", "postgres://a,b"),
            ("postgres:///x?host=/run", "postgres://"),
        ] {
            let database = database(text).unwrap();
            assert_eq!(database.to_string(), expected);
            assert!(!format!("{database:?}").contains("hun"), "{database:?}");
        }
    }
}
