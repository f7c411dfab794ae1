//! The title and the body of a notification: fixed texts with slugs, codes and identifiers. They contain no free text
//! of a person or a model, and no output that a review withholds. Only an announcement contains texts of an
//! administrator. Names of actors are restricted to letters, digits and a few punctuation characters.

use crate::{
    access::{ActorKind, ActorRef},
    audit::FactKind,
    notification::projection::{NotifiableFact, SubjectContext},
    notification_category::NotificationCategory,
};
use serde_json::Value;

/// The title of a digest with this number of notifications of a category.
#[must_use]
pub fn digest_title(category: NotificationCategory, count: usize) -> String {
    let noun = if count == 1 { "notification" } else { "notifications" };
    format!("{count} {noun} of `{}`", category.as_str())
}

/// The title and the body of the notification about a fact. If `names_actor` is true, the body names the actor.
#[must_use]
pub fn title_and_body(fact: &NotifiableFact, subject: &SubjectContext, names_actor: bool) -> (String, String) {
    if let Some(announcement) = &subject.announcement {
        return (announcement.title.clone(), announcement.body.clone());
    }
    let name = subject.name.as_deref().map_or_else(|| fact.subject_kind.clone(), |name| format!("`{name}`"));
    let suffix = subject.environment.as_deref().map_or_else(String::new, |environment| format!(" in `{environment}`"));
    let title = match fact.kind {
        FactKind::ExecutionEnded => format!("A run of {name} {}{suffix}", ending(code(fact, "outcome"))),
        FactKind::ExecutionDenied => format!("A policy denied a run of {name}{suffix}"),
        FactKind::ExecutionResolved => format!("A run of {name} was resolved as failed{suffix}"),
        FactKind::ExecutionReviewRequested => format!("An answer of {name} awaits review{suffix}"),
        FactKind::ExecutionReviewed => format!("An answer of {name} was reviewed{suffix}"),
        FactKind::SelfReviewRefused => format!("A review of one's own run of {name} was refused{suffix}"),
        FactKind::ReleaseTransitioned => format!("A release of {name} awaits approval{suffix}"),
        FactKind::ReleaseReviewed => format!("A release of {name} was {}{suffix}", verdict(code(fact, "outcome"))),
        FactKind::SelfApprovalRefused => format!("An author's approval of a release of {name} was refused{suffix}"),
        FactKind::ReleaseRolledBack => format!("A release of {name} was rolled back{suffix}"),
        FactKind::RollbackRecommendationChanged => format!("A rollback of {name} is recommended{suffix}"),
        FactKind::WorkloadChanged => format!("The workload {name} was suspended"),
        FactKind::IntegrityMismatch => format!("A stored version of {name} does not match its checksum"),
        FactKind::ReleaseIntegrityMismatch => format!("A stored document of a release of {name} was altered{suffix}"),
        FactKind::KnowledgeSearchRefused => format!("A search of {name} was refused by its access contract"),
        FactKind::ToolDrifted => format!("A call of the tool {name} was refused, because the tool has changed"),
        FactKind::ContractRevoked => format!("An access contract of {name} was revoked"),
        FactKind::AssetVersionCreated => format!("A new version of {name} was added"),
        FactKind::TenantConfigured => "The settings of the organization changed".to_owned(),
        FactKind::IdentityRefused => "An identity was refused, because another has its name".to_owned(),
        FactKind::BootstrapAdminSeen => "An administrator of the configuration used its rights".to_owned(),
        FactKind::EnvironmentConfigured => format!("The settings of an environment changed{suffix}"),
        FactKind::DestinationCreated => "A destination of notifications was created".to_owned(),
        FactKind::DestinationChanged => "A destination of notifications changed".to_owned(),
        FactKind::DestinationDeleted => "A destination of notifications was deleted".to_owned(),
        FactKind::DefaultProfilesChanged => "The default notification profiles changed".to_owned(),
        FactKind::AnnouncementMade => "An announcement".to_owned(),
        FactKind::ConnectionChecked => "The check of a connection has a new result".to_owned(),
        FactKind::ConnectionExpiring if fact.detail.get("days").and_then(Value::as_u64) == Some(0) => {
            "The credentials of a connection have expired".to_owned()
        }
        FactKind::ConnectionExpiring => "The credentials of a connection expire soon".to_owned(),
        FactKind::UseCasePublished => "A use case awaits access to connections".to_owned(),
        FactKind::AccessRequestGranted => "A request for access to a connection was granted".to_owned(),
        FactKind::AccessRequestDenied => "A request for access to a connection was denied".to_owned(),
        FactKind::ErasureRequested => "An erasure of a person's texts awaits approval".to_owned(),
        FactKind::ErasureApproved => "An erasure of a person's texts was approved".to_owned(),
        FactKind::ErasureRefused => "An erasure of a person's texts was refused".to_owned(),
        FactKind::ErasureSelfApprovalRefused => "A requester's approval of its own erasure was refused".to_owned(),
        FactKind::ErasureCompleted => "A person's texts are erased".to_owned(),
        FactKind::ConnectionCreated
        | FactKind::ConnectionChanged
        | FactKind::ConnectionDeleted
        | FactKind::UseCaseCreated
        | FactKind::UseCaseRefined
        | FactKind::UseCaseActivated
        | FactKind::UseCaseArchived
        | FactKind::UseCaseReopened
        | FactKind::TenantCreated
        | FactKind::WorkspaceCreated
        | FactKind::IdentityPinned
        | FactKind::SessionStarted
        | FactKind::SessionEnded
        | FactKind::RoleBindingCreated
        | FactKind::RoleBindingDeleted
        | FactKind::PrincipalBindingCreated
        | FactKind::PrincipalBindingChanged
        | FactKind::PrincipalBindingDeleted
        | FactKind::ShareLinkCreated
        | FactKind::ShareLinkRevoked
        | FactKind::AssetCreated
        | FactKind::AssetLifecycleChanged
        | FactKind::AssetGrantCreated
        | FactKind::AssetGrantDeleted
        | FactKind::DocumentsAdded
        | FactKind::DocumentsReembedded
        | FactKind::MemoryErased
        | FactKind::KnowledgeQueryEmbedded
        | FactKind::KnowledgeSearched
        | FactKind::FlowCreated
        | FactKind::WorkloadCreated
        | FactKind::ReleaseCreated
        | FactKind::ReleaseBindingAdded
        | FactKind::ReleaseBindingRemoved
        | FactKind::RolloutAdvanced
        | FactKind::RolloutHeld
        | FactKind::CodeAccepted
        | FactKind::DestinationTested
        | FactKind::DeliveryRetried
        | FactKind::NotificationProfileChanged
        | FactKind::PreferencesChanged
        | FactKind::NotificationMarked
        | FactKind::InboxRead
        | FactKind::NotificationSuppressed => format!("Something happened to {name}"),
    };
    (title, body(fact, names_actor))
}

/// Whether the text may name the actor. Only people and services are named, because readers can contact them.
const fn is_nameable(actor: &ActorRef) -> bool {
    match actor.kind() {
        ActorKind::User | ActorKind::Service => true,
        ActorKind::Group | ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => false,
    }
}

/// The body: the kind and identifier of the subject, the codes that explain the fact, and the actor if it may be named.
fn body(fact: &NotifiableFact, names_actor: bool) -> String {
    let mut body = format!("{} {}", fact.subject_kind, fact.subject_id);
    for (member, label) in [("error_code", "error"), ("reason_code", "reason"), ("defect", "defect")] {
        if let Some(code) = code(fact, member) {
            body.push_str(&format!(", {label} {code}"));
        }
    }
    if names_actor && is_nameable(&fact.actor) {
        body.push_str(&format!(", by {}", fact.actor));
    }
    body
}

/// The value of a text member in the fact's detail.
fn code<'f>(fact: &'f NotifiableFact, member: &str) -> Option<&'f str> {
    fact.detail.get(member).and_then(Value::as_str)
}

fn ending(outcome: Option<&str>) -> &'static str {
    match outcome {
        Some("timeout") => "timed out",
        Some("denied") => "was denied",
        Some("unknown") => "has an unknown outcome",
        Some("success") => "completed",
        Some("cancelled") => "was cancelled",
        Some(_) | None => "failed",
    }
}

fn verdict(outcome: Option<&str>) -> &'static str {
    match outcome {
        Some("approved") => "approved",
        Some("changes_requested") => "returned for changes",
        Some(_) | None => "rejected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_titles_agree_with_their_number() {
        assert_eq!(digest_title(NotificationCategory::Incidents, 1), "1 notification of `incidents`");
        assert_eq!(digest_title(NotificationCategory::Incidents, 2), "2 notifications of `incidents`");
    }
}
