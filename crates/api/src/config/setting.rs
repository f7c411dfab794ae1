//! Every setting: its key in the file, its variable, its default.

/// One setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its key in `fairway.toml`; a dot means a table.
    pub key: &'static str,
    /// Its environment variable.
    pub variable: &'static str,
    /// The value that holds when nobody sets it; empty where it follows from another setting.
    pub default: &'static str,
    /// Whether its value may hold a password, so that it is never shown.
    pub secret: bool,
}

const fn plain(key: &'static str, variable: &'static str, default: &'static str) -> Setting {
    Setting { key, variable, default, secret: false }
}

const fn secret(key: &'static str, variable: &'static str, default: &'static str) -> Setting {
    Setting { key, variable, default, secret: true }
}

/// Address and port to listen on.
pub(super) const BIND: Setting = plain("bind", "FAIRWAY_BIND", "127.0.0.1:8080");
/// The server's own files.
pub(super) const DATA_DIR: Setting = plain("data_dir", "FAIRWAY_DATA_DIR", "./.fairway");
/// `embedded` or a PostgreSQL address.
pub(super) const DATABASE_URL: Setting = secret("database_url", "FAIRWAY_DATABASE_URL", "embedded");
/// The same for the owner role.
pub(super) const MIGRATE_DATABASE_URL: Setting = secret("migrate_database_url", "FAIRWAY_MIGRATE_DATABASE_URL", "");
/// A directory or a bucket.
pub(super) const ARTIFACTS_URL: Setting = secret("artifacts_url", "FAIRWAY_ARTIFACTS_URL", "");
/// How callers are told apart.
pub(super) const AUTH_MODE: Setting = plain("auth.mode", "FAIRWAY_AUTH_MODE", "local");
/// Host names beside the loopback ones.
pub(super) const ALLOWED_HOSTS: Setting = plain("allowed_hosts", "FAIRWAY_ALLOWED_HOSTS", "");
/// `i-understand`: local mode may be reached through a proxy.
pub(super) const LOCAL_MODE_EXPOSED: Setting = plain("local_mode_exposed", "FAIRWAY_LOCAL_MODE_EXPOSED", "");
/// How many requests of a worker thread may wait for PostgreSQL while the line does not get shorter.
pub(super) const WAITING_LINE: Setting = plain("waiting_line", "FAIRWAY_WAITING_LINE", "24");
/// Most resident memory of the process.
pub(super) const MEMORY_LIMIT: Setting = plain("memory_limit_mib", "FAIRWAY_MEMORY_LIMIT_MIB", "400");
/// Trusted services.
pub(super) const INTERNAL_CLIENTS: Setting = plain("internal_clients", "FAIRWAY_INTERNAL_CLIENTS", "");
/// The scheme under which browsers know the server.
pub(super) const PUBLIC_SCHEME: Setting = plain("public_scheme", "FAIRWAY_PUBLIC_SCHEME", "http");
/// Longest wait for a request's head.
pub(super) const HEADER_TIMEOUT: Setting = plain("header_timeout", "FAIRWAY_HEADER_TIMEOUT", "10s");
/// Longest wait for a request's body.
pub(super) const BODY_TIMEOUT: Setting = plain("body_timeout", "FAIRWAY_BODY_TIMEOUT", "30s");
/// Longest wait of a synchronous request.
pub(super) const SYNC_WAIT: Setting = plain("sync_wait", "FAIRWAY_SYNC_WAIT", "30s");
/// Where runs run.
pub(super) const DISPATCH: Setting = plain("dispatch", "FAIRWAY_DISPATCH", "hybrid");
/// Most runs of a tenant that may wait for a worker.
pub(super) const QUEUE_CAP: Setting = plain("queue_cap", "FAIRWAY_QUEUE_CAP", "10000");
/// Longest run.
pub(super) const EXECUTION_DEADLINE: Setting = plain("execution_deadline", "FAIRWAY_EXECUTION_DEADLINE", "10m");
/// Whether servers provision the generator.
pub(super) const GENERATOR: Setting = plain("generator", "FAIRWAY_GENERATOR", "on");
/// Longest wait of an answer for a person.
pub(super) const REVIEW_DEADLINE: Setting = plain("review_deadline", "FAIRWAY_REVIEW_DEADLINE", "7d");
/// Longest silence of a worker.
pub(super) const WORKER_LEASE: Setting = plain("worker_lease", "FAIRWAY_WORKER_LEASE", "30s");
/// Schemes of national identifiers that are masked.
pub(super) const NATIONAL_IDS: Setting = plain(
    "redaction.national_ids",
    "FAIRWAY_REDACTION_NATIONAL_IDS",
    "us_ssn, uk_nino, de_steuer_id, fr_insee, es_dni, es_nie",
);
/// Which provider account turns texts into vectors.
pub(super) const EMBEDDING_ACCOUNT: Setting = plain("embedding.account", "FAIRWAY_EMBEDDING_ACCOUNT", "local");
/// Which of its models.
pub(super) const EMBEDDING_MODEL: Setting = plain("embedding.model", "FAIRWAY_EMBEDDING_MODEL", "local-256");
/// How long answers are kept.
pub(super) const RESULT_RETENTION: Setting = plain("result_retention", "FAIRWAY_RESULT_RETENTION", "30d");
/// Requests of one client to one public workload, over time and at once.
pub(super) const PUBLIC_RATE_PER_MINUTE: Setting =
    plain("public_rate.per_minute", "FAIRWAY_PUBLIC_RATE_PER_MINUTE", "60");
/// The same at once.
pub(super) const PUBLIC_RATE_BURST: Setting = plain("public_rate.burst", "FAIRWAY_PUBLIC_RATE_BURST", "10");
/// Networks of proxies whose `X-Forwarded-For` is believed.
pub(super) const TRUSTED_PROXIES: Setting = plain("trusted_proxies", "FAIRWAY_TRUSTED_PROXIES", "");
/// Workloads that have a page at the root.
pub(super) const EMBED_ROOT_SLUGS: Setting = plain("embed.root_slugs", "SERVICE_EMBED_ROOT_SLUGS", "");
/// Who may frame those pages.
pub(super) const EMBED_ANCESTORS: Setting = plain("embed.ancestors", "FAIRWAY_EMBED_ANCESTORS", "'self'");
/// Where requests may go beside the public internet.
pub(super) const EGRESS_ALLOW: Setting = plain("egress.allow", "FAIRWAY_EGRESS_ALLOW", "");
/// The folder with a folder of secrets for each tenant.
pub(super) const SECRETS_DIR: Setting = plain("secrets.dir", "FAIRWAY_SECRETS_DIR", "");
/// The vault.
pub(super) const VAULT_ADDR: Setting = secret("vault.addr", "VAULT_ADDR", "");
/// What opens it.
pub(super) const VAULT_TOKEN: Setting = secret("vault.token", "VAULT_TOKEN", "");
/// Who runs scripts: `embedded`, or the address of a gateway.
pub(super) const RUNTIME_GATEWAY_URL: Setting =
    secret("runtime_gateway_url", "FAIRWAY_RUNTIME_GATEWAY_URL", "embedded");
/// What opens that gateway.
pub(super) const RUNTIME_GATEWAY_TOKEN: Setting = secret("runtime_gateway_token", "FAIRWAY_RUNTIME_GATEWAY_TOKEN", "");
/// Log directives.
pub(super) const LOG: Setting = plain("log.filter", "FAIRWAY_LOG", "info");
/// Form of a log line.
pub(super) const LOG_FORMAT: Setting = plain("log.format", "FAIRWAY_LOG_FORMAT", "json");

/// Every setting, in the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    BIND,
    DATA_DIR,
    DATABASE_URL,
    MIGRATE_DATABASE_URL,
    ARTIFACTS_URL,
    AUTH_MODE,
    ALLOWED_HOSTS,
    LOCAL_MODE_EXPOSED,
    PUBLIC_SCHEME,
    HEADER_TIMEOUT,
    BODY_TIMEOUT,
    WAITING_LINE,
    MEMORY_LIMIT,
    INTERNAL_CLIENTS,
    SYNC_WAIT,
    DISPATCH,
    QUEUE_CAP,
    EXECUTION_DEADLINE,
    REVIEW_DEADLINE,
    GENERATOR,
    WORKER_LEASE,
    NATIONAL_IDS,
    EMBEDDING_ACCOUNT,
    EMBEDDING_MODEL,
    RESULT_RETENTION,
    PUBLIC_RATE_PER_MINUTE,
    PUBLIC_RATE_BURST,
    TRUSTED_PROXIES,
    EMBED_ROOT_SLUGS,
    EMBED_ANCESTORS,
    EGRESS_ALLOW,
    SECRETS_DIR,
    VAULT_ADDR,
    VAULT_TOKEN,
    RUNTIME_GATEWAY_URL,
    RUNTIME_GATEWAY_TOKEN,
    LOG,
    LOG_FORMAT,
];

/// Variables that begin like ours and are no settings: secrets that are read at use, and what belongs to the project's
/// own tools.
pub(super) const OTHERS: [&str; 6] =
    ["FAIRWAY_SECRET_", "FAIRWAY_STATE_DIR", "FAIRWAY_POSTGRES_", "FAIRWAY_TEST_", "FAIRWAY_BENCH_", "FAIRWAY_CLI_"];
