//! `fairway-server seed`: creates and activates the embedded demo with two actors.

use crate::{
    compose::{AdapterError, Adapters, ComposeError, Process},
    config::{AuthMode, DatabaseLocation, Settings},
    serve::{DatabaseError, ResolvedDatabase},
};
use fairway_domain::{
    access::{ActorRef, ActorRefusal, Caller, OwnerRef},
    asset::kind::AssetKind,
    id::IdSource as _,
    knowledge::document::{DocumentDraft, DocumentSource},
    slug::Slug,
    workload::{
        IntendedUse,
        interface::{InterfaceConfig, InterfaceProblem},
    },
};
use fairway_operations::{
    Failure, Services,
    access::{IdentityClaims, IdentityMode},
    demo::{DemoAsset, DemoAssetContent, DemoWorkload, SeedOutcome},
};
use fairway_postgres::MigrationError;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// The actor that creates and submits the demo.
const AUTHOR: &str = "user:demo-author";
/// The actor that approves and activates the demo.
const APPROVER: &str = "user:demo-approver";

/// The files of a demo workload, with the format of `demo/README.md`.
struct DemoFiles {
    assets: &'static [&'static str],
    flow_slug: &'static str,
    flow: &'static str,
    flow_meta: &'static str,
    workload: &'static str,
    release: &'static str,
    /// The documents of a bound knowledge base.
    documents: Option<&'static str>,
}

/// The workload with a form, which the guides use. Its files are in `demo`.
const TICKET_CLASSIFIER: DemoFiles = DemoFiles {
    assets: &[
        include_str!("../../../demo/assets/ticket-prompt.yaml"),
        include_str!("../../../demo/assets/ticket-model.yaml"),
        include_str!("../../../demo/assets/ticket-policy.yaml"),
    ],
    flow_slug: "ticket-flow",
    flow: include_str!("../../../demo/flows/ticket-flow.yaml"),
    flow_meta: include_str!("../../../demo/flows/ticket-flow.meta.yaml"),
    workload: include_str!("../../../demo/workloads/ticket-classifier.yaml"),
    release: include_str!("../../../demo/releases/ticket-classifier.dev.yaml"),
    documents: None,
};
/// The workload with a chat over documents. Its files are in `examples/pages`.
const HANDBOOK_CHAT: DemoFiles = DemoFiles {
    assets: &[
        include_str!("../../../examples/pages/handbook-chat/assets/handbook.yaml"),
        include_str!("../../../examples/pages/handbook-chat/assets/handbook-prompt.yaml"),
        include_str!("../../../examples/pages/handbook-chat/assets/handbook-model.yaml"),
        include_str!("../../../examples/pages/handbook-chat/assets/handbook-policy.yaml"),
        include_str!("../../../examples/pages/handbook-chat/assets/handbook-memory.yaml"),
    ],
    flow_slug: "handbook-flow",
    flow: include_str!("../../../examples/pages/handbook-chat/flows/handbook-flow.yaml"),
    flow_meta: include_str!("../../../examples/pages/handbook-chat/flows/handbook-flow.meta.yaml"),
    workload: include_str!("../../../examples/pages/handbook-chat/workloads/handbook-chat.yaml"),
    release: include_str!("../../../examples/pages/handbook-chat/releases/handbook-chat.dev.yaml"),
    documents: Some(include_str!("../../../examples/pages/handbook-chat/documents/handbook.yaml")),
};
/// The workload with a block that summarises a text. Its files are in `examples/pages`.
const SHORT_SUMMARY: DemoFiles = DemoFiles {
    assets: &[
        include_str!("../../../examples/pages/short-summary/assets/summary-prompt.yaml"),
        include_str!("../../../examples/pages/short-summary/assets/summary-model.yaml"),
        include_str!("../../../examples/pages/short-summary/assets/summary-policy.yaml"),
    ],
    flow_slug: "summary-flow",
    flow: include_str!("../../../examples/pages/short-summary/flows/summary-flow.yaml"),
    flow_meta: include_str!("../../../examples/pages/short-summary/flows/summary-flow.meta.yaml"),
    workload: include_str!("../../../examples/pages/short-summary/workloads/short-summary.yaml"),
    release: include_str!("../../../examples/pages/short-summary/releases/short-summary.dev.yaml"),
    documents: None,
};
/// One workload for each presentation mode. The workload of the guides is the last, so that its result is the last
/// line of the output.
const DEMOS: [&DemoFiles; 3] = [&HANDBOOK_CHAT, &SHORT_SUMMARY, &TICKET_CLASSIFIER];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AssetFile {
    kind: String,
    slug: String,
    owner_ref: String,
    content: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowMetaFile {
    owner_ref: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    slug: String,
    owner_ref: String,
    invocation_mode: String,
    name: Option<String>,
    description: Option<String>,
    interface_config: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseFile {
    workload: String,
    environment: String,
    target_lane: String,
    bindings: Vec<BindingFile>,
    example_inputs: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingFile {
    role: String,
    asset: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentsFile {
    asset: String,
    documents: Vec<DocumentFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentFile {
    document_id: String,
    title: String,
    text: String,
}

/// Failure to seed the demo.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The database cannot be opened or stopped.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database cannot be migrated.
    #[error("failed to migrate the database")]
    Migrate(#[source] MigrationError),
    /// An adapter cannot be created.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The process cannot be composed.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// An embedded file of the demo is invalid.
    #[error(transparent)]
    File(#[from] DemoFileError),
    /// An actor of the demo cannot be identified.
    #[error("failed to identify {actor}")]
    Identify {
        /// The actor that cannot be identified.
        actor: &'static str,
        /// The failure of the operation.
        source: Failure,
    },
    /// A step of the seeding is refused.
    #[error("failed to seed the demo `{workload}`")]
    Refused {
        /// The slug of the demo's workload.
        workload: String,
        /// The failure of the operation.
        source: Failure,
    },
}

/// Defect of an embedded file of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoFileError {
    /// The file is not valid YAML, or lacks a field.
    #[error(transparent)]
    Yaml(#[from] serde_yaml::Error),
    /// A text is not a slug.
    #[error("`{0}` is not a slug")]
    Slug(String),
    /// A text is not an actor or an owner.
    #[error(transparent)]
    Actor(#[from] ActorRefusal),
    /// The invocation mode of the demo's workload is unknown.
    #[error("unknown invocation mode")]
    InvocationMode,
    /// The kind of an asset of the demo is unknown.
    #[error("unknown asset kind")]
    AssetKind,
    /// The interface of the demo's workload is invalid.
    #[error("the interface of the demo is invalid: {0:?}")]
    Interface(Vec<InterfaceProblem>),
    /// The release does not target all lanes of the workload.
    #[error("the release of the demo must target all lanes of its workload")]
    Lanes,
    /// The release binds other assets than those of the demo.
    #[error("the release of the demo must bind exactly its assets")]
    Bindings,
}

/// Seeds the demo into the database of the settings, with or without a running server. Returns the text for standard
/// output: the result, and the commands that run the demo. Repeated calls change nothing.
///
/// # Errors
/// When the database or the artifact store cannot be reached, or a step is refused.
pub async fn seed(settings: &Settings) -> Result<String, SeedError> {
    let database = ResolvedDatabase::join_or_start(settings).await?;
    let results = Box::pin(seed_database(settings, &database)).await;
    let location = location(settings, &database);
    let stop_result = database.stop_managed_server().await;
    let results = results?;
    stop_result?;
    Ok(format!("{results}{location}{}", usage(settings)?))
}

/// Names the location of the demo's database; empty if a URL names the database. The location of a managed database
/// depends on the working directory, so it may differ from the database of the running server.
fn location(settings: &Settings, database: &ResolvedDatabase) -> String {
    if settings.database != DatabaseLocation::Embedded {
        return String::new();
    }
    let directory = std::path::absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone());
    let server = if database.is_joined() {
        "which a running server uses"
    } else {
        "which no running server uses: start `fairway-server serve` with the same data directory"
    };
    format!("The demo is in the database below {}, {server}\n", directory.display())
}

async fn seed_database(settings: &Settings, database: &ResolvedDatabase) -> Result<String, SeedError> {
    fairway_postgres::migrate(&database.owner_url).await.map_err(SeedError::Migrate)?;
    let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
    let services = process.background_pool_services();
    let callers = (caller(services, AUTHOR).await?, caller(services, APPROVER).await?);
    let mut results = String::new();
    for files in DEMOS {
        let (demo, file) = parse_demo(files)?;
        let (workload, environment) = (&file.workload, &file.environment);
        let outcome = services.demo.seed(&callers.0, &callers.1, &demo).await;
        results += &match outcome.map_err(|source| SeedError::Refused { workload: workload.clone(), source })? {
            SeedOutcome::Activated(release) => format!(
                "{AUTHOR} made `{workload}`; {APPROVER} approved and activated release {release} in `{environment}`\n"
            ),
            SeedOutcome::Unchanged(release) => {
                format!("release {release} of `{workload}` serves in `{environment}`: nothing was changed\n")
            }
        };
    }
    Ok(results)
}

async fn caller(services: &Services, actor: &'static str) -> Result<Caller, SeedError> {
    // The process has the credentials of the database, so the demo's actors need no identity provider.
    let mode = IdentityMode::Local;
    let claims = IdentityClaims {
        actor: ActorRef::parse(actor).map_err(DemoFileError::Actor)?,
        groups: Vec::new(),
        tenant: None,
    };
    let request_id = crate::system_clock_and_ids::SystemIds.new_id().into();
    let caller = services.identities.resolve_caller(mode, &claims, request_id).await;
    caller.map_err(|source| SeedError::Identify { actor, source })
}

/// Parses a demo workload, and the file of its release.
fn parse_demo(files: &DemoFiles) -> Result<(DemoWorkload, ReleaseFile), DemoFileError> {
    let mut assets = files.assets.iter().map(|text| parse_asset(text)).collect::<Result<Vec<_>, _>>()?;
    let meta: FlowMetaFile = parse_yaml(files.flow_meta)?;
    assets.push(DemoAsset {
        slug: parse_slug(files.flow_slug)?,
        owner_ref: OwnerRef::parse(&meta.owner_ref)?,
        content: DemoAssetContent::Flow(files.flow.to_owned()),
    });
    let workload: WorkloadFile = parse_yaml(files.workload)?;
    let release: ReleaseFile = parse_yaml(files.release)?;
    if release.workload != workload.slug || release.target_lane != "all" {
        return Err(DemoFileError::Lanes);
    }
    let pairs: Vec<(&str, &str)> = assets.iter().map(|asset| (kind_of(asset).as_str(), asset.slug.as_str())).collect();
    let mut bindings = release.bindings.iter().map(|binding| (binding.role.as_str(), binding.asset.as_str()));
    if bindings.len() != pairs.len() || !bindings.all(|binding| pairs.contains(&binding)) {
        return Err(DemoFileError::Bindings);
    }
    let interface = workload.interface_config.as_ref().map(InterfaceConfig::parse).transpose();
    let demo = DemoWorkload {
        assets,
        slug: parse_slug(&workload.slug)?,
        name: workload.name,
        description: workload.description,
        owner_ref: OwnerRef::parse(&workload.owner_ref)?,
        invocation_mode: IntendedUse::parse(&workload.invocation_mode).ok_or(DemoFileError::InvocationMode)?,
        interface_config: interface.map_err(DemoFileError::Interface)?,
        environment: parse_slug(&release.environment)?,
        documents: files.documents.map(parse_documents).transpose()?,
    };
    Ok((demo, release))
}

fn parse_asset(text: &str) -> Result<DemoAsset, DemoFileError> {
    let AssetFile { kind, slug: name, owner_ref, content } = parse_yaml(text)?;
    let kind = AssetKind::parse(&kind).ok_or(DemoFileError::AssetKind)?;
    let content = DemoAssetContent::Document(kind, content);
    Ok(DemoAsset { slug: parse_slug(&name)?, owner_ref: OwnerRef::parse(&owner_ref)?, content })
}

/// Parses the documents of a knowledge base and the slug of the knowledge base.
fn parse_documents(text: &str) -> Result<(Slug, Vec<DocumentDraft>), DemoFileError> {
    let DocumentsFile { asset, documents } = parse_yaml(text)?;
    let draft = |DocumentFile { document_id, title, text }: DocumentFile| DocumentDraft {
        document_id,
        title: Some(title),
        source: DocumentSource::Text(text),
        metadata: Map::new(),
    };
    Ok((parse_slug(&asset)?, documents.into_iter().map(draft).collect()))
}

const fn kind_of(asset: &DemoAsset) -> AssetKind {
    match &asset.content {
        DemoAssetContent::Document(kind, _) => *kind,
        DemoAssetContent::Flow(_) => AssetKind::OrchestrationFlow,
    }
}

fn parse_yaml<T: DeserializeOwned>(text: &str) -> Result<T, DemoFileError> {
    Ok(serde_yaml::from_str(text)?)
}

fn parse_slug(text: &str) -> Result<Slug, DemoFileError> {
    Slug::parse(text).map_err(|_| DemoFileError::Slug(text.to_owned()))
}

/// The commands that run the demo on the server of these settings, with instructions for a token if the server
/// requires one.
fn usage(settings: &Settings) -> Result<String, DemoFileError> {
    let url = &settings.base_url();
    let ReleaseFile { workload, environment, example_inputs, .. } = parse_yaml(TICKET_CLASSIFIER.release)?;
    let address = quote_for_shell(&format!("{url}/v1/workloads/by-slug/{workload}/execute"));
    let body = quote_for_shell(&json!({ "environment": environment, "inputs": example_inputs }).to_string());
    let inputs =
        example_inputs.iter().map(|(name, value)| format!(" --input {}", quote_for_shell(&format!("{name}:={value}"))));
    let (inputs, url) = (inputs.collect::<String>(), quote_for_shell(url));
    let (token_help, token) = match settings.auth_mode {
        AuthMode::Local => (String::new(), ""),
        AuthMode::Oidc => (token_instructions(settings, &url), " -H \"Authorization: Bearer $FAIRWAY_CLI_TOKEN\""),
    };
    Ok(format!(
        "{token_help}\nRun `{workload}` in `{environment}`:\n\n\
         curl -sS {address}{token} -H 'Content-Type: application/json' -d {body}\n\n\
         or, with the `fairway` command line:\n\n\
         fairway run {workload} --env {environment}{inputs} --server {url}\n\n\
         Read the evidence for the answer, with EXECUTION_ID set to its `execution_id`:\n\n\
         curl -sS{token} {url}/v1/executions/\"$EXECUTION_ID\"/evidence-graph\n"
    ))
}

/// Instructions to obtain an access token of an identity provider, and the role that the demo needs.
fn token_instructions(settings: &Settings, url: &str) -> String {
    let has_client = settings.issuers.iter().any(|issuer| issuer.cli_client_id.is_some());
    let sign_in = if has_client {
        format!("Sign in as a person:\n\nfairway login --server {url}\n")
    } else {
        "No issuer has a client for `fairway login`: set `FAIRWAY_OIDC_CLI_CLIENT_ID`.\n".to_owned()
    };
    let issuers = settings.issuers.iter().map(|issuer| {
        let rules = &issuer.config.rules;
        format!("  {} for the audience {}\n", rules.issuer, rules.audience)
    });
    let issuers: String = issuers.collect();
    format!(
        "\nThis server needs an access token. {sign_in}\n\
         For `curl`, set FAIRWAY_CLI_TOKEN to a token of an issuer, for example one by client credentials:\n\n\
         {issuers}\n\
         A pipeline sets FAIRWAY_CLIENT_ID and FAIRWAY_CLIENT_SECRET instead. An administrator grants the role that \
         the caller needs:\n\n\
         fairway role-bindings create PRINCIPAL runtime_user\n"
    )
}

/// Quotes a text as one word of a POSIX shell.
fn quote_for_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn quotes_text_as_one_shell_word() {
        assert_eq!(quote_for_shell("it's $HOME"), r"'it'\''s $HOME'");
        let text = "a'b \"$c\" `d` \\";
        let output = Command::new("sh").args(["-c", &format!("printf %s {}", quote_for_shell(text))]).output().unwrap();
        assert_eq!(output.stdout, text.as_bytes());
    }

    #[test]
    fn usage_explains_how_to_get_a_token_in_oidc_mode() {
        let text = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            usage(&Settings::load(None, variables).unwrap()).unwrap()
        };
        let local = text(&[]);
        assert!(!local.contains("token") && local.contains("curl -sS 'http://127.0.0.1:8080/v1/"), "{local}");
        let oidc = [
            ("FAIRWAY_AUTH_MODE", "oidc"),
            ("FAIRWAY_PUBLIC_URL", "https://fairway.example"),
            ("FAIRWAY_OIDC_ISSUER", "https://idp.example"),
            ("FAIRWAY_OIDC_AUDIENCE", "https://api.example"),
        ];
        let without_client = text(&oidc);
        let with_client = text(&[&oidc[..], &[("FAIRWAY_OIDC_CLI_CLIENT_ID", "cli")]].concat());
        for output in [&without_client, &with_client] {
            for part in [
                "https://idp.example for the audience https://api.example",
                "FAIRWAY_CLIENT_ID",
                "'https://fairway.example/v1/workloads/by-slug/ticket-classifier/execute' -H \"Authorization: Bearer \
                 $FAIRWAY_CLI_TOKEN\"",
                "fairway role-bindings create PRINCIPAL runtime_user",
            ] {
                assert!(output.contains(part), "{part}\n{output}");
            }
        }
        assert!(with_client.contains("fairway login --server 'https://fairway.example'\n"), "{with_client}");
        assert!(!without_client.contains("fairway login --server"), "{without_client}");
    }

    #[test]
    fn parses_embedded_demo_files() {
        let modes = DEMOS.map(|files| {
            let (demo, release) = parse_demo(files).unwrap();
            assert!(!release.example_inputs.is_empty());
            let mode = demo.interface_config.unwrap().presentation_mode().as_str();
            (demo.slug.to_string(), mode, demo.assets.len(), demo.documents.map(|(_, documents)| documents.len()))
        });
        let expected = [
            ("handbook-chat".to_owned(), "chat", 6, Some(3)),
            ("short-summary".to_owned(), "block", 4, None),
            ("ticket-classifier".to_owned(), "form", 4, None),
        ];
        assert_eq!(modes, expected);
    }
}
