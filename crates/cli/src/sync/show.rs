//! Prints plans as text or as JSON and YAML.

use super::plan::{AssetAction, Plan, ReleaseAction, UnmanagedAction, WorkloadAction};
use crate::{
    failure::Failure,
    output::{Output, say},
    text::{plain, sanitize_lines},
};
use serde_json::json;

pub(super) fn plan(output: Output, plan: &Plan) -> Result<(), Failure> {
    if !output.is_for_people() {
        let mut value = serde_json::to_value(plan).map_err(|error| Failure::Unfit(error.to_string()))?;
        if let Some(members) = value.as_object_mut() {
            members.insert("changes".to_owned(), json!(!plan.is_done()));
        }
        return output.value(&value);
    }
    let mut kept = 0_usize;
    for step in &plan.assets {
        match step.action {
            AssetAction::Create => say(&format!("+ {} {} is created", step.kind, plain(&step.slug)))?,
            AssetAction::Version => {
                say(&format!("~ {} {} gets a version", step.kind, plain(&step.slug)))?;
                if let Some(because) = step.because {
                    say(&format!("    {because}"))?;
                }
                for line in sanitize_lines(step.diff.as_deref().unwrap_or_default()).lines() {
                    say(&format!("    {line}"))?;
                }
            }
            AssetAction::Reuse => kept += 1,
        }
        if let Some(note) = step.note {
            say(&format!("! {} {}: {note}", step.kind, plain(&step.slug)))?;
        }
    }
    for step in &plan.workloads {
        let fields: Vec<&str> = step.fields.keys().map(String::as_str).collect();
        match step.action {
            WorkloadAction::Create => say(&format!("+ workload {} is created", plain(&step.slug)))?,
            WorkloadAction::Change => say(&format!("~ workload {} changes: {}", plain(&step.slug), fields.join(", ")))?,
            WorkloadAction::Keep => kept += 1,
        }
    }
    for step in &plan.releases {
        let of = format!("release of {} for {}", plain(&step.workload), plain(&step.environment));
        match step.action {
            ReleaseAction::Draft => say(&format!("+ {of} is drafted"))?,
            ReleaseAction::Complete => say(&format!(
                "~ {of}: the draft {} gets its missing bindings",
                step.release_id.as_deref().unwrap_or_default()
            ))?,
            ReleaseAction::Keep => kept += 1,
        }
        for because in &step.because {
            say(&format!("    {}", plain(because)))?;
        }
    }
    for rest in &plan.unmanaged {
        match rest.action {
            UnmanagedAction::Leave => say(&format!("? asset {} is not in the directory; kept", plain(&rest.slug)))?,
            UnmanagedAction::Archive => say(&format!("- asset {} is archived", plain(&rest.slug)))?,
            UnmanagedAction::InUse => say(&format!(
                "! asset {} cannot be archived: a remaining release or content depends on it",
                plain(&rest.slug)
            ))?,
        }
    }
    let end = if plan.is_done() { "; nothing to do" } else { "" };
    say(&format!("{kept} up to date{end}"))
}
