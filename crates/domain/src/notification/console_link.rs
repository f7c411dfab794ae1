//! Links from notifications to the console page about the subject of a fact.

use crate::notification::projection::{NotifiableFact, SubjectContext};

/// The path of the inbox page. Digests and test messages link to this page.
pub const INBOX_PAGE_PATH: &str = "/console/notifications";

/// The path of the console page about the subject of a fact; `None` if there is no such page. The path consists of
/// identifiers only, so it contains no text of a user and leads to no other server. The page checks the permissions of
/// its reader.
#[must_use]
pub fn console_path(fact: &NotifiableFact, subject: &SubjectContext) -> Option<String> {
    if subject.announcement.is_some() {
        return None;
    }
    let id = fact.subject_id;
    let page = match fact.subject_kind.as_str() {
        "execution" => format!("/console/runs/{id}"),
        "release" => format!("/console/releases/{id}"),
        "workload" => format!("/console/workloads/{id}"),
        "use_case" => format!("/console/use-cases/{id}"),
        "connection" | "access_request" => "/console/connections".to_owned(),
        "notification_destination" => INBOX_PAGE_PATH.to_owned(),
        _ => return None,
    };
    Some(match fact.workspace_id {
        Some(workspace) => format!("{page}?workspace={workspace}"),
        None => page,
    })
}
