//! Plans the step for a workload.

use super::{
    super::{
        manifest_files::WorkloadManifest,
        remote_state::{RemoteState, string_or_empty},
    },
    WorkloadAction, WorkloadStep,
};
use crate::{failure::Finding, untrusted_file::LocatedValue};
use fairway_domain::{
    generator,
    workload::{ASSISTANT_SLUG_PREFIX, WorkloadRefusal, interface::InterfaceConfig},
};
use serde_json::{Map, Value, json};

/// Collects the conflicts between a workload and the server's state. Built-in workloads can be changed, but not
/// created.
pub(super) fn find_conflicts(
    desired: &WorkloadManifest,
    located: &LocatedValue,
    remote_state: &RemoteState,
    findings: &mut Vec<Finding>,
) {
    let is_reserved = desired.slug.starts_with(ASSISTANT_SLUG_PREFIX) || generator::is_reserved_slug(&desired.slug);
    if is_reserved && !remote_state.workloads.contains_key(&desired.slug) {
        let refusal = WorkloadRefusal::ReservedSlug;
        findings.push(located.finding("/slug", refusal.code(), refusal.to_string()));
    }
}

pub(in super::super) fn workload_step(desired: &WorkloadManifest, remote_state: &RemoteState) -> WorkloadStep {
    let remote = remote_state.workloads.get(&desired.slug);
    let fields = remote.map_or_else(|| desired_fields(desired), |remote| differing_fields(desired, remote));
    let action = match remote {
        None => WorkloadAction::Create,
        Some(_) if fields.is_empty() => WorkloadAction::Keep,
        Some(_) => WorkloadAction::Change,
    };
    let updated_at = remote.map(|remote| string_or_empty(remote, "updated_at").to_owned());
    WorkloadStep { slug: desired.slug.clone(), action, fields, updated_at }
}

/// The fields in which a workload differs from its manifest.
pub(in super::super) fn differing_fields(desired: &WorkloadManifest, remote: &Value) -> Map<String, Value> {
    let mut fields = desired_fields(desired);
    fields.retain(|name, value| !is_equal_field(name, value, remote.get(name)));
    fields
}

fn desired_fields(desired: &WorkloadManifest) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), json!(value));
        }
    };
    set("owner_ref", Some(&desired.owner_ref));
    set("invocation_mode", Some(&desired.invocation_mode));
    set("name", desired.name.as_deref());
    set("description", desired.description.as_deref());
    if let Some(interface) = &desired.interface_config {
        fields.insert("interface_config".to_owned(), interface.clone());
    }
    fields
}

/// Whether a field equals the server's value. Interfaces are compared after defaults are filled in.
fn is_equal_field(name: &str, desired: &Value, remote: Option<&Value>) -> bool {
    let Some(remote) = remote else { return false };
    if name != "interface_config" {
        return remote == desired;
    }
    let normalize = |document: &Value| {
        InterfaceConfig::parse(document).ok().map(|interface| interface.with_defaults().to_document())
    };
    remote == desired || normalize(remote).is_some_and(|remote| normalize(desired) == Some(remote))
}
