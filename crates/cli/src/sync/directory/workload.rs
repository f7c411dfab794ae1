//! Reads the workload manifests of a directory.

use super::{super::manifest_files::WorkloadManifest, DirectoryReader, deserialize_manifest};
use crate::{unknown_names_in_files, untrusted_file::LocatedValue};
use fairway_domain::workload::{
    IntendedUse,
    interface::{InterfaceConfig, ProblemKind},
    text_refusals,
};
use std::{collections::BTreeSet, path::Path};

impl DirectoryReader<'_> {
    pub(super) fn read_workload(&mut self, path: &Path) -> Option<(WorkloadManifest, LocatedValue)> {
        let located = self.parse(path)?;
        let manifest: WorkloadManifest = self.record(deserialize_manifest(&located))?;
        self.check_name(&located, path, &manifest.slug, "/slug");
        self.check_owner(&located, &manifest.owner_ref);
        if IntendedUse::parse(&manifest.invocation_mode).is_none() {
            let modes: Vec<&str> = IntendedUse::ALL.iter().map(|mode| mode.as_str()).collect();
            let message = format!("the mode must be one of {}", modes.join(", "));
            self.findings.push(located.finding("/invocation_mode", "invalid_manifest", message));
        }
        for refusal in text_refusals(manifest.name.as_deref(), manifest.description.as_deref()) {
            let pointer = refusal.field().map_or_else(String::new, |field| format!("/{field}"));
            self.findings.push(located.finding(&pointer, refusal.code(), refusal.to_string()));
        }
        if let Some(Err(faults)) = manifest.interface_config.as_ref().map(InterfaceConfig::parse) {
            for fault in faults {
                // Converts a path such as `input_fields[0].type` to a JSON pointer.
                let pointer = format!("/interface_config/{}", fault.path.replace(['.', '['], "/").replace(']', ""));
                let hint = if let ProblemKind::Unknown(known) = fault.kind {
                    unknown_names_in_files::member_hint(&pointer, known.iter().copied())
                } else {
                    String::new()
                };
                let finding = located.finding(&pointer, "invalid_interface", format!("{}{hint}", fault.kind));
                self.findings.push(finding.with_path(format!("interface_config.{}", fault.path)));
            }
        }
        Some((manifest, located))
    }

    pub(super) fn check_unique_workloads(&mut self, workloads: &[(WorkloadManifest, LocatedValue)]) {
        let mut slugs = BTreeSet::new();
        for (workload, located) in workloads {
            if !slugs.insert(&workload.slug) {
                let message = "another workload of the directory has this slug";
                self.findings.push(located.finding("/slug", "duplicate_slug", message));
            }
        }
    }
}
