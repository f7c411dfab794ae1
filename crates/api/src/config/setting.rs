//! The definitions of all settings: key, variable and default.

/// Definition of one setting of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Key in `fairway.toml`; a dot separates table and key.
    pub key: &'static str,
    /// Environment variable that overrides the key.
    pub variable: &'static str,
    /// Default value; empty if it derives from another setting.
    pub default: &'static str,
    /// Whether the value may contain a credential and is never shown.
    pub is_secret: bool,
}

const fn plain(key: &'static str, variable: &'static str, default: &'static str) -> Setting {
    Setting { key, variable, default, is_secret: false }
}

const fn secret(key: &'static str, variable: &'static str, default: &'static str) -> Setting {
    Setting { key, variable, default, is_secret: true }
}

/// Address and port to listen on.
pub(super) const BIND: Setting = plain("bind", "FAIRWAY_BIND", "127.0.0.1:8080");
/// Address and port at which a worker process serves its metrics; none by default.
pub(super) const WORKER_METRICS_BIND: Setting = plain("worker_metrics_bind", "FAIRWAY_WORKER_METRICS_BIND", "");
/// Directory of the files that the server creates.
pub(super) const DATA_DIR: Setting = plain("data_dir", "FAIRWAY_DATA_DIR", "./.fairway");
/// The database of the service: `embedded`, or a PostgreSQL URL.
pub(super) const DATABASE_URL: Setting = secret("database_url", "FAIRWAY_DATABASE_URL", "embedded");
/// PostgreSQL URL with the owner role, for migrations.
pub(super) const MIGRATE_DATABASE_URL: Setting = secret("migrate_database_url", "FAIRWAY_MIGRATE_DATABASE_URL", "");
/// Location of the artifact store: a directory or a bucket.
pub(super) const ARTIFACTS_URL: Setting = secret("artifacts_url", "FAIRWAY_ARTIFACTS_URL", "");
/// Location of published checkpoints outside the database: a directory or a bucket.
pub(super) const FACTS_URL: Setting = secret("facts_url", "FAIRWAY_FACTS_URL", "");
/// Identity of this installation's transparency logs.
pub(super) const LOG_ORIGIN: Setting = plain("transparency_log.origin", "FAIRWAY_LOG_ORIGIN", "fairway.invalid/logs");
/// Secret reference of the key that signs checkpoints; by default a file below the data directory.
pub(super) const CHECKPOINT_KEY_REF: Setting = plain("transparency_log.key_ref", "FAIRWAY_CHECKPOINT_KEY_REF", "");
/// Secret reference of the previous key, which also signs checkpoints during a key rotation.
pub(super) const CHECKPOINT_PREVIOUS_KEY_REF: Setting =
    plain("transparency_log.previous_key_ref", "FAIRWAY_CHECKPOINT_PREVIOUS_KEY_REF", "");
/// Witnesses that cosign checkpoints: a list of a verifier key and an address, with a space between them.
pub(super) const WITNESSES: Setting = plain("transparency_log.witnesses", "FAIRWAY_WITNESSES", "");
/// How the server authenticates callers: `local` or `oidc`.
pub(super) const AUTH_MODE: Setting = plain("auth.mode", "FAIRWAY_AUTH_MODE", "local");
/// The issuer of the tokens that callers present.
pub(super) const OIDC_ISSUER: Setting = plain("oidc.issuer", "FAIRWAY_OIDC_ISSUER", "");
/// The audience that access tokens contain.
pub(super) const OIDC_AUDIENCE: Setting = plain("oidc.audience", "FAIRWAY_OIDC_AUDIENCE", "");
/// OAuth client identifier of the portal.
pub(super) const OIDC_CLIENT_ID: Setting = plain("oidc.client_id", "FAIRWAY_OIDC_CLIENT_ID", "");
/// Reference to the secret of the portal's OAuth client.
pub(super) const OIDC_CLIENT_SECRET_REF: Setting =
    plain("oidc.client_secret_ref", "FAIRWAY_OIDC_CLIENT_SECRET_REF", "");
/// OAuth client identifier of the command line.
pub(super) const OIDC_CLI_CLIENT_ID: Setting = plain("oidc.cli_client_id", "FAIRWAY_OIDC_CLI_CLIENT_ID", "");
/// The scopes that a sign-in requests.
pub(super) const OIDC_SCOPES: Setting = plain("oidc.scopes", "FAIRWAY_OIDC_SCOPES", "openid profile email");
/// The claim of a token that contains the name of a person.
pub(super) const OIDC_USER_CLAIM: Setting = plain("oidc.user_claim", "FAIRWAY_OIDC_USER_CLAIM", "preferred_username");
/// The claim of a token that contains the groups.
pub(super) const OIDC_GROUPS_CLAIM: Setting = plain("oidc.groups_claim", "FAIRWAY_OIDC_GROUPS_CLAIM", "groups");
/// The claim of a token that contains the tenant. Without it, all identities of the issuer belong to one tenant.
pub(super) const OIDC_TENANT_CLAIM: Setting = plain("oidc.tenant_claim", "FAIRWAY_OIDC_TENANT_CLAIM", "");
/// The only tenant of the issuer's identities.
pub(super) const OIDC_TENANT: Setting = plain("oidc.tenant", "FAIRWAY_OIDC_TENANT", "");
/// File with the certificate authorities for connections to the issuer.
pub(super) const OIDC_CA_FILE: Setting = plain("oidc.ca_file", "FAIRWAY_OIDC_CA_FILE", "");
/// Time without requests after which a browser session ends.
pub(super) const SESSION_IDLE: Setting = plain("session.idle", "FAIRWAY_SESSION_IDLE", "1h");
/// Total time after which a browser session ends.
pub(super) const SESSION_LIFETIME: Setting = plain("session.lifetime", "FAIRWAY_SESSION_LIFETIME", "12h");
/// Principals that administer the platform without a role binding.
pub(super) const BOOTSTRAP_ADMINS: Setting = plain("bootstrap_admins", "FAIRWAY_BOOTSTRAP_ADMINS", "");
/// The address under which browsers and clients reach the server.
pub(super) const PUBLIC_URL: Setting = plain("public_url", "FAIRWAY_PUBLIC_URL", "");
/// Host names that the server serves in addition to the loopback names.
pub(super) const ALLOWED_HOSTS: Setting = plain("allowed_hosts", "FAIRWAY_ALLOWED_HOSTS", "");
/// `i-understand` permits local mode behind a proxy.
pub(super) const LOCAL_MODE_EXPOSED: Setting = plain("local_mode_exposed", "FAIRWAY_LOCAL_MODE_EXPOSED", "");
/// Maximum requests of a worker thread that wait for PostgreSQL in a standing queue.
pub(super) const MAX_DATABASE_WAITERS: Setting = plain("waiting_line", "FAIRWAY_WAITING_LINE", "24");
/// Resident memory limit of the process, in MiB.
pub(super) const MEMORY_LIMIT: Setting = plain("memory_limit_mib", "FAIRWAY_MEMORY_LIMIT_MIB", "400");
/// Services that may act on behalf of others.
pub(super) const INTERNAL_CLIENTS: Setting = plain("internal_clients", "FAIRWAY_INTERNAL_CLIENTS", "");
/// The scheme of the server's URL in browsers.
pub(super) const PUBLIC_SCHEME: Setting = plain("public_scheme", "FAIRWAY_PUBLIC_SCHEME", "http");
/// Time limit for a request head to arrive.
pub(super) const HEADER_TIMEOUT: Setting = plain("header_timeout", "FAIRWAY_HEADER_TIMEOUT", "10s");
/// Time limit for a request body to arrive.
pub(super) const BODY_TIMEOUT: Setting = plain("body_timeout", "FAIRWAY_BODY_TIMEOUT", "30s");
/// Time that a synchronous request waits for its run.
pub(super) const SYNC_WAIT: Setting = plain("sync_wait", "FAIRWAY_SYNC_WAIT", "30s");
/// Dispatch mode: which processes execute runs.
pub(super) const DISPATCH: Setting = plain("dispatch", "FAIRWAY_DISPATCH", "hybrid");
/// Maximum queued runs of a tenant.
pub(super) const QUEUE_CAP: Setting = plain("queue_cap", "FAIRWAY_QUEUE_CAP", "10000");
/// Time limit of a run.
pub(super) const EXECUTION_DEADLINE: Setting = plain("execution_deadline", "FAIRWAY_EXECUTION_DEADLINE", "10m");
/// Whether servers provision the generator of each tenant.
pub(super) const GENERATOR: Setting = plain("generator", "FAIRWAY_GENERATOR", "on");
/// Time limit of a human review.
pub(super) const REVIEW_DEADLINE: Setting = plain("review_deadline", "FAIRWAY_REVIEW_DEADLINE", "7d");
/// Lease duration of a worker; after its expiry another worker takes over the runs.
pub(super) const WORKER_LEASE: Setting = plain("worker_lease", "FAIRWAY_WORKER_LEASE", "30s");
/// Schemes of national identifiers that redaction masks.
pub(super) const NATIONAL_IDS: Setting = plain(
    "redaction.national_ids",
    "FAIRWAY_REDACTION_NATIONAL_IDS",
    "us_ssn, uk_nino, de_steuer_id, fr_insee, es_dni, es_nie",
);
/// Provider account of the embedding model.
pub(super) const EMBEDDING_ACCOUNT: Setting = plain("embedding.account", "FAIRWAY_EMBEDDING_ACCOUNT", "local");
/// Model that embeds texts for vector search.
pub(super) const EMBEDDING_MODEL: Setting = plain("embedding.model", "FAIRWAY_EMBEDDING_MODEL", "local-256");
/// Time after which an inbox stream ends, so that its client authenticates again.
pub(super) const INBOX_STREAM_LIFETIME: Setting = plain("inbox_stream_lifetime", "FAIRWAY_INBOX_STREAM_LIFETIME", "5m");
/// Retention of results and payloads after the end of a run.
pub(super) const RESULT_RETENTION: Setting = plain("result_retention", "FAIRWAY_RESULT_RETENTION", "30d");
/// Sustained requests per minute of one client to one public workload.
pub(super) const PUBLIC_RATE_PER_MINUTE: Setting =
    plain("public_rate.per_minute", "FAIRWAY_PUBLIC_RATE_PER_MINUTE", "60");
/// Maximum burst of requests from one client to one public workload.
pub(super) const PUBLIC_RATE_BURST: Setting = plain("public_rate.burst", "FAIRWAY_PUBLIC_RATE_BURST", "10");
/// Networks of proxies whose `X-Forwarded-For` is trusted.
pub(super) const TRUSTED_PROXIES: Setting = plain("trusted_proxies", "FAIRWAY_TRUSTED_PROXIES", "");
/// Slugs of the workloads with an embeddable page.
pub(super) const EMBED_ROOT_SLUGS: Setting = plain("embed.root_slugs", "SERVICE_EMBED_ROOT_SLUGS", "");
/// Origins that may embed the embeddable pages.
pub(super) const EMBED_ANCESTORS: Setting = plain("embed.ancestors", "FAIRWAY_EMBED_ANCESTORS", "'self'");
/// Egress targets that are allowed in addition to the public internet.
pub(super) const EGRESS_ALLOW: Setting = plain("egress.allow", "FAIRWAY_EGRESS_ALLOW", "");
/// Directory with one subdirectory of secrets for each tenant.
pub(super) const SECRETS_DIR: Setting = plain("secrets.dir", "FAIRWAY_SECRETS_DIR", "");
/// URL of the mail server, which may contain a password.
pub(super) const SMTP_URL: Setting = secret("mail.smtp_url", "FAIRWAY_SMTP_URL", "");
/// Sender address of e-mails.
pub(super) const MAIL_FROM: Setting = plain("mail.from", "FAIRWAY_MAIL_FROM", "");
/// URL of the vault that stores secrets.
pub(super) const VAULT_ADDR: Setting = secret("vault.addr", "VAULT_ADDR", "");
/// Access token of the vault.
pub(super) const VAULT_TOKEN: Setting = secret("vault.token", "VAULT_TOKEN", "");
/// Runtime gateway for scripts: `embedded`, or the URL of an external gateway.
pub(super) const RUNTIME_GATEWAY_URL: Setting =
    secret("runtime_gateway_url", "FAIRWAY_RUNTIME_GATEWAY_URL", "embedded");
/// Access token of the external gateway.
pub(super) const RUNTIME_GATEWAY_TOKEN: Setting = secret("runtime_gateway_token", "FAIRWAY_RUNTIME_GATEWAY_TOKEN", "");
/// Log filter in the syntax of `tracing-subscriber`.
pub(super) const LOG: Setting = plain("log.filter", "FAIRWAY_LOG", "info");
/// Format of a log line.
pub(super) const LOG_FORMAT: Setting = plain("log.format", "FAIRWAY_LOG_FORMAT", "json");

/// All settings, in display order.
pub const SETTINGS: &[Setting] = &[
    BIND,
    DATA_DIR,
    DATABASE_URL,
    MIGRATE_DATABASE_URL,
    ARTIFACTS_URL,
    FACTS_URL,
    LOG_ORIGIN,
    CHECKPOINT_KEY_REF,
    CHECKPOINT_PREVIOUS_KEY_REF,
    WITNESSES,
    AUTH_MODE,
    OIDC_ISSUER,
    OIDC_AUDIENCE,
    OIDC_CLIENT_ID,
    OIDC_CLIENT_SECRET_REF,
    OIDC_CLI_CLIENT_ID,
    OIDC_SCOPES,
    OIDC_USER_CLAIM,
    OIDC_GROUPS_CLAIM,
    OIDC_TENANT_CLAIM,
    OIDC_TENANT,
    OIDC_CA_FILE,
    SESSION_IDLE,
    SESSION_LIFETIME,
    BOOTSTRAP_ADMINS,
    PUBLIC_URL,
    ALLOWED_HOSTS,
    LOCAL_MODE_EXPOSED,
    PUBLIC_SCHEME,
    HEADER_TIMEOUT,
    BODY_TIMEOUT,
    MAX_DATABASE_WAITERS,
    MEMORY_LIMIT,
    INTERNAL_CLIENTS,
    SYNC_WAIT,
    DISPATCH,
    QUEUE_CAP,
    EXECUTION_DEADLINE,
    REVIEW_DEADLINE,
    GENERATOR,
    WORKER_LEASE,
    WORKER_METRICS_BIND,
    NATIONAL_IDS,
    EMBEDDING_ACCOUNT,
    EMBEDDING_MODEL,
    INBOX_STREAM_LIFETIME,
    RESULT_RETENTION,
    PUBLIC_RATE_PER_MINUTE,
    PUBLIC_RATE_BURST,
    TRUSTED_PROXIES,
    EMBED_ROOT_SLUGS,
    EMBED_ANCESTORS,
    EGRESS_ALLOW,
    SECRETS_DIR,
    SMTP_URL,
    MAIL_FROM,
    VAULT_ADDR,
    VAULT_TOKEN,
    RUNTIME_GATEWAY_URL,
    RUNTIME_GATEWAY_TOKEN,
    LOG,
    LOG_FORMAT,
];

/// Prefixes of variables that are not settings: secrets, which are read at use, and variables of the project's tools.
pub(super) const IGNORED_PREFIXES: [&str; 6] =
    ["FAIRWAY_SECRET_", "FAIRWAY_STATE_DIR", "FAIRWAY_POSTGRES_", "FAIRWAY_TEST_", "FAIRWAY_BENCH_", "FAIRWAY_CLI_"];
