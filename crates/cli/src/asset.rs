//! Commands for assets and their versions.

mod check;
mod create;

pub(crate) use check::content_problems;

use crate::{
    command_context::CommandContext,
    dynamic_completion,
    failure::{Candidate, Failure, Finding, Refusal},
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, Output, print},
    similar_names::{similar_names, unknown_name},
    terminal_text::{sanitize, sanitize_lines, shorten},
    untrusted_file::{LocatedValue, Source},
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use fairway_domain::{
    asset::{Lifecycle, kind::AssetKind},
    release::StateName,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const COLUMNS: [Column; 5] = [
    ("SLUG", "/slug"),
    ("KIND", "/asset_kind"),
    ("STATE", "/lifecycle_state"),
    ("OWNER", "/owner_ref"),
    ("CREATED", "/created_at"),
];

const VERSION_COLUMNS: [Column; 5] = [
    ("LABEL", "/version_label"),
    ("VERSION", "/asset_version_id"),
    ("CHECKSUM", "/checksum"),
    ("BY", "/created_by"),
    ("NOTE", "/change_note"),
];

/// Maximum number of labels that a message lists.
const MAX_LABELS_SHOWN: usize = 5;

/// The subcommands of `fairway assets`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the assets visible from the workspace
    #[command(after_help = "Example:\n  fairway assets list --kind policy_bundle")]
    List {
        /// Only assets of this kind
        #[arg(long, value_parser = PossibleValuesParser::new(AssetKind::ALL.map(AssetKind::as_str)))]
        kind: Option<String>,
        /// Only assets in this state
        #[arg(long, value_parser = PossibleValuesParser::new(Lifecycle::ALL.map(Lifecycle::as_str)))]
        state: Option<String>,
    },
    /// Show one asset
    #[command(after_help = "Example:\n  fairway assets show ticket-policy")]
    Show {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
    /// List the versions of an asset, newest first
    #[command(after_help = "Example:\n  fairway assets versions ticket-policy")]
    Versions {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
    /// Show the content of a version
    #[command(after_help = "Example:\n  fairway assets content ticket-policy@v2 --output yaml")]
    Content {
        /// The version as SLUG[@LABEL]; without a label the newest version
        version: String,
    },
    /// Create an asset, and its first version when a content file is given
    #[command(
        after_help = "Example:\n  fairway assets create ticket-policy --kind policy_bundle --owner team:risk content.yaml"
    )]
    Create {
        /// The asset's slug
        slug: String,
        /// The asset's kind
        #[arg(long, value_parser = PossibleValuesParser::new(AssetKind::ALL.map(AssetKind::as_str)))]
        kind: String,
        /// The owner, such as team:risk
        #[arg(long)]
        owner: String,
        /// A JSON or YAML file with the content of its first version
        content: Option<PathBuf>,
        #[command(flatten)]
        version: VersionOptions,
    },
    /// Add a version to an asset
    #[command(
        after_help = "Example:\n  fairway assets add-version ticket-policy content.yaml --note 'Refunds are reviewed'"
    )]
    AddVersion {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
        /// A JSON or YAML file with the content
        content: PathBuf,
        #[command(flatten)]
        version: VersionOptions,
    },
    /// Show the differences between two versions
    #[command(after_help = "Examples:\n  fairway assets diff ticket-policy\n  fairway assets diff ticket-policy v1 v2")]
    Diff {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
        /// The label of the earlier version; else the one before the newest
        from: Option<String>,
        /// The label of the later version; else the newest
        to: Option<String>,
    },
    /// Show the releases and workloads that depend on an asset
    #[command(after_help = "Example:\n  fairway assets impact ticket-policy")]
    Impact {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
    /// Allow new bindings to an asset again
    #[command(after_help = "Example:\n  fairway assets activate ticket-policy")]
    Activate {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
    /// Refuse new bindings to an asset
    #[command(after_help = "Example:\n  fairway assets retire ticket-policy")]
    Retire {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
    /// Check content of any kind without a server
    Check(check::Arguments),
    /// Archive an asset permanently
    #[command(after_help = "Example:\n  fairway assets archive ticket-policy")]
    Archive {
        /// The asset's slug
        #[arg(add = dynamic_completion::assets())]
        slug: String,
    },
}

/// Options of a new version.
#[derive(Args)]
pub(crate) struct VersionOptions {
    /// The version's label; without it the server assigns the next one
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Why the version was created
    #[arg(long)]
    pub(crate) note: Option<String>,
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    if let Command::Check(arguments) = command {
        return check::check(arguments, context);
    }
    let (output, server) = context.open()?;
    match command {
        Command::Check(_) => Ok(()),
        Command::List { kind, state } => {
            let mut query = vec![("workspace_id", server.workspace_id()?)];
            query.extend(kind.as_deref().map(|kind| ("asset_kind", kind)));
            query.extend(state.as_deref().map(|state| ("lifecycle_state", state)));
            output.list(&server.list(&["assets"], &query)?, &COLUMNS)
        }
        Command::Show { slug } => output.record(&find_asset(&server, slug)?),
        Command::Versions { slug } => {
            output.list(&list_versions(&server, &find_asset(&server, slug)?)?, &VERSION_COLUMNS)
        }
        Command::Content { version } => {
            let (_, version) = resolve_version(&server, version)?;
            output.value(version.get("content").unwrap_or(&Value::Null))
        }
        Command::Create { slug, kind, owner, content, version } => {
            let content = content.as_ref().map(|path| read_content(path)).transpose()?;
            create::create(&server, output, slug, kind, owner, content.as_ref(), version)
        }
        Command::AddVersion { slug, content, version } => {
            let content = read_content(content)?;
            add_version(&server, output, &find_asset(&server, slug)?, &content.value, version)
        }
        Command::Diff { slug, from, to } => {
            let asset = find_asset(&server, slug)?;
            let versions = list_versions(&server, &asset)?;
            let [from, to] = select_versions_to_compare(&versions, from.as_deref(), to.as_deref())?;
            let (from, to) = (required_string(from, "asset_version_id")?, required_string(to, "asset_version_id")?);
            let path = ["assets", required_string(&asset, "asset_id")?, "versions", from, "diff", to];
            let diff = server.get(&path, &[("workspace_id", server.workspace_id()?)])?;
            if output.is_for_people() {
                print(&sanitize_lines(required_string(&diff, "readable")?))
            } else {
                output.record(&diff)
            }
        }
        Command::Impact { slug } => {
            let asset = find_asset(&server, slug)?;
            let path = ["assets", required_string(&asset, "asset_id")?, "blast-radius"];
            output.record(&server.get(&path, &[("workspace_id", server.workspace_id()?)])?)
        }
        Command::Activate { slug } => change_lifecycle(&server, output, slug, "activate"),
        Command::Retire { slug } => change_lifecycle(&server, output, slug, "retire"),
        Command::Archive { slug } => change_lifecycle(&server, output, slug, "archive"),
    }
}

/// Reads the content of a version.
///
/// # Errors
/// When the file is a manifest, because parts of its content may be in sidecar files. `assets
/// check` and `sync` read manifests.
fn read_content(path: &Path) -> Result<LocatedValue, Failure> {
    let located = Source::open(path)?.value()?;
    let is_manifest = ["kind", "content"].iter().all(|member| located.value.get(member).is_some());
    if is_manifest {
        let message =
            "the file is a manifest: pass the value of its `content`, or apply its directory by `fairway sync apply`";
        return Err(Failure::from_finding(Finding::whole(path.display().to_string(), "unexpected_manifest", message)));
    }
    Ok(located)
}

fn add_version(
    server: &ServerClient,
    output: Output,
    asset: &Value,
    content: &Value,
    options: &VersionOptions,
) -> Result<(), Failure> {
    let body = json!({
        "content": content,
        "version_label": options.label,
        "change_note": options.note,
        "workspace_id": server.workspace_id()?,
    });
    let created = server.post(&["assets", required_string(asset, "asset_id")?, "versions"], &body)?;
    if Lifecycle::parse(string_or_empty(asset, "lifecycle_state")) == Some(Lifecycle::Retired) {
        return output.change_result(&created, &format!("fairway assets activate {}", string_or_empty(asset, "slug")));
    }
    let name = format!("{}@{}", string_or_empty(asset, "slug"), string_or_empty(&created, "version_label"));
    output.change_result(&created, &format!("fairway releases create WORKLOAD --env ENVIRONMENT --bind {name}"))
}

fn change_lifecycle(server: &ServerClient, output: Output, slug: &str, verb: &str) -> Result<(), Failure> {
    let asset = find_asset(server, slug)?;
    let body = json!({ "workspace_id": server.workspace_id()? });
    let changed = server.post(&["assets", required_string(&asset, "asset_id")?, verb], &body);
    let changed = changed.map_err(|failure| failure.map_refusal("asset_in_use", |refusal| in_use(slug, refusal)))?;
    output.change_result(&changed, &format!("fairway assets impact {slug}"))
}

/// Adds to the refusal to archive an asset the command that ends its use by the newest release that the caller may see.
fn in_use(slug: &str, refusal: Box<Refusal>) -> Failure {
    let release = refusal.detail.pointer("/blocking_releases/0").cloned().unwrap_or_default();
    let id = sanitize(string_or_empty(&release, "release_id"));
    let next = match StateName::parse(string_or_empty(&release, "state")) {
        Some(StateName::Draft) => format!("fairway releases unbind {id} {slug}"),
        Some(StateName::ReviewReady | StateName::Approved) => format!("fairway releases retire {id}"),
        Some(StateName::Active) => {
            format!("activate a release without `{slug}`, which replaces this one, or `fairway releases retire {id}`")
        }
        Some(StateName::Superseded | StateName::Retired) | None => format!("fairway assets impact {slug}"),
    };
    Failure::Refused(refusal).with_next(next)
}

/// Finds the asset with a slug in the workspace.
pub(crate) fn find_asset(server: &ServerClient, slug: &str) -> Result<Value, Failure> {
    let assets = server.list(&["assets"], &[("workspace_id", server.workspace_id()?)])?;
    match assets.iter().position(|asset| string_or_empty(asset, "slug") == slug) {
        Some(index) => Ok(assets.into_iter().nth(index).unwrap_or_default()),
        None => Err(unknown_name("asset", slug, assets.iter().map(|asset| string_or_empty(asset, "slug")))),
    }
}

/// Lists the versions of an asset, newest first.
pub(crate) fn list_versions(server: &ServerClient, asset: &Value) -> Result<Vec<Value>, Failure> {
    server
        .list(&["assets", required_string(asset, "asset_id")?, "versions"], &[("workspace_id", server.workspace_id()?)])
}

/// Resolves `SLUG[@LABEL]` to an asset and a version.
pub(crate) fn resolve_version(server: &ServerClient, name: &str) -> Result<(Value, Value), Failure> {
    let (slug, label) = name.split_once('@').map_or((name, None), |(slug, label)| (slug, Some(label)));
    let asset = find_asset(server, slug)?;
    let version = select_version(&list_versions(server, &asset)?, label)?.clone();
    Ok((asset, version))
}

/// Selects two versions by their labels. Without the later label, it selects the newest version; without any label, the
/// newest two. `versions` begins with the newest.
fn select_versions_to_compare<'v>(
    versions: &'v [Value],
    from: Option<&str>,
    to: Option<&str>,
) -> Result<[&'v Value; 2], Failure> {
    let later = select_version(versions, to)?;
    let earlier = match from {
        Some(label) => select_version(versions, Some(label))?,
        None => versions.get(1).ok_or_else(|| Failure::Unknown {
            message: "the asset has one version; a comparison needs two".to_owned(),
            candidates: Vec::new(),
        })?,
    };
    Ok([earlier, later])
}

/// Selects the version with a label, or the newest without one.
fn select_version<'v>(versions: &'v [Value], label: Option<&str>) -> Result<&'v Value, Failure> {
    let matches_label = |version: &&Value| label.is_none_or(|label| string_or_empty(version, "version_label") == label);
    versions.iter().find(matches_label).ok_or_else(|| {
        let labels = versions.iter().map(|version| string_or_empty(version, "version_label"));
        let similar = similar_names(label.unwrap_or_default(), labels.clone());
        let suggestions = if similar.is_empty() { labels.take(MAX_LABELS_SHOWN).collect() } else { similar };
        let message = match label {
            Some(label) => format!("the asset has no version `{}`", shorten(&sanitize(label))),
            None => "the asset has no version; `fairway assets add-version` adds one".to_owned(),
        };
        Failure::Unknown { message, candidates: suggestions.into_iter().map(Candidate::named).collect() }
    })
}
