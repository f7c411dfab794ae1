//! A directory of manifests, read and checked as a whole before anything is asked of a server.

use super::manifest::{AssetManifest, FlowMetadata, ReleaseManifest, WorkloadManifest, typed};
use crate::{
    asset::content_problems,
    failure::{Failure, Finding},
    file::{self, Located, Source},
    flow,
};
use fairway_domain::{
    asset::{
        canonical::Canonical,
        kind::AssetKind,
        reference::{AssetReference, references},
    },
    flow::parse_yaml,
    slug::Slug,
    workload::interface::InterfaceConfig,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

/// What the name of a file with a flow's metadata ends in.
const FLOW_METADATA: &str = ".meta";

/// Everything that a directory says.
pub(super) struct Directory {
    /// In an order in which each comes after those that it refers to.
    pub(super) assets: Vec<WantedAsset>,
    pub(super) workloads: Vec<WorkloadManifest>,
    pub(super) releases: Vec<(ReleaseManifest, Located)>,
}

/// An asset as the directory wants it.
pub(super) struct WantedAsset {
    pub(super) kind: AssetKind,
    pub(super) slug: String,
    pub(super) owner_ref: String,
    pub(super) content: Value,
    pub(super) checksum: String,
    /// The text that a flow's content was read from.
    pub(super) flow_yaml: Option<String>,
    /// What its content refers to.
    pub(super) references: Vec<AssetReference>,
    pub(super) located: Located,
}

/// A directory that is being read, with everything that is wrong so far.
struct Reading<'d> {
    root: &'d Path,
    findings: Vec<Finding>,
}

impl Directory {
    /// Reads a directory.
    ///
    /// # Errors
    /// With everything that is wrong in any of its files.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let mut folders: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in file::below(root)? {
            let inside = path.strip_prefix(root).unwrap_or(&path);
            if let [Component::Normal(folder), Component::Normal(_)] =
                inside.components().collect::<Vec<_>>().as_slice()
            {
                folders.entry(folder.to_string_lossy().into_owned()).or_default().push(path.clone());
            }
        }
        let mut files = |folder: &str| folders.remove(folder).unwrap_or_default();
        let mut reading = Reading { root, findings: Vec::new() };
        let mut assets: Vec<WantedAsset> = files("assets").iter().filter_map(|path| reading.asset(path)).collect();
        assets.extend(reading.flows(&files("flows")));
        let workloads: Vec<WorkloadManifest> =
            files("workloads").iter().filter_map(|path| reading.workload(path)).collect();
        reading.unique(&assets);
        let releases: Vec<_> = files("releases").iter().filter_map(|path| reading.release(path, &assets)).collect();
        let assets = reading.ordered(assets);
        if assets.len() + workloads.len() + releases.len() == 0 && reading.findings.is_empty() {
            let message = "the directory holds no manifests in `assets`, `flows`, `workloads` or `releases`";
            reading.findings.push(Finding::whole(root.display().to_string(), "no_manifests", message));
        }
        if reading.findings.is_empty() {
            Ok(Self { assets, workloads, releases })
        } else {
            Err(Failure::Files(reading.findings))
        }
    }
}

impl Reading<'_> {
    /// What there is, or a note of what is wrong instead.
    fn noted<T>(&mut self, found: Result<T, Finding>) -> Option<T> {
        found.map_err(|finding| self.findings.push(finding)).ok()
    }

    fn parsed(&mut self, path: &Path) -> Option<Located> {
        let parsed = Source::found(path).and_then(|source| source.parsed());
        self.noted(parsed)
    }

    fn asset(&mut self, path: &Path) -> Option<WantedAsset> {
        let mut located = self.parsed(path)?;
        let manifest: AssetManifest = self.noted(typed(&located))?;
        self.named(&located, path, &manifest.slug, "/slug");
        if manifest.kind == AssetKind::OrchestrationFlow {
            self.findings.push(located.finding(
                "/kind",
                "misplaced_flow",
                "flows are written as they are, in `flows/`",
            ));
            return None;
        }
        for (pointer, name) in &manifest.texts {
            let text = self.neighbour(path, &located, name)?;
            let place = located.value.get_mut("content").and_then(|content| place_for(content, pointer));
            let Some(place) = place else {
                let message = "a text belongs at a JSON pointer to a member of the content, such as /system_prompt";
                self.findings.push(located.finding("/texts", "invalid_manifest", message));
                return None;
            };
            *place = Value::String(text);
        }
        self.checked(manifest.kind, (manifest.slug, manifest.owner_ref), located)
    }

    /// An asset whose content, at `/content` of its file, has passed the checks of its kind.
    fn checked(
        &mut self,
        kind: AssetKind,
        (slug, owner_ref): (String, String),
        located: Located,
    ) -> Option<WantedAsset> {
        let problems = content_problems(kind, &located, "/content");
        let content = located.value.get("content").cloned().unwrap_or_default();
        if !problems.is_empty() {
            self.findings.extend(problems);
            return None;
        }
        let checksum = Canonical::of(&content).ok()?.checksum().as_str().to_owned();
        let references = references(kind, &content);
        Some(WantedAsset { kind, slug, owner_ref, content, checksum, flow_yaml: None, references, located })
    }

    /// The text of a file beside another one.
    fn neighbour(&mut self, path: &Path, located: &Located, name: &str) -> Option<String> {
        let is_plain = matches!(Path::new(name).components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
        let beside = path.with_file_name(name);
        let inside =
            self.root.canonicalize().is_ok_and(|root| beside.canonicalize().is_ok_and(|real| real.starts_with(root)));
        if !is_plain || (beside.exists() && !inside) {
            let message = "a text stands in a file of the same folder";
            self.findings.push(located.finding("/texts", "link_leads_out", message));
            return None;
        }
        let read = Source::found(&beside).map(|source| source.text);
        self.noted(read)
    }

    fn flows(&mut self, files: &[PathBuf]) -> Vec<WantedAsset> {
        let (metadata, texts): (Vec<&PathBuf>, Vec<&PathBuf>) =
            files.iter().partition(|path| stem(path).ends_with(FLOW_METADATA));
        for lonely in &metadata {
            let of_flow = stem(lonely).trim_end_matches(FLOW_METADATA).to_owned();
            if !texts.iter().any(|path| stem(path) == of_flow) {
                self.findings.push(Finding::whole(
                    lonely.display().to_string(),
                    "flow_missing",
                    "there is no flow beside it",
                ));
            }
        }
        texts.into_iter().filter_map(|path| self.flow(path, &metadata)).collect()
    }

    fn flow(&mut self, path: &Path, metadata: &[&PathBuf]) -> Option<WantedAsset> {
        let slug = stem(path);
        let source = self.noted(Source::found(path))?;
        let problems = flow::problems(&source);
        let beside = metadata.iter().find(|beside| stem(beside) == format!("{slug}{FLOW_METADATA}"));
        let Some(beside) = beside else {
            let message = format!("`{slug}{FLOW_METADATA}.yaml` with the flow's owner is missing");
            self.findings.push(Finding::whole(&source.name, "flow_metadata_missing", message));
            return None;
        };
        let beside = self.parsed(beside)?;
        let FlowMetadata { owner_ref } = self.noted(typed(&beside))?;
        let Ok(flow) = parse_yaml(&source.text) else {
            self.findings.extend(problems);
            return None;
        };
        let mut located = self.noted(source.parsed())?;
        self.named(&located, path, &slug, "");
        located.value = serde_json::json!({ "content": flow.to_content() });
        let asset = self.checked(AssetKind::OrchestrationFlow, (slug, owner_ref), located)?;
        Some(WantedAsset { flow_yaml: Some(source.text), ..asset })
    }

    fn workload(&mut self, path: &Path) -> Option<WorkloadManifest> {
        let located = self.parsed(path)?;
        let manifest: WorkloadManifest = self.noted(typed(&located))?;
        self.named(&located, path, &manifest.slug, "/slug");
        if let Some(Err(faults)) = manifest.interface_config.as_ref().map(InterfaceConfig::read) {
            for fault in faults {
                // `input_fields[0].type` as a pointer.
                let pointer = format!("/interface_config/{}", fault.path.replace(['.', '['], "/").replace(']', ""));
                let finding = located.finding(&pointer, "invalid_interface", fault.fault.to_string());
                self.findings.push(finding.with_path(format!("interface_config.{}", fault.path)));
            }
        }
        Some(manifest)
    }

    fn release(&mut self, path: &Path, assets: &[WantedAsset]) -> Option<(ReleaseManifest, Located)> {
        let located = self.parsed(path)?;
        let manifest: ReleaseManifest = self.noted(typed(&located))?;
        if stem(path) != format!("{}.{}", manifest.workload, manifest.environment) {
            let message = "the file is called after the workload and the environment: WORKLOAD.ENVIRONMENT.yaml";
            self.findings.push(located.finding("/workload", "misnamed_file", message));
        }
        if !["all", "restricted", "guided", "standard"].contains(&manifest.target_lane.as_str()) {
            let message = "a lane is `all`, `restricted`, `guided` or `standard`";
            self.findings.push(located.finding("/target_lane", "invalid_manifest", message));
        }
        for (index, binding) in manifest.bindings.iter().enumerate() {
            let found = assets.iter().find(|asset| asset.slug == binding.asset);
            if binding.version.is_none() && found.is_none_or(|asset| asset.kind != binding.role) {
                let pointer = format!("/bindings/{index}/asset");
                let message = format!("the directory has no {} of this slug", binding.role);
                self.findings.push(located.finding(&pointer, "unknown_asset", message));
            }
        }
        Some((manifest, located))
    }

    /// A reader who looks for a slug looks for a file of that name.
    fn named(&mut self, located: &Located, path: &Path, slug: &str, pointer: &str) {
        if Slug::parse(slug).is_err() {
            let message = "a slug is up to 63 of a-z, 0-9 and hyphens, and no word of the server's own";
            self.findings.push(located.finding(pointer, "invalid_slug", message));
        }
        if stem(path) != slug {
            self.findings.push(located.finding(
                pointer,
                "misnamed_file",
                "the file is called after the slug inside of it",
            ));
        }
    }

    fn unique(&mut self, assets: &[WantedAsset]) {
        let mut slugs = BTreeSet::new();
        for asset in assets {
            if !slugs.insert(&asset.slug) {
                let message = "another asset of the directory has this slug; flows are assets, too";
                self.findings.push(asset.located.finding("/slug", "duplicate_slug", message));
            }
        }
    }

    /// The assets so that each comes after those that it refers to.
    fn ordered(&mut self, assets: Vec<WantedAsset>) -> Vec<WantedAsset> {
        let mut waiting = assets;
        let mut ordered: Vec<WantedAsset> = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let missing: BTreeSet<String> = waiting.iter().map(|asset| asset.slug.clone()).collect();
            let is_ready =
                |asset: &WantedAsset| !asset.references.iter().any(|other| missing.contains(other.slug.as_str()));
            let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
            if ready.is_empty() {
                for asset in &rest {
                    let pointer = asset.references.iter().find(|other| missing.contains(other.slug.as_str()));
                    let pointer =
                        pointer.map_or_else(String::new, |reference| format!("/content{}", reference.pointer));
                    let message = "assets of the directory refer to one another in a circle, and this is one of them or needs one";
                    self.findings.push(asset.located.finding(&pointer, "reference_cycle", message));
                }
                return ordered;
            }
            ordered.extend(ready);
            waiting = rest;
        }
        ordered
    }
}

/// The name of a file without what it ends in.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The member of content that a text is put into, made where it is missing.
fn place_for<'c>(content: &'c mut Value, pointer: &str) -> Option<&'c mut Value> {
    let (around, name) = pointer.rsplit_once('/')?;
    let members = content.pointer_mut(around)?.as_object_mut()?;
    Some(members.entry(name.replace("~1", "/").replace("~0", "~")).or_insert(Value::Null))
}
