//! Reads the release manifests of a directory.

use super::{
    super::manifest_files::{BindingManifest, ReleaseManifest},
    DesiredAsset, DirectoryReader, deserialize_manifest, stem,
};
use crate::{unknown_names_in_files::similar_hint, untrusted_file::LocatedValue};
use fairway_domain::{
    asset::VersionLabel,
    release::{ReleaseRefusal, lane::TargetLane},
};
use std::{collections::BTreeSet, path::Path};

impl DirectoryReader<'_> {
    pub(super) fn read_release(
        &mut self,
        path: &Path,
        assets: &[DesiredAsset],
    ) -> Option<(ReleaseManifest, LocatedValue)> {
        let located = self.parse(path)?;
        let manifest: ReleaseManifest = self.record(deserialize_manifest(&located))?;
        self.check_slug(&located, "/workload", &manifest.workload);
        self.check_slug(&located, "/environment", &manifest.environment);
        if stem(path) != format!("{}.{}", manifest.workload, manifest.environment) {
            let message = "the file must be named WORKLOAD.ENVIRONMENT.yaml";
            self.findings.push(located.finding("/workload", "misnamed_file", message));
        }
        if TargetLane::parse(&manifest.target_lane).is_none() {
            let message = "a lane must be `all`, `restricted`, `guided` or `standard`";
            self.findings.push(located.finding("/target_lane", "invalid_manifest", message));
        }
        let (mut roles, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (index, binding) in manifest.bindings.iter().enumerate() {
            let pointer = format!("/bindings/{index}");
            self.check_binding(&located, &pointer, binding, assets);
            if !roles.insert(binding.role.as_str()) && !binding.role.allows_many_bindings() {
                let message = format!("a release can bind only one {}", binding.role);
                let code = ReleaseRefusal::DuplicateRole.code();
                self.findings.push(located.finding(&format!("{pointer}/role"), code, message));
            } else if !seen.insert(binding) {
                let message = "duplicate binding";
                self.findings.push(located.finding(&pointer, "duplicate_binding", message));
            }
        }
        Some((manifest, located))
    }

    fn check_binding(
        &mut self,
        located: &LocatedValue,
        pointer: &str,
        binding: &BindingManifest,
        assets: &[DesiredAsset],
    ) {
        let found = assets.iter().find(|asset| asset.slug == binding.asset);
        let Some(label) = &binding.version else {
            let is_missing = found.is_none() && !self.invalid_slugs.contains(&binding.asset);
            let (role, slug) = (binding.role, &binding.asset);
            let message = match found {
                Some(asset) if asset.kind != role => {
                    format!("`{slug}` of the directory is a {}, not a {role}", asset.kind)
                }
                None if is_missing => {
                    let known = assets.iter().filter(|asset| asset.kind == role).map(|asset| asset.slug.as_str());
                    format!("the directory has no {role} `{slug}`{}", similar_hint(slug, known))
                }
                Some(_) | None => return,
            };
            self.findings.push(located.finding(&format!("{pointer}/asset"), "unknown_asset", message));
            return;
        };
        if VersionLabel::parse(label).is_none() {
            let message = "a label has 1 to 64 characters from A-Z, a-z, 0-9 and ._-";
            self.findings.push(located.finding(&format!("{pointer}/version"), "invalid_manifest", message));
        }
        if found.is_some_and(|asset| asset.kind != binding.role) {
            let message = format!("the asset with this slug is not a {}", binding.role);
            let code = ReleaseRefusal::RoleKindMismatch.code();
            self.findings.push(located.finding(&format!("{pointer}/role"), code, message));
        }
    }

    pub(super) fn check_unique_releases(&mut self, releases: &[(ReleaseManifest, LocatedValue)]) {
        let mut seen = BTreeSet::new();
        for (release, located) in releases {
            if !seen.insert((&release.workload, &release.environment)) {
                let message = "another file of the directory has a release for this workload and environment";
                self.findings.push(located.finding("/environment", "duplicate_release", message));
            }
        }
    }
}
