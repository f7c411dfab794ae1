//! A directory of manifests, read and checked before anything is sent.

use anyhow::{Context as _, bail, ensure};
use fairway_domain::{
    asset::kind::AssetKind,
    flow::{self, FlowProblem},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What a manifest's name ends in.
const EXTENSION: &str = ".yaml";
/// What the name of a file with a flow's metadata ends in.
const FLOW_METADATA: &str = ".meta.yaml";

/// Everything in a directory.
#[derive(Debug)]
pub(super) struct Manifests {
    /// Assets, flows last.
    pub(super) assets: Vec<AssetManifest>,
    pub(super) workloads: Vec<WorkloadManifest>,
    pub(super) releases: Vec<ReleaseManifest>,
}

/// An asset with the content that its version should have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssetManifest {
    pub(super) kind: AssetKind,
    pub(super) slug: String,
    pub(super) owner_ref: String,
    pub(super) content: Value,
    /// The text that a flow's content was read from.
    #[serde(skip)]
    pub(super) flow_yaml: Option<String>,
}

/// What is said of a flow beside it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowMetadata {
    owner_ref: String,
}

/// A workload, in the words of the API.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadManifest {
    pub(super) slug: String,
    owner_ref: String,
    invocation_mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Given to the workload once it is made.
    #[serde(skip_serializing)]
    pub(super) interface_config: Option<Value>,
}

/// A release that should be active.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseManifest {
    pub(super) workload: String,
    pub(super) environment: String,
    #[serde(default = "all_lanes")]
    pub(super) target_lane: String,
    pub(super) bindings: Vec<BindingManifest>,
    /// Inputs of the command that is printed; nothing is made of them on the server.
    #[serde(default)]
    pub(super) example_inputs: Map<String, Value>,
}

/// An asset in a role of a release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingManifest {
    pub(super) role: AssetKind,
    /// The asset's slug.
    pub(super) asset: String,
}

fn all_lanes() -> String {
    "all".to_owned()
}

impl Manifests {
    /// Reads a directory.
    ///
    /// # Errors
    /// When a file cannot be read, is no manifest, or has another name than the slug inside it; when a release binds an
    /// asset that is not in the directory; or when there is nothing at all.
    pub(super) fn read(directory: &Path) -> anyhow::Result<Self> {
        ensure!(directory.is_dir(), "`{}` is no directory", directory.display());
        let mut assets = assets(&directory.join("assets"))?;
        assets.extend(flows(&directory.join("flows"))?);
        let workloads = workloads(&directory.join("workloads"))?;
        let releases = releases(&directory.join("releases"), &assets)?;
        let found = assets.len() + workloads.len() + releases.len();
        ensure!(found > 0, "`{}` holds no manifests", directory.display());
        Ok(Self { assets, workloads, releases })
    }
}

fn assets(folder: &Path) -> anyhow::Result<Vec<AssetManifest>> {
    let mut assets = Vec::new();
    for file in files(folder)? {
        let asset: AssetManifest = file.parse()?;
        ensure!(asset.kind != AssetKind::OrchestrationFlow, "{}: flows belong in `flows/`", file.path.display());
        file.must_be_named(&asset.slug)?;
        assets.push(asset);
    }
    Ok(assets)
}

fn flows(folder: &Path) -> anyhow::Result<Vec<AssetManifest>> {
    let (metadata, texts): (Vec<File>, Vec<File>) =
        files(folder)?.into_iter().partition(|file| file.name.ends_with(FLOW_METADATA));
    let mut flows = Vec::new();
    for file in &texts {
        let slug = file.stem().to_owned();
        let beside = metadata.iter().find(|other| other.name.strip_suffix(FLOW_METADATA) == Some(&slug));
        let beside = beside.with_context(|| format!("`{slug}{FLOW_METADATA}` with the flow's owner is missing"))?;
        let FlowMetadata { owner_ref } = beside.parse()?;
        let flow = flow::parse_yaml(&file.text).map_err(|problems| unsound(file, &problems))?;
        flows.push(AssetManifest {
            kind: AssetKind::OrchestrationFlow,
            slug,
            owner_ref,
            content: flow.to_content(),
            flow_yaml: Some(file.text.clone()),
        });
    }
    if metadata.len() != flows.len() {
        bail!("{}: a `{FLOW_METADATA}` has no flow beside it", folder.display());
    }
    Ok(flows)
}

fn unsound(file: &File, problems: &[FlowProblem]) -> anyhow::Error {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| {
            let line = problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{line}{} ({})", problem.message, problem.code)
        })
        .collect();
    anyhow::anyhow!("{}: {}", file.path.display(), lines.join("; "))
}

fn workloads(folder: &Path) -> anyhow::Result<Vec<WorkloadManifest>> {
    let mut workloads = Vec::new();
    for file in files(folder)? {
        let workload: WorkloadManifest = file.parse()?;
        file.must_be_named(&workload.slug)?;
        workloads.push(workload);
    }
    Ok(workloads)
}

fn releases(folder: &Path, assets: &[AssetManifest]) -> anyhow::Result<Vec<ReleaseManifest>> {
    let mut releases = Vec::new();
    for file in files(folder)? {
        let release: ReleaseManifest = file.parse()?;
        file.must_be_named(&format!("{}.{}", release.workload, release.environment))?;
        for BindingManifest { role, asset } in &release.bindings {
            let kind = assets.iter().find(|other| other.slug == *asset).map(|other| other.kind);
            ensure!(kind == Some(*role), "{}: the directory has no {role} of the slug `{asset}`", file.path.display());
        }
        releases.push(release);
    }
    Ok(releases)
}

/// A manifest's file.
struct File {
    path: PathBuf,
    name: String,
    text: String,
}

impl File {
    fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_yaml::from_str(&self.text).with_context(|| self.path.display().to_string())
    }

    fn stem(&self) -> &str {
        self.name.strip_suffix(EXTENSION).unwrap_or(&self.name)
    }

    /// A reader who looks for a slug looks for a file of that name.
    fn must_be_named(&self, name: &str) -> anyhow::Result<()> {
        ensure!(self.stem() == name, "{} should be called `{name}{EXTENSION}`", self.path.display());
        Ok(())
    }
}

/// The manifests of a folder by name; none when there is no such folder. Hidden files are an editor's business.
fn files(folder: &Path) -> anyhow::Result<Vec<File>> {
    let unreadable = || format!("{} cannot be read", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        ensure!(name.ends_with(EXTENSION), "{}: a manifest's name ends in `{EXTENSION}`", path.display());
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        files.push(File { path, name, text });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

#[cfg(test)]
mod tests;
