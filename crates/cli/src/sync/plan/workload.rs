//! Plans the step for a workload.

use super::{
    super::{
        manifest::WorkloadManifest,
        remote_state::{RemoteState, string_or_empty},
    },
    WorkloadAction, WorkloadStep,
};
use crate::{failure::Finding, file::LocatedValue};
use fairway_domain::{
    generator,
    workload::{ASSISTANT_PREFIX, WorkloadRefusal, interface::InterfaceConfig},
};
use serde_json::{Map, Value, json};

/// Collects the conflicts between a workload and the server's state. Built-in workloads can be changed, but not
/// created.
pub(super) fn find_conflicts(
    wanted: &WorkloadManifest,
    located: &LocatedValue,
    estate: &RemoteState,
    findings: &mut Vec<Finding>,
) {
    let is_kept = wanted.slug.starts_with(ASSISTANT_PREFIX) || generator::is_reserved_slug(&wanted.slug);
    if is_kept && !estate.workloads.contains_key(&wanted.slug) {
        let refusal = WorkloadRefusal::ReservedSlug;
        findings.push(located.finding("/slug", refusal.code(), refusal.to_string()));
    }
}

pub(in super::super) fn workload_step(wanted: &WorkloadManifest, estate: &RemoteState) -> WorkloadStep {
    let live = estate.workloads.get(&wanted.slug);
    let fields = live.map_or_else(|| wanted_fields(wanted), |live| differing_fields(wanted, live));
    let action = match live {
        None => WorkloadAction::Create,
        Some(_) if fields.is_empty() => WorkloadAction::Keep,
        Some(_) => WorkloadAction::Change,
    };
    let updated_at = live.map(|live| string_or_empty(live, "updated_at").to_owned());
    WorkloadStep { slug: wanted.slug.clone(), action, fields, updated_at }
}

/// The fields in which a workload differs from its manifest.
pub(in super::super) fn differing_fields(wanted: &WorkloadManifest, live: &Value) -> Map<String, Value> {
    let mut fields = wanted_fields(wanted);
    fields.retain(|name, value| !is_equal_field(name, value, live.get(name)));
    fields
}

fn wanted_fields(wanted: &WorkloadManifest) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), json!(value));
        }
    };
    set("owner_ref", Some(&wanted.owner_ref));
    set("invocation_mode", Some(&wanted.invocation_mode));
    set("name", wanted.name.as_deref());
    set("description", wanted.description.as_deref());
    if let Some(interface) = &wanted.interface_config {
        fields.insert("interface_config".to_owned(), interface.clone());
    }
    fields
}

/// Whether a field is equal. Interfaces are compared with their defaults filled in.
fn is_equal_field(name: &str, wanted: &Value, live: Option<&Value>) -> bool {
    let Some(live) = live else { return false };
    if name != "interface_config" {
        return live == wanted;
    }
    let meant = |document: &Value| InterfaceConfig::parse(document).ok().map(|read| read.with_defaults().to_document());
    live == wanted || meant(live).is_some_and(|live| meant(wanted) == Some(live))
}
