//! Reads and validates a directory of manifests as a whole, before the first request.

mod release;
mod workload;

use super::manifest_files::{AssetManifest, FlowMetadata, ReleaseManifest, WorkloadManifest, deserialize_manifest};
use crate::{
    asset::content_problems,
    failure::{Failure, Finding},
    flow,
    untrusted_file::{self, LocatedValue, MAX_DIRECTORY_BYTES, Source, sidecar_texts::SidecarLocation},
};
use fairway_domain::{
    access::OwnerRef,
    asset::{
        canonical::Canonical,
        kind::AssetKind,
        reference::{AssetReference, find_references},
    },
    flow::parse_yaml,
    slug::Slug,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Component, Path, PathBuf},
};

/// Suffix of the file stem of a flow's metadata file.
const FLOW_METADATA: &str = ".meta";

/// The content of a sync directory.
pub(super) struct Directory {
    /// Sorted so that each asset follows the assets that it references.
    pub(super) assets: Vec<DesiredAsset>,
    pub(super) workloads: Vec<(WorkloadManifest, LocatedValue)>,
    pub(super) releases: Vec<(ReleaseManifest, LocatedValue)>,
}

/// An asset as the sync directory defines it.
pub(super) struct DesiredAsset {
    pub(super) kind: AssetKind,
    pub(super) slug: String,
    pub(super) owner_ref: String,
    pub(super) content: Value,
    pub(super) checksum: String,
    /// The source text of a flow.
    pub(super) flow_yaml: Option<String>,
    /// Sidecar texts: the file by the JSON pointer into the content.
    pub(super) texts: BTreeMap<String, String>,
    /// The references in the content.
    pub(super) references: Vec<AssetReference>,
    /// The manifest file, without the content, which has been moved out.
    pub(super) located: LocatedValue,
}

/// The manifests of a directory by folder.
pub(super) struct ManifestFiles(BTreeMap<String, Vec<PathBuf>>);

/// The state of reading a directory, with all findings so far.
struct DirectoryReader<'d> {
    root: &'d Path,
    findings: Vec<Finding>,
    /// Slugs of assets with invalid files, so that references to these assets are not reported as missing.
    invalid_slugs: BTreeSet<String>,
    /// Remaining bytes for sidecar texts.
    remaining_text_bytes: u64,
}

impl ManifestFiles {
    /// The files of a directory that does not exist yet.
    pub(super) const fn empty() -> Self {
        Self(BTreeMap::new())
    }

    /// Lists the manifests below a directory.
    ///
    /// # Errors
    /// When the path is not a directory, exceeds the limits, or contains a link to a target outside it.
    pub(super) fn list(root: &Path) -> Result<Self, Failure> {
        let mut folders: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in untrusted_file::manifest_files(root)? {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            if let [Component::Normal(folder), Component::Normal(_)] =
                relative.components().collect::<Vec<_>>().as_slice()
            {
                folders.entry(folder.to_string_lossy().into_owned()).or_default().push(path.clone());
            }
        }
        Ok(Self(folders))
    }

    /// The manifests in a folder.
    fn in_folder(&self, folder: &str) -> &[PathBuf] {
        self.0.get(folder).map_or(&[], Vec::as_slice)
    }

    /// The manifests in a folder with this file stem.
    pub(super) fn manifests_with_stem(&self, folder: &str, name: &str) -> impl Iterator<Item = &PathBuf> {
        self.in_folder(folder).iter().filter(move |path| stem(path) == name)
    }
}

impl Directory {
    /// Reads a directory.
    ///
    /// # Errors
    /// All findings of all files.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let (directory, mut findings) = Self::read_all(root, &ManifestFiles::list(root)?);
        let is_empty = directory.assets.len() + directory.workloads.len() + directory.releases.len() == 0;
        if is_empty && findings.is_empty() {
            let message = "the directory contains no manifests in `assets`, `flows`, `workloads` or `releases`";
            findings.push(Finding::whole(root.display().to_string(), "no_manifests", message));
        }
        if findings.is_empty() { Ok(directory) } else { Err(Failure::Files(findings)) }
    }

    /// The slugs of assets whose versions the plan needs: the assets of the directory, and those that it binds or
    /// includes.
    pub(super) fn relevant_slugs(&self) -> BTreeSet<&str> {
        let defined = self.assets.iter().map(|asset| asset.slug.as_str());
        let bound =
            self.releases.iter().flat_map(|(release, _)| &release.bindings).map(|binding| binding.asset.as_str());
        let prompts = self.assets.iter().filter(|asset| asset.kind == AssetKind::PromptTemplate);
        let included = prompts.flat_map(|asset| &asset.references).map(|reference| reference.slug.as_str());
        defined.chain(bound).chain(included).collect()
    }

    /// Reads the valid files of a directory, and skips invalid files.
    pub(super) fn read_valid(root: &Path, files: &ManifestFiles) -> Self {
        let (mut directory, findings) = Self::read_all(root, files);
        let invalid_files: BTreeSet<&str> = findings.iter().map(|finding| finding.file.as_str()).collect();
        let is_valid = |located: &LocatedValue| !invalid_files.contains(located.name.as_str());
        directory.assets.retain(|asset| is_valid(&asset.located));
        directory.workloads.retain(|(_, located)| is_valid(located));
        directory.releases.retain(|(_, located)| is_valid(located));
        directory
    }

    /// Reads a directory, and collects all findings.
    fn read_all(root: &Path, files: &ManifestFiles) -> (Self, Vec<Finding>) {
        let mut reader = DirectoryReader {
            root,
            findings: Vec::new(),
            invalid_slugs: BTreeSet::new(),
            remaining_text_bytes: MAX_DIRECTORY_BYTES,
        };
        let mut assets: Vec<DesiredAsset> = Vec::new();
        for path in files.in_folder("assets") {
            let asset = reader.read_asset(path);
            if asset.is_none() {
                reader.invalid_slugs.insert(stem(path));
            }
            assets.extend(asset);
        }
        assets.extend(reader.read_flows(files.in_folder("flows")));
        let workloads: Vec<_> =
            files.in_folder("workloads").iter().filter_map(|path| reader.read_workload(path)).collect();
        reader.check_unique_assets(&assets);
        reader.check_unique_workloads(&workloads);
        let releases: Vec<_> =
            files.in_folder("releases").iter().filter_map(|path| reader.read_release(path, &assets)).collect();
        reader.check_unique_releases(&releases);
        let assets = reader.sort_by_reference(assets);
        (Self { assets, workloads, releases }, reader.findings)
    }
}

impl DirectoryReader<'_> {
    /// Returns the value, or records the finding.
    fn record<T>(&mut self, found: Result<T, Finding>) -> Option<T> {
        found.map_err(|finding| self.findings.push(finding)).ok()
    }

    fn parse(&mut self, path: &Path) -> Option<LocatedValue> {
        let parsed = Source::read_file(path).and_then(|source| source.try_value());
        self.record(parsed)
    }

    fn read_asset(&mut self, path: &Path) -> Option<DesiredAsset> {
        let mut located = self.parse(path)?;
        let manifest: AssetManifest = self.record(deserialize_manifest(&located))?;
        self.check_name(&located, path, &manifest.slug, "/slug");
        self.check_owner(&located, &manifest.owner_ref);
        // The slug is removed again when the asset proves valid.
        self.invalid_slugs.insert(manifest.slug.clone());
        if manifest.kind == AssetKind::OrchestrationFlow {
            self.findings.push(located.finding("/kind", "misplaced_flow", "a flow belongs in `flows/` as plain YAML"));
            return None;
        }
        let sidecars = SidecarLocation { path, root: self.root };
        let inlined = sidecars.inline_texts(&mut located, &manifest.texts, &mut self.remaining_text_bytes);
        self.record(inlined)?;
        let asset = self.check_content(manifest.kind, manifest.slug, manifest.owner_ref, located)?;
        self.invalid_slugs.remove(&asset.slug);
        Some(DesiredAsset { texts: manifest.texts, ..asset })
    }

    /// Checks the content at `/content` of a file by the rules of its kind.
    fn check_content(
        &mut self,
        kind: AssetKind,
        slug: String,
        owner_ref: String,
        mut located: LocatedValue,
    ) -> Option<DesiredAsset> {
        let problems = content_problems(kind, &located, "/content");
        // Moves the content instead of copying it, because the whole directory is in memory.
        let mut manifest = mem::take(&mut located.value);
        let content = manifest.get_mut("content").map(Value::take).unwrap_or_default();
        if !problems.is_empty() {
            self.findings.extend(problems);
            return None;
        }
        let checksum = Canonical::of(&content).ok()?.checksum().as_str().to_owned();
        let references = find_references(kind, &content);
        let texts = BTreeMap::new();
        Some(DesiredAsset { kind, slug, owner_ref, content, checksum, flow_yaml: None, texts, references, located })
    }

    fn read_flows(&mut self, files: &[PathBuf]) -> Vec<DesiredAsset> {
        let (metadata_files, texts): (Vec<&PathBuf>, Vec<&PathBuf>) =
            files.iter().partition(|path| stem(path).ends_with(FLOW_METADATA));
        let mut seen = BTreeSet::new();
        for metadata_path in &metadata_files {
            let stem = stem(metadata_path);
            let flow_slug = stem.strip_suffix(FLOW_METADATA).unwrap_or(&stem).to_owned();
            if !seen.insert(flow_slug.clone()) {
                let message = "another file has metadata for this flow";
                self.findings.push(Finding::whole(metadata_path.display().to_string(), "duplicate_slug", message));
            }
            if !texts.iter().any(|path| self::stem(path) == flow_slug) {
                self.invalid_slugs.insert(flow_slug);
                self.findings.push(Finding::whole(
                    metadata_path.display().to_string(),
                    "flow_missing",
                    "the flow of this metadata file is missing",
                ));
            }
        }
        let mut flows = Vec::new();
        for path in texts {
            let flow = self.read_flow(path, &metadata_files);
            if flow.is_none() {
                self.invalid_slugs.insert(stem(path));
            }
            flows.extend(flow);
        }
        flows
    }

    fn read_flow(&mut self, path: &Path, metadata_files: &[&PathBuf]) -> Option<DesiredAsset> {
        let slug = stem(path);
        let source = self.record(Source::read_file(path))?;
        let problems = flow::problems(&source);
        let metadata_path = metadata_files.iter().find(|path| stem(path) == format!("{slug}{FLOW_METADATA}"));
        let Some(metadata_path) = metadata_path else {
            let message = format!("`{slug}{FLOW_METADATA}.yaml` with the flow's owner is missing");
            self.findings.push(Finding::whole(&source.name, "flow_metadata_missing", message));
            return None;
        };
        let metadata = self.parse(metadata_path)?;
        let FlowMetadata { owner_ref } = self.record(deserialize_manifest(&metadata))?;
        self.check_owner(&metadata, &owner_ref);
        let Ok(flow) = parse_yaml(&source.text) else {
            self.findings.extend(problems);
            return None;
        };
        let mut located = self.record(source.try_value())?;
        self.check_name(&located, path, &slug, "");
        located.value = serde_json::json!({ "content": flow.to_content() });
        let asset = self.check_content(AssetKind::OrchestrationFlow, slug, owner_ref, located)?;
        Some(DesiredAsset { flow_yaml: Some(source.text), ..asset })
    }

    /// Requires that the file name equals the slug.
    fn check_name(&mut self, located: &LocatedValue, path: &Path, slug: &str, pointer: &str) {
        self.check_slug(located, pointer, slug);
        if stem(path) != slug {
            self.findings.push(located.finding(pointer, "misnamed_file", "the file name must equal the slug"));
        }
    }

    fn check_slug(&mut self, located: &LocatedValue, pointer: &str, text: &str) {
        if let Err(refusal) = Slug::parse(text) {
            self.findings.push(located.finding(pointer, refusal.code(), refusal.to_string()));
        }
    }

    fn check_owner(&mut self, located: &LocatedValue, owner_ref: &str) {
        if OwnerRef::parse(owner_ref).is_err() {
            let message = "an owner must be `team:` or `user:` and a name of a-z, 0-9 and ._@+-";
            self.findings.push(located.finding("/owner_ref", "invalid_manifest", message));
        }
    }

    fn check_unique_assets(&mut self, assets: &[DesiredAsset]) {
        let mut slugs = BTreeSet::new();
        for asset in assets {
            if !slugs.insert(&asset.slug) {
                let message = "another asset or flow of the directory has this slug";
                self.findings.push(asset.located.finding("/slug", "duplicate_slug", message));
            }
        }
    }

    /// Sorts the assets so that each asset follows the assets that it references.
    fn sort_by_reference(&mut self, assets: Vec<DesiredAsset>) -> Vec<DesiredAsset> {
        let mut remaining = assets;
        let mut ordered: Vec<DesiredAsset> = Vec::with_capacity(remaining.len());
        while !remaining.is_empty() {
            let remaining_slugs: BTreeSet<String> = remaining.iter().map(|asset| asset.slug.clone()).collect();
            let is_ready = |asset: &DesiredAsset| {
                !asset.references.iter().any(|other| remaining_slugs.contains(other.slug.as_str()))
            };
            let (ready, blocked): (Vec<_>, Vec<_>) = remaining.into_iter().partition(is_ready);
            if ready.is_empty() {
                for asset in &blocked {
                    let pointer = asset.references.iter().find(|other| remaining_slugs.contains(other.slug.as_str()));
                    let pointer =
                        pointer.map_or_else(String::new, |reference| format!("/content{}", reference.pointer));
                    let message = "the references of this asset form or lead to a cycle";
                    self.findings.push(asset.located.finding(&pointer, "reference_cycle", message));
                }
                return ordered;
            }
            ordered.extend(ready);
            remaining = blocked;
        }
        ordered
    }
}

/// The file name without its extension.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
