//! Links of notifications: the page of the console about the subject of a fact.

use crate::notification::projection::{NotifiableFact, SubjectContext};

/// The page of the inbox, to which digests and test messages link.
pub const INBOX_PAGE: &str = "/console/notifications";

/// The path of the console's page about the subject; `None` if it has no page. It holds identifiers alone, so that it can
/// neither carry a text nor leave the server. The page checks the rights of the person that opens it.
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
        "notification_destination" => INBOX_PAGE.to_owned(),
        _ => return None,
    };
    Some(match fact.workspace_id {
        Some(workspace) => format!("{page}?workspace={workspace}"),
        None => page,
    })
}
