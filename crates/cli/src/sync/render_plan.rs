//! Prints plans as text or as JSON and YAML.

use super::plan::{AssetAction, Plan, ReleaseAction, UnmanagedAction, WorkloadAction};
use crate::{
    failure::Failure,
    output::{Output, print},
    terminal_text::{sanitize, sanitize_lines},
};
use serde_json::json;

/// When changed settings of a workload take effect. A reader would expect the approval of the release, because the same
/// command drafts one.
pub(super) const SETTINGS_EFFECT: &str =
    "workload settings take effect at once in all environments, without an approval";

/// Maximum number of assets outside the directory that the text of a plan lists. There may be many, because a
/// workspace usually contains the assets of several directories.
const MAX_LISTED_ASSETS: usize = 5;

pub(super) fn print_plan(output: Output, plan: &Plan) -> Result<(), Failure> {
    if !output.is_for_people() {
        let mut value = serde_json::to_value(plan).map_err(|error| Failure::Failed(error.to_string()))?;
        if let Some(members) = value.as_object_mut() {
            members.insert("changes".to_owned(), json!(!plan.is_empty()));
        }
        return output.value(&value);
    }
    let mut up_to_date = 0_usize;
    for step in &plan.assets {
        match step.action {
            AssetAction::Create => print(&format!("+ {} {} is created", step.kind, sanitize(&step.slug)))?,
            AssetAction::Version => {
                print(&format!("~ {} {} gets a version", step.kind, sanitize(&step.slug)))?;
                if let Some(because) = step.because {
                    print(&format!("    {because}"))?;
                }
                for line in sanitize_lines(step.diff.as_deref().unwrap_or_default()).lines() {
                    print(&format!("    {line}"))?;
                }
            }
            AssetAction::Reuse => up_to_date += 1,
        }
        if let Some(note) = step.note {
            print(&format!("! {} {}: {note}", step.kind, sanitize(&step.slug)))?;
        }
    }
    for step in &plan.workloads {
        let fields: Vec<&str> = step.fields.keys().map(String::as_str).collect();
        match step.action {
            WorkloadAction::Create => print(&format!("+ workload {} is created", sanitize(&step.slug)))?,
            WorkloadAction::Change => {
                print(&format!("~ workload {} changes: {}", sanitize(&step.slug), fields.join(", ")))?;
                print(&format!("    {SETTINGS_EFFECT}"))?;
            }
            WorkloadAction::Keep => up_to_date += 1,
        }
    }
    for step in &plan.releases {
        let description = format!("release of {} for {}", sanitize(&step.workload), sanitize(&step.environment));
        match step.action {
            ReleaseAction::Draft => print(&format!("+ {description} is drafted"))?,
            ReleaseAction::Complete => print(&format!(
                "~ {description}: the draft {} gets its missing bindings",
                step.release_id.as_deref().unwrap_or_default()
            ))?,
            ReleaseAction::Keep => up_to_date += 1,
        }
        for because in &step.because {
            print(&format!("    {}", sanitize(because)))?;
        }
    }
    let left_count = plan.unmanaged.iter().filter(|asset| asset.action == UnmanagedAction::Leave).count();
    if left_count > MAX_LISTED_ASSETS {
        print(&format!("? {left_count} assets of the workspace are not in the directory; kept"))?;
    }
    for asset in &plan.unmanaged {
        match asset.action {
            UnmanagedAction::Leave if left_count > MAX_LISTED_ASSETS => {}
            UnmanagedAction::Leave => {
                print(&format!("? asset {} is not in the directory; kept", sanitize(&asset.slug)))?
            }
            UnmanagedAction::Archive => print(&format!("- asset {} is archived", sanitize(&asset.slug)))?,
            UnmanagedAction::InUse => print(&format!(
                "! asset {} cannot be archived: a remaining release or content depends on it",
                sanitize(&asset.slug)
            ))?,
        }
    }
    let end = if plan.is_empty() { "; nothing to do" } else { "" };
    print(&format!("{up_to_date} up to date{end}"))
}
