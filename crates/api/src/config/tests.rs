use super::*;
use fairway_domain::secret::ServerSecretRef;
use fairway_egress::AllowedTarget;
use fairway_providers::ModelPrice;

fn load(file: &str, environment: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load(Some(file), environment)
}

fn refusal(file: &str, environment: &[(&str, &str)]) -> String {
    load(file, environment).unwrap_err().to_string()
}

#[test]
fn loads_defaults_without_file_and_environment() {
    let settings = Settings::load(None, []).unwrap();
    assert_eq!(settings.bind.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.database, DatabaseLocation::Embedded);
    assert_eq!(settings.migrate_database, DatabaseLocation::Embedded);
    assert_eq!(settings.artifacts, Location::Directory("./.fairway/artifacts".into()));
    assert_eq!(settings.auth_mode, AuthMode::Local);
    assert_eq!((settings.sync_wait.as_secs(), settings.execution_deadline.as_secs()), (30, 600));
    assert_eq!((settings.worker_lease.as_secs(), settings.result_retention.as_secs()), (30, 30 * 86_400));
    assert_eq!((settings.review_deadline.as_secs(), settings.generator), (7 * 86_400, ProvisioningMode::On));
    assert_eq!(settings.log, LogSettings { filter: "info".to_owned(), format: LogFormat::Json });
    assert!(settings.providers.is_empty() && settings.allowed_hosts.is_empty() && !settings.export_traces);
}

#[test]
fn environment_overrides_file() {
    let file = r#"
        bind = "127.0.0.1:1"
        data_dir = "/file"
        allowed_hosts = ["a.example", "B.example:8443"]
        local_mode_exposed = "i-understand"
        internal_clients = ["service:portal"]
        [auth]
        mode = "local"
        [log]
        filter = "warn"
        [[providers]]
        account_slot = "second"
        kind = "local"
        residency = "de"
    "#;
    let settings = load(
        file,
        &[
            ("FAIRWAY_BIND", "[::1]:2"),
            ("FAIRWAY_LOG_FORMAT", "text"),
            ("FAIRWAY_SYNC_WAIT", "5s"),
            ("FAIRWAY_DATABASE_URL", "postgres://u:p@h/d"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();
    assert_eq!(settings.bind.to_string(), "[::1]:2");
    assert_eq!(settings.artifacts, Location::Directory("/file/artifacts".into()));
    let hosts: Vec<String> = settings.allowed_hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["a.example", "b.example:8443"]);
    assert_eq!(settings.internal_clients.first().unwrap().to_string(), "service:portal");
    assert_eq!(settings.log, LogSettings { filter: "warn".to_owned(), format: LogFormat::Text });
    assert_eq!(settings.migrate_database, settings.database);
    assert!(settings.export_traces);
    let account = ProviderAccount {
        account_slot: "second".to_owned(),
        kind: ProviderKind::Local,
        residency: Some("de".to_owned()),
        concurrency: None,
        test_model: None,
        prices: Vec::new(),
        origin: SettingOrigin::File,
    };
    assert_eq!(settings.providers, [account]);
}

#[test]
fn parses_provider_accounts() {
    let file = r#"
        [[providers]]
        account_slot = "first"
        kind = "openai"
        base_url = "https://api.example/v1"
        secret_ref = "env:KEY"
        timeout = 5
        concurrency = 3
        test_model = "m"
        [[providers.prices]]
        model = "m"
        input_micros_per_million = 250000
        output_micros_per_million = 2000000
        [[providers]]
        account_slot = "second"
        kind = "anthropic"
        base_url = "http://127.0.0.1:4000"
    "#;
    let settings = load(file, &[]).unwrap();
    let endpoint = |base_url: &str, secret_ref, seconds| ProviderEndpoint {
        base_url: Url::parse(base_url).unwrap(),
        secret_ref,
        timeout: Duration::from_secs(seconds),
    };
    let key = ServerSecretRef::Env("KEY".to_owned());
    let first = ProviderAccount {
        account_slot: "first".to_owned(),
        kind: ProviderKind::OpenAi(endpoint("https://api.example/v1", Some(key), 5)),
        residency: None,
        concurrency: Some(3),
        test_model: Some("m".to_owned()),
        prices: vec![ModelPrice { model: "m".to_owned(), input: 250_000, output: 2_000_000 }],
        origin: SettingOrigin::File,
    };
    let second = ProviderAccount {
        account_slot: "second".to_owned(),
        kind: ProviderKind::Anthropic(endpoint("http://127.0.0.1:4000", None, 60)),
        residency: None,
        concurrency: None,
        test_model: None,
        prices: Vec::new(),
        origin: SettingOrigin::File,
    };
    let lines: Vec<String> = settings.providers.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "first: openai https://api.example, timeout 5 s, secret env:KEY, concurrency 3, test model m, prices of m",
            "second: anthropic http://127.0.0.1:4000, timeout 60 s, no secret",
        ]
    );
    assert_eq!(settings.providers, [first, second]);
}

#[test]
fn environment_adds_accounts_and_replaces_keys() {
    let file = "[[providers]]\naccount_slot = \"house\"\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:4000/v1\"\n";
    let settings = load(
        file,
        &[
            ("FAIRWAY_PROVIDERS__HOUSE__TIMEOUT", "5"),
            ("FAIRWAY_PROVIDERS__HOUSE__TEST_MODEL", "small"),
            ("FAIRWAY_PROVIDERS__ANTHROPIC_EU__KIND", "anthropic"),
            ("FAIRWAY_PROVIDERS__ANTHROPIC_EU__BASE_URL", "https://api.anthropic.com"),
            ("FAIRWAY_PROVIDERS__ANTHROPIC_EU__SECRET_REF", "env:ANTHROPIC_API_KEY"),
            ("FAIRWAY_PROVIDERS__ANTHROPIC_EU__CONCURRENCY", "4"),
        ],
    )
    .unwrap();
    let lines: Vec<String> =
        settings.providers.iter().map(|account| format!("{account} ({})", account.origin)).collect();
    assert_eq!(
        lines,
        [
            "house: openai http://127.0.0.1:4000, timeout 5 s, no secret, test model small (environment)",
            "anthropic-eu: anthropic https://api.anthropic.com, timeout 60 s, secret env:ANTHROPIC_API_KEY, \
             concurrency 4 (environment)",
        ]
    );
}

#[test]
fn refuses_invalid_provider_variables() {
    const KIND: (&str, &str) = ("FAIRWAY_PROVIDERS__A__KIND", "openai");
    const URL: (&str, &str) = ("FAIRWAY_PROVIDERS__A__BASE_URL", "https://a.example/v1");
    let form = "did you mean `FAIRWAY_PROVIDERS__<ACCOUNT>__<KEY>`?";
    for (environment, expected) in [
        (&[("FAIRWAY_PROVIDERS_A_KIND", "x")][..], format!("unknown variable `FAIRWAY_PROVIDERS_A_KIND`; {form}")),
        (&[("FAIRWAY_PROVIDERS__A_KIND", "x")], format!("unknown variable `FAIRWAY_PROVIDERS__A_KIND`; {form}")),
        (&[("FAIRWAY_PROVIDERS__a__KIND", "x")], format!("unknown variable `FAIRWAY_PROVIDERS__a__KIND`; {form}")),
        (&[("FAIRWAY_PROVIDERS____KIND", "x")], format!("unknown variable `FAIRWAY_PROVIDERS____KIND`; {form}")),
        (
            &[("FAIRWAY_PROVIDERS__A_B__BASEURL", "x")],
            "unknown variable `FAIRWAY_PROVIDERS__A_B__BASEURL`; did you mean `FAIRWAY_PROVIDERS__A_B__BASE_URL`?"
                .to_owned(),
        ),
        (&[URL], "`FAIRWAY_PROVIDERS__A__KIND` must be set".to_owned()),
        (&[KIND], "`FAIRWAY_PROVIDERS__A__BASE_URL` must be set".to_owned()),
        (
            &[KIND, URL, ("FAIRWAY_PROVIDERS__A__SECRET_REF", "sk-live-hunter2")],
            "`FAIRWAY_PROVIDERS__A__SECRET_REF` must be `env:NAME`, `file:path` or `vault:path#key`, and never the \
             key itself"
                .to_owned(),
        ),
        (
            &[KIND, URL, ("FAIRWAY_PROVIDERS__A__CONCURRENCY", "many")],
            "`FAIRWAY_PROVIDERS__A__CONCURRENCY` must be a number of calls from 1 to 100000".to_owned(),
        ),
    ] {
        assert_eq!(refusal("", environment), expected);
    }
}

#[test]
fn parses_documented_provider_accounts() {
    let page = include_str!("../../../../docs/operations/providers.md");
    let example = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let slots: Vec<String> =
        load(example, &[]).unwrap().providers.into_iter().map(|account| account.account_slot).collect();
    assert_eq!(slots, ["openai-eu", "anthropic", "house"]);
}

#[test]
fn parses_egress_allowances_and_secret_sources() {
    let settings = load(
        "[secrets]\ndir = \"/run/secrets\"\n[egress]\nallow = [\"10.0.0.0/8\", \"Gateway.internal:9000\"]",
        &[("VAULT_ADDR", "https://vault:8200"), ("VAULT_TOKEN", "hunter2"), ("VAULT_NAMESPACE", "x")],
    )
    .unwrap();
    let network = AllowedTarget::Network("10.0.0.0/8".parse().unwrap());
    let host = AllowedTarget::Host("gateway.internal".to_owned());
    let allowed = [Allowance { target: network, port: None }, Allowance { target: host, port: Some(9000) }];
    assert_eq!(settings.egress_allow, allowed);
    assert_eq!(settings.secrets_dir, Some("/run/secrets".into()));
    assert_eq!(settings.vault.as_ref().unwrap().token.expose(), "hunter2");
    assert!(!format!("{settings:?} {:?}", settings.describe()).contains("hunter2"));
}

#[test]
fn refuses_unknown_names_with_suggestion() {
    for (file, environment, expected) in [
        ("binds = \"x\"", &[][..], "unknown key `binds` in the configuration file; did you mean `bind`?"),
        ("[auth]\nmoed = \"x\"", &[], "unknown key `auth.moed` in the configuration file; did you mean `auth.mode`?"),
        ("[bind]\nx = 1", &[], "`bind` must be a text, a number, or a list of texts"),
        ("zzz = 1", &[], "unknown key `zzz` in the configuration file"),
        (
            "[[providers]]\naccount = \"x\"",
            &[],
            "unknown key `providers[0].account` in the configuration file; did you mean `providers[0].account_slot`?",
        ),
        ("", &[("FAIRWAY_BINDS", "x")], "unknown variable `FAIRWAY_BINDS`; did you mean `FAIRWAY_BIND`?"),
        (
            "",
            &[("SERVICE_EMBED_ROOT_SLUG", "x")],
            "unknown variable `SERVICE_EMBED_ROOT_SLUG`; did you mean `SERVICE_EMBED_ROOT_SLUGS`?",
        ),
        ("", &[("FAIRWAY_DATABASE", "x")], "unknown variable `FAIRWAY_DATABASE`; did you mean `FAIRWAY_DATABASE_URL`?"),
    ] {
        assert_eq!(refusal(file, environment), expected);
    }
    for ignored in [
        "FAIRWAY_SECRET_A__B",
        "FAIRWAY_STATE_DIR",
        "FAIRWAY_POSTGRES_X",
        "FAIRWAY_TEST_X",
        "FAIRWAY_BENCH_X",
        "FAIRWAY_CLI_SERVER",
    ] {
        assert!(load("", &[(ignored, "x")]).is_ok(), "{ignored}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn refuses_invalid_values_without_revealing_secrets() {
    for (file, environment, expected) in [
        (
            "",
            &[("FAIRWAY_SYNC_WAIT", "soon")][..],
            "`FAIRWAY_SYNC_WAIT` must be a time span such as 500ms, 30s, 10m, 12h or 30d (it is `soon`)",
        ),
        ("sync_wait = 30", &[], "`sync_wait` must be a time span such as 500ms, 30s, 10m, 12h or 30d (it is `30`)"),
        (
            "",
            &[("FAIRWAY_DATABASE_URL", "mysql://u:hunter2@h")],
            "`FAIRWAY_DATABASE_URL` must be `embedded` or a `postgres://` address",
        ),
        (
            "",
            &[("FAIRWAY_ARTIFACTS_URL", "s3://k:hunter2@b")],
            "`FAIRWAY_ARTIFACTS_URL` is not a location for artifacts: credentials belong into the `AWS_*` variables, not into the address",
        ),
        ("", &[("FAIRWAY_AUTH_MODE", "none")], "`FAIRWAY_AUTH_MODE` must be `local` or `oidc` (it is `none`)"),
        (
            "",
            &[("FAIRWAY_BIND", "0.0.0.0:80")],
            "`auth.mode` is `local`, which trusts every caller: bind to a loopback address such as 127.0.0.1:8080",
        ),
        (
            "",
            &[("FAIRWAY_INTERNAL_CLIENTS", "service:a, user:b")],
            "`FAIRWAY_INTERNAL_CLIENTS` must list services as `service:<name>` (it is `service:a, user:b`)",
        ),
        (
            "",
            &[("FAIRWAY_REDACTION_NATIONAL_IDS", "us_ssn, shoe_size")],
            "`FAIRWAY_REDACTION_NATIONAL_IDS` must list schemes from us_ssn, uk_nino, de_steuer_id, fr_insee, es_dni, es_nie (it is `us_ssn, shoe_size`)",
        ),
        (
            "",
            &[("FAIRWAY_ALLOWED_HOSTS", "http://a")],
            "`FAIRWAY_ALLOWED_HOSTS` must list host names, with or without a port (it is `http://a`)",
        ),
        (
            "",
            &[("FAIRWAY_EMBED_ANCESTORS", "*")],
            "`FAIRWAY_EMBED_ANCESTORS` must be `'none'`, or list `'self'` and origins such as https://portal.example (it is `*`)",
        ),
        (
            "",
            &[("SERVICE_EMBED_ROOT_SLUGS", "A b")],
            "`SERVICE_EMBED_ROOT_SLUGS` must list slugs of workloads (it is `A b`)",
        ),
        (
            "",
            &[("FAIRWAY_TRUSTED_PROXIES", "10.0.0.0/8, proxy")],
            "`FAIRWAY_TRUSTED_PROXIES` must list networks such as 10.0.0.0/8, or addresses (it is `10.0.0.0/8, proxy`)",
        ),
        (
            "",
            &[("FAIRWAY_PUBLIC_RATE_BURST", "0")],
            "`FAIRWAY_PUBLIC_RATE_BURST` must be a number of requests from 1 to 1000000 (it is `0`)",
        ),
        (
            "",
            &[("FAIRWAY_LOG", "a=b=c")],
            "`FAIRWAY_LOG` must contain directives such as `info` or `warn,fairway_api=debug` (it is `a=b=c`)",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"other\"",
            &[],
            "`providers[0].kind` must be `openai`, `anthropic` or `local`",
        ),
        ("[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"", &[], "`providers[0].base_url` must be set"),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"\nbase_url = \"https://u:hunter2@h\"",
            &[],
            "`providers[0].base_url` must be an address such as https://api.example/v1, without credentials, query or fragment",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"\nbase_url = \"https://h\"\nsecret_ref = \"sk-hunter2\"",
            &[],
            "`providers[0].secret_ref` must be `env:NAME`, `file:path` or `vault:path#key`, and never the key itself",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"local\"\nconcurrency = 0",
            &[],
            "`providers[0].concurrency` must be a number of calls from 1 to 100000",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"local\"\nresidency = \"europe\"",
            &[],
            "`providers[0].residency` must be a country (ISO 3166), such as `de`, a part of one, such as `de-by`, or `eu`",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"openai\"\nbase_url = \"https://h\"\ntimeout = \"soon\"",
            &[],
            "`providers[0].timeout` must be a time span such as 500ms, 30s, 10m, 12h or 30d",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"local\"\n[[providers.prices]]\nmodel = \"m\"\ninput_micros_per_million = -1",
            &[],
            "`providers[0].prices[0].input_micros_per_million` must be a number of millionths, 0 or more",
        ),
        (
            "",
            &[("FAIRWAY_EGRESS_ALLOW", "10.0.0.0/8, http://x")],
            "`FAIRWAY_EGRESS_ALLOW` must list networks such as 10.0.0.0/8, addresses or host names, each with `:port` or without (it is `10.0.0.0/8, http://x`)",
        ),
        ("", &[("VAULT_ADDR", "https://vault:8200")], "`vault.addr` and `vault.token` must be set together"),
        (
            "",
            &[("VAULT_ADDR", "vault:8200"), ("VAULT_TOKEN", "hunter2")],
            "`VAULT_ADDR` must be an address such as https://vault.example:8200, without credentials",
        ),
        (
            "",
            &[("FAIRWAY_RUNTIME_GATEWAY_URL", "http://u:hunter2@h/")],
            "`FAIRWAY_RUNTIME_GATEWAY_URL` must be `embedded` or an address such as https://gateway.example/scripts, without credentials",
        ),
        (
            "",
            &[("FAIRWAY_RUNTIME_GATEWAY_URL", "https://h/"), ("FAIRWAY_RUNTIME_GATEWAY_TOKEN", "hunter 2")],
            "`FAIRWAY_RUNTIME_GATEWAY_TOKEN` must contain only visible ASCII characters",
        ),
        (
            "",
            &[("FAIRWAY_RUNTIME_GATEWAY_TOKEN", "hunter2")],
            "`runtime_gateway_token` requires `runtime_gateway_url`: the embedded gateway takes no token",
        ),
        (
            "[[providers]]\naccount_slot = \"a\"\nkind = \"local\"\nsecret_ref = \"env:HUNTER2\"",
            &[],
            "`providers[0].secret_ref` must not be set for a `local` account",
        ),
        ("[[providers]]\nkind = \"local\"", &[], "`providers[0].account_slot` must be set"),
        ("providers = 1", &[], "`providers` must be a list of tables: `[[providers]]`"),
    ] {
        assert_eq!(refusal(file, environment), expected);
    }
    let repeated = "[[providers]]\naccount_slot = \"a\"\nkind = \"local\"\n".repeat(2);
    assert_eq!(refusal(&repeated, &[]), "`providers[1].account_slot` must be unique");
    let message = refusal("bind = \"x\"\ndatabase_url = \"postgres://u:hunter2@h", &[]);
    assert!(message.starts_with("the configuration file is not valid TOML at line 2:"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn local_mode_behind_proxy_requires_acknowledgement() {
    for (key, variable, value) in [
        ("trusted_proxies", "FAIRWAY_TRUSTED_PROXIES", "127.0.0.1"),
        ("allowed_hosts", "FAIRWAY_ALLOWED_HOSTS", "forms.example"),
        ("public_scheme", "FAIRWAY_PUBLIC_SCHEME", "https"),
    ] {
        let error = load("", &[(variable, value)]).unwrap_err();
        assert_eq!(error, ConfigError::LocalModeBehindProxy { key, variable });
        assert_eq!(error.code(), "config_local_mode_behind_proxy");
        assert!(error.to_string().contains("FAIRWAY_LOCAL_MODE_EXPOSED=i-understand"), "{error}");
        let exposed = ("FAIRWAY_LOCAL_MODE_EXPOSED", "i-understand");
        let settings = load("", &[(variable, value), exposed]).unwrap();
        assert_eq!(settings.local_mode_exposure, LocalModeExposure::Accepted);
        // The acknowledgement of an exposed local mode does not permit other bind addresses.
        let other_address = load("", &[(variable, value), exposed, ("FAIRWAY_BIND", "0.0.0.0:80")]);
        assert_eq!(other_address.unwrap_err(), ConfigError::LocalModeBindAddress);
    }
    for value in ["yes", "true", "I-UNDERSTAND", "i-understand "] {
        let message = refusal("", &[("FAIRWAY_LOCAL_MODE_EXPOSED", value)]);
        assert_eq!(message, format!("`FAIRWAY_LOCAL_MODE_EXPOSED` must be `i-understand` or unset (it is `{value}`)"));
    }
    assert_eq!(load("", &[]).unwrap().local_mode_exposure, LocalModeExposure::Refused);
}

#[test]
fn describes_all_settings_without_secrets() {
    let settings = load("sync_wait = \"5s\"", &[("FAIRWAY_DATABASE_URL", "postgres://u:hunter2@h/d")]).unwrap();
    let lines: Vec<String> =
        settings.describe().iter().map(|entry| format!("{} = {} ({})", entry.key, entry.value, entry.origin)).collect();
    assert_eq!(lines.len(), SETTINGS.len());
    for line in [
        "sync_wait = 5s (file)",
        "database_url = postgres://h (environment)",
        "migrate_database_url = postgres://h (default)",
        "artifacts_url = file:./.fairway/artifacts (default)",
        "bind = 127.0.0.1:8080 (default)",
    ] {
        assert!(lines.iter().any(|candidate| candidate == line), "{line}\n{lines:#?}");
    }
    assert!(!format!("{settings:?}").contains("hunter2"));
}

/// Paths and queries of URLs can contain secrets, like the user part.
#[test]
fn shows_only_the_origin_of_urls() {
    let file = r#"
        [[providers]]
        account_slot = "a"
        kind = "openai"
        base_url = "https://api.example:8443/hunter2/v1"
    "#;
    let settings = load(
        file,
        &[
            ("FAIRWAY_DATABASE_URL", "postgres://u:hunter2@db:5433/hunter2?application_name=hunter2"),
            ("FAIRWAY_MIGRATE_DATABASE_URL", "postgres://o:hunter2@db/hunter2#hunter2"),
            ("FAIRWAY_ARTIFACTS_URL", "s3://bucket/hunter2?endpoint=https://s3.example/hunter2"),
            ("VAULT_ADDR", "https://vault:8200/hunter2?hunter2"),
            ("VAULT_TOKEN", "hunter2"),
            ("FAIRWAY_RUNTIME_GATEWAY_URL", "https://gateway:9443/hunter2?key=hunter2#hunter2"),
            ("FAIRWAY_RUNTIME_GATEWAY_TOKEN", "hunter2"),
        ],
    )
    .unwrap();
    let value = |key: &str| settings.describe().iter().find(|entry| entry.key == key).unwrap().value.as_str();
    assert_eq!(value("database_url"), "postgres://db:5433");
    assert_eq!(value("migrate_database_url"), "postgres://db");
    assert_eq!(value("artifacts_url"), "s3://bucket");
    assert_eq!(value("vault.addr"), "https://vault:8200");
    assert_eq!(value("runtime_gateway_url"), "https://gateway:9443");
    let directory = load("artifacts_url = \"file:///data/hunter2/x\"", &[]).unwrap();
    let entry = directory.describe().iter().find(|entry| entry.key == "artifacts_url").unwrap();
    assert_eq!(
        (entry.value.as_str(), &directory.artifacts),
        ("file://", &Location::Directory("/data/hunter2/x".into()))
    );
    let account = settings.providers.first().unwrap().to_string();
    assert_eq!(account, "a: openai https://api.example:8443, timeout 60 s, no secret");
    assert!(!format!("{:?} {account}", settings.describe()).contains("hunter2"));
}

#[test]
fn setting_names_are_unique() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        let others = SETTINGS.iter().skip(index + 1);
        assert!(others.clone().all(|other| other.key != setting.key && other.variable != setting.variable));
    }
}
