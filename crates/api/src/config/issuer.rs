//! Identity providers: the settings of the first one, and the `[[issuers]]` tables of the file for more.

use super::{
    checked_table::{TableContext, invalid, tables},
    raw_settings::{ConfigError, RawSettings},
    setting,
};
use fairway_domain::{access::identity::ClaimRules, secret::ServerSecretRef, slug::Slug};
use fairway_oidc::IssuerConfig;
use std::fmt;
use toml::{Table, Value};

/// Key of the tables in the file.
pub(super) const ISSUERS_KEY: &str = "issuers";
/// The keys of a table that configures an issuer.
const KEYS: [&str; 12] = [
    "issuer",
    "name",
    "audience",
    "client_id",
    "client_secret_ref",
    "cli_client_id",
    "scopes",
    "user_claim",
    "groups_claim",
    "tenant_claim",
    "tenant",
    "ca_file",
];

/// An identity provider whose identities the server accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issuer {
    /// Path of the configuration: `oidc` for the first issuer, then `issuers[0]` and so on.
    pub path: String,
    /// The name on the sign-in page; the host by default.
    pub name: String,
    /// Rules for the issuer's tokens, and certificate authorities for connections to the issuer.
    pub config: IssuerConfig,
    /// The client of the portal; without one, browsers cannot sign in with this issuer.
    pub client: Option<PortalClient>,
    /// OAuth client identifier of the command line at this issuer.
    pub cli_client_id: Option<String>,
    /// The scopes that a sign-in requests.
    pub scopes: Vec<String>,
}

/// The OAuth client of the portal at one issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortalClient {
    /// Client identifier at the issuer.
    pub client_id: String,
    /// Reference to the client secret; `None` for a public client.
    pub secret_ref: Option<ServerSecretRef>,
}

impl Issuer {
    /// Parses all issuers. The issuer of the `oidc` settings comes first. [`Self::contradictions`] checks the
    /// issuers.
    pub(super) fn read_all(raw: &RawSettings, file: Option<&Value>) -> Result<Vec<Self>, ConfigError> {
        let mut issuers = Vec::new();
        let first = first_table(raw)?;
        if first.contains_key("issuer") {
            issuers.push(Self::parse(&TableContext::new("oidc", &first, &KEYS))?);
        } else if let Some(key) = first.keys().next() {
            return Err(invalid(&format!("oidc.{key}"), "requires `oidc.issuer` (`FAIRWAY_OIDC_ISSUER`)"));
        }
        let issuer_tables = file.map_or_else(|| Ok(Vec::new()), |value| tables(ISSUERS_KEY, value, "[[issuers]]"))?;
        for (table_path, table) in &issuer_tables {
            let context = TableContext::new(table_path, table, &KEYS);
            context.check_keys()?;
            issuers.push(Self::parse(&context)?);
        }
        Ok(issuers)
    }

    /// Every contradiction within and between issuers.
    pub(super) fn contradictions(issuers: &[Self]) -> Vec<ConfigError> {
        let mut contradictions = Vec::new();
        for (index, issuer) in issuers.iter().enumerate() {
            let is_same = |candidate: &Self| candidate.config.rules.issuer == issuer.config.rules.issuer;
            if issuers.iter().take(index).any(is_same) {
                contradictions.push(issuer.invalid("issuer", "must be unique"));
            }
            // Without the scope `openid` the provider issues no ID token (OpenID Connect Core 3.1.2.1).
            if !issuer.scopes.iter().any(|scope| scope == "openid") {
                contradictions.push(issuer.invalid("scopes", "must contain `openid`"));
            }
        }
        contradictions
    }

    fn invalid(&self, key: &str, rule: &str) -> ConfigError {
        invalid(&format!("{}.{key}", self.path), rule)
    }

    fn parse(context: &TableContext<'_>) -> Result<Self, ConfigError> {
        let or_default = |key: &str, default: &str| Ok(context.text(key)?.unwrap_or_else(|| default.to_owned()));
        let bound_tenant = match context.text("tenant")? {
            Some(text) => Some(Slug::parse(&text).map_err(|_| context.invalid("tenant", "must be a slug"))?),
            None => None,
        };
        let client = match (context.text("client_id")?, context.text("client_secret_ref")?) {
            (Some(client_id), reference) => {
                let parsed = reference.map(|text| ServerSecretRef::parse(&text)).transpose();
                let rule = "must be `env:NAME`, `file:path` or `vault:path#key`, and never the secret itself";
                let secret_ref = parsed.map_err(|_| context.invalid("client_secret_ref", rule))?;
                Some(PortalClient { client_id, secret_ref })
            }
            (None, Some(_)) => return Err(context.invalid("client_secret_ref", "requires `client_id`")),
            (None, None) => None,
        };
        let issuer = context.required("issuer")?;
        let config = IssuerConfig {
            rules: ClaimRules {
                audience: context.required("audience")?,
                user_claim: or_default("user_claim", setting::OIDC_USER_CLAIM.default)?,
                groups_claim: or_default("groups_claim", setting::OIDC_GROUPS_CLAIM.default)?,
                tenant_claim: context.text("tenant_claim")?,
                bound_tenant,
                portal_client_id: client.as_ref().map(|client| client.client_id.clone()),
                issuer,
            },
            ca_file: context.text("ca_file")?.map(Into::into),
        };
        config.check().map_err(|refusal| context.invalid(refusal.field(), &refusal.to_string()))?;
        let host = || config.host().unwrap_or_default();
        Ok(Self {
            path: context.path.to_owned(),
            name: context.text("name")?.unwrap_or_else(host),
            client,
            cli_client_id: context.text("cli_client_id")?,
            scopes: or_default("scopes", setting::OIDC_SCOPES.default)?.split_whitespace().map(str::to_owned).collect(),
            config,
        })
    }
}

impl fmt::Display for Issuer {
    /// Formats the issuer as one line without secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClaimRules { issuer, audience, user_claim, groups_claim, tenant_claim, bound_tenant, .. } =
            &self.config.rules;
        write!(out, "{issuer}: name {}, audience {audience}", self.name)?;
        match &self.client {
            Some(PortalClient { client_id, secret_ref: Some(reference) }) => {
                write!(out, ", portal client {client_id} with secret {reference}")?;
            }
            Some(PortalClient { client_id, secret_ref: None }) => {
                write!(out, ", portal client {client_id} without secret")?;
            }
            None => out.write_str(", no portal client")?,
        }
        match &self.cli_client_id {
            Some(client_id) => write!(out, ", command line client {client_id}")?,
            None => out.write_str(", no command line client")?,
        }
        write!(out, ", scopes {}, user claim {user_claim}, groups claim {groups_claim}", self.scopes.join(" "))?;
        if let Some(claim) = tenant_claim {
            write!(out, ", tenant claim {claim}")?;
        }
        if let Some(tenant) = bound_tenant {
            write!(out, ", tenant {tenant}")?;
        }
        if let Some(file) = &self.config.ca_file {
            write!(out, ", certificate authorities {}", file.display())?;
        }
        Ok(())
    }
}

/// The `oidc` settings as a table for the first issuer, with only the keys that the file or the environment sets.
fn first_table(raw: &RawSettings) -> Result<Table, ConfigError> {
    let keys = [
        ("issuer", &setting::OIDC_ISSUER),
        ("audience", &setting::OIDC_AUDIENCE),
        ("client_id", &setting::OIDC_CLIENT_ID),
        ("client_secret_ref", &setting::OIDC_CLIENT_SECRET_REF),
        ("cli_client_id", &setting::OIDC_CLI_CLIENT_ID),
        ("scopes", &setting::OIDC_SCOPES),
        ("user_claim", &setting::OIDC_USER_CLAIM),
        ("groups_claim", &setting::OIDC_GROUPS_CLAIM),
        ("tenant_claim", &setting::OIDC_TENANT_CLAIM),
        ("tenant", &setting::OIDC_TENANT),
        ("ca_file", &setting::OIDC_CA_FILE),
    ];
    let mut table = Table::new();
    for (key, setting) in keys {
        if raw.is_set(setting)
            && let Some(text) = raw.read_optional(setting, |text| Ok(text.to_owned()))?
        {
            table.insert(key.to_owned(), Value::String(text));
        }
    }
    Ok(table)
}
