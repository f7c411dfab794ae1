//! Maps failures of operations to error responses. The match is exhaustive, so a new failure must be mapped here.

use super::{
    ApiError, FieldProblem,
    access_request_refusal::map_access_request_refusal,
    connection_refusal::map_connection_refusal,
    erasure_refusal::map_erasure_refusal,
    identity_refusal::map_identity_refusal,
    notification_refusal::{map_delivery_not_failed, map_destination_refusal, map_setting_off},
    use_case_refusal::{map_bundle_refusal, map_generate_refusal, map_use_case_refusal},
};
use crate::{
    builtin_tool::ARGUMENTS,
    flow::FlowErrorView,
    http::{
        authentication::{challenge, missing_credential_challenge},
        deserialize_error::truncate_path,
        rate_limit_headers::{RATE_LIMIT_HEADER, RATE_LIMIT_REMAINING_HEADER, RATE_LIMIT_RESET_HEADER},
    },
};
use actix_web::http::{
    StatusCode,
    header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use fairway_domain::{
    access::{GrantRefusal, Role},
    anonymous_rate_limit::RateLimitRefusal,
    asset::{
        AssetRefusal, artifact_store::ArtifactStoreError, canonical::CanonicalRefusal, content::ContentRefusal,
        ports::BlockingRelease,
    },
    execution::{resolve_unknown::ResolveRefusal, review::ReviewRefusal},
    field_path,
    flow::FlowProblem,
    knowledge::document::KnowledgeRefusal,
    release::{ReleaseRefusal, SELF_APPROVAL_REMEDY, StateName, frozen_reference::UnresolvedReference},
    slug::Slug,
    store::{ConstraintConflict, StoreError, StoreFault},
    workload::{WorkloadRefusal, WorkloadStatus, interface::InterfaceProblem},
};
use fairway_operations::{Failure, RunRefusal, ToolRefusal};
use serde_json::{Value, json};

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            // The response is the same for a hidden and a missing resource, so it reveals nothing.
            Failure::NotFound => missing_credential_challenge().map_or_else(Self::not_found, Self::unauthenticated),
            Failure::Forbidden(permission) => Self::forbidden(permission.as_str()),
            // A local server cannot verify an identity, so it responds 403 without a challenge for credentials.
            Failure::Anonymous(permission) => {
                challenge().map_or_else(|| Self::forbidden(permission.as_str()), Self::unauthenticated)
            }
            Failure::Identity(refusal) => map_identity_refusal(&refusal),
            Failure::InvalidField(problem) => {
                Self::invalid_field(FieldProblem::new(problem.path, problem.code, problem.message))
            }
            Failure::InvalidInputs(findings) => map_invalid_inputs(findings),
            Failure::WorkspaceRequired => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "workspace_required",
                "name a workspace: your roles do not select exactly one",
            ),
            Failure::PreconditionFailed => Self::precondition_failed(),
            Failure::Contended => contended(),
            Failure::OutcomeLost => Self::response_lost(),
            Failure::Conflict(conflict) => map_conflict(conflict),
            Failure::KeyReused => key_reused(),
            Failure::KeyInProgress => key_in_progress(),
            Failure::Tenant(refusal) => {
                Self::invalid_field(FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string()))
            }
            Failure::Grant(refusal) => map_grant_refusal(refusal),
            Failure::Principal(refusal) => FieldProblem::new("principal", refusal.code(), refusal.to_string()).into(),
            Failure::Asset(refusal) => map_asset_refusal(refusal),
            Failure::AssetInUse { visible_releases, hidden_count } => map_asset_in_use(&visible_releases, hidden_count),
            Failure::Content(refusal) => map_content_refusal(refusal),
            Failure::Canonical(refusal) => map_canonical_refusal(&refusal),
            Failure::Flow(problems) => map_flow_problems(&problems),
            Failure::Knowledge(refusal) => map_knowledge_refusal(refusal),
            Failure::Workload(refusal) => map_workload_refusal(refusal),
            Failure::Release(refusal) => map_release_refusal(refusal),
            Failure::Environment(_) => invalid_min_approvals(),
            Failure::ShareTerms(refusal) => {
                FieldProblem::new(refusal.field(), refusal.code(), refusal.to_string()).into()
            }
            Failure::ShareToken(refusal) => Self::new(StatusCode::UNAUTHORIZED, refusal.code(), refusal.to_string())
                .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            Failure::Throttled(throttled) => map_rate_limit(throttled),
            Failure::Run(refusal) => map_run_refusal(refusal),
            Failure::Tool(refusal) => map_tool_refusal(refusal),
            Failure::Review(refusal) => map_review_refusal(refusal),
            Failure::Resolve(refusal @ ResolveRefusal::NotUnknown) => {
                Self::new(StatusCode::CONFLICT, refusal.code(), refusal.to_string())
            }
            Failure::RequiredSettingOff(setting) => map_setting_off(setting),
            Failure::RepeatedPreference(repeated) => {
                FieldProblem::new(format!("[{}]", repeated.position), "duplicate_item", repeated.to_string()).into()
            }
            Failure::Connection(refusal) => map_connection_refusal(refusal),
            Failure::Erasure(refusal) => map_erasure_refusal(refusal),
            Failure::AccessRequest(refusal) => map_access_request_refusal(refusal),
            Failure::UseCase(refusal) => map_use_case_refusal(refusal),
            Failure::Bundle(refusal) => map_bundle_refusal(refusal),
            Failure::Destination(refusal) => map_destination_refusal(refusal),
            Failure::DeliveryNotFailed(refusal) => map_delivery_not_failed(refusal),
            Failure::Announcement(refusal) => FieldProblem::new(refusal.field(), "invalid", refusal.to_string()).into(),
            Failure::Generate(refusal) => map_generate_refusal(refusal),
            Failure::Store(error) => map_store_error(&error),
            Failure::Artifact(error @ ArtifactStoreError::Unavailable(_)) => Self::unavailable().log_cause(&error),
            Failure::Integrity(_) => integrity_mismatch(),
            Failure::Artifact(error @ ArtifactStoreError::Conflict) => Self::internal().log_cause(&error),
            Failure::NotYetInCheckpoint => not_yet_in_checkpoint(),
            Failure::Signing(error) => Self::unavailable().log_cause(&error),
            // `idempotent` handles these two failures, so their arrival here is a defect.
            Failure::KeyTaken | Failure::Inconsistent(_) => Self::internal().log_cause(&failure),
        }
    }
}

fn invalid_min_approvals() -> ApiError {
    FieldProblem::new("min_approvals", "out_of_bounds", "must be between 1 and 10").into()
}

fn integrity_mismatch() -> ApiError {
    let message = "the stored artifact does not match its checksum; an incident was recorded";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "integrity_mismatch", message)
}

fn contended() -> ApiError {
    ApiError::conflict("concurrent_change", "concurrent requests changed this resource; read it and try again")
}

fn key_reused() -> ApiError {
    ApiError::conflict("idempotency_key_conflict", "an earlier request used this idempotency key with another body")
}

fn key_in_progress() -> ApiError {
    ApiError::conflict("request_in_progress", "the first request with this idempotency key is still in progress")
}

fn not_yet_in_checkpoint() -> ApiError {
    let message = "the latest checkpoint of the log does not cover this yet; the next one is due within seconds";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_yet_in_checkpoint", message)
}

fn map_invalid_inputs(findings: Vec<InterfaceProblem>) -> ApiError {
    ApiError::validation(
        findings
            .into_iter()
            .map(|finding| FieldProblem::new(finding.path, finding.kind.code(), finding.kind.to_string()))
            .collect(),
    )
}

/// Maps a conflict that the store detects. A conflict of an access contract comes from the content, so the response
/// names the field.
fn map_conflict(conflict: ConstraintConflict) -> ApiError {
    let field = match conflict {
        ConstraintConflict::ContractNameTaken => "content.access_contract.contract_id",
        ConstraintConflict::ContractRevoked => "content.access_contract.revoked",
        ConstraintConflict::DuplicateSlug
        | ConstraintConflict::DuplicateVersionLabel
        | ConstraintConflict::AssetInUse
        | ConstraintConflict::DuplicateGrant
        | ConstraintConflict::DuplicateRole
        | ConstraintConflict::DuplicateRoleBinding
        | ConstraintConflict::HostTaken
        | ConstraintConflict::MissingReference
        | ConstraintConflict::ShareLinkClosed
        | ConstraintConflict::ActorNameTaken
        | ConstraintConflict::DuplicateDestination
        | ConstraintConflict::TooManyDestinations
        | ConstraintConflict::DuplicateConnection
        | ConstraintConflict::RefinementKeyTaken => {
            return ApiError::new(StatusCode::CONFLICT, conflict.code(), conflict_message(conflict));
        }
    };
    invalid_content(vec![json!({ "path": field, "code": conflict.code(), "message": conflict_message(conflict) })])
}

const fn conflict_message(conflict: ConstraintConflict) -> &'static str {
    match conflict {
        ConstraintConflict::DuplicateSlug => "this slug is taken",
        ConstraintConflict::DuplicateVersionLabel => "the asset already has a version with this label",
        ConstraintConflict::AssetInUse => ASSET_IN_USE_MESSAGE,
        ConstraintConflict::DuplicateGrant => "the asset already has this grant",
        ConstraintConflict::DuplicateRole => "the release already has a binding of this role",
        ConstraintConflict::DuplicateRoleBinding => "the principal already holds this role in this scope",
        ConstraintConflict::HostTaken => "another tenant uses this host",
        ConstraintConflict::MissingReference => "a referenced resource no longer exists",
        ConstraintConflict::ShareLinkClosed => "the share link no longer starts runs",
        ConstraintConflict::DuplicateDestination => "this scope already has a destination of this type and name",
        ConstraintConflict::TooManyDestinations => "a scope has at most 100 destinations",
        ConstraintConflict::ActorNameTaken => "another identity has this actor name",
        ConstraintConflict::DuplicateConnection => "the workspace already has a connection with this name",
        ConstraintConflict::RefinementKeyTaken => "another refinement used this key",
        ConstraintConflict::ContractNameTaken => "another knowledge base has a contract with this name",
        ConstraintConflict::ContractRevoked => "the contract is revoked; a revoked contract cannot be restored",
    }
}

fn map_store_error(error: &StoreError) -> ApiError {
    match error.fault {
        StoreFault::Unavailable => ApiError::unavailable().log_cause(error),
        StoreFault::OutcomeUnknown => ApiError::outcome_unknown().log_cause(error),
        StoreFault::Inconsistent => ApiError::internal().log_cause(error),
    }
}

fn map_grant_refusal(refusal: GrantRefusal) -> ApiError {
    match refusal {
        GrantRefusal::Principal => {
            ApiError::invalid_field(FieldProblem::new("principal", refusal.code(), refusal.to_string()))
        }
        GrantRefusal::ScopeTooNarrow => {
            ApiError::invalid_field(FieldProblem::new("scope_kind", refusal.code(), refusal.to_string()))
        }
        GrantRefusal::BeyondGranter(permission) => ApiError::forbidden(permission.as_str()),
    }
}

/// Message for an asset that cannot be archived.
const ASSET_IN_USE_MESSAGE: &str = "releases that are neither superseded nor retired bind versions of this asset";

fn map_asset_refusal(refusal: AssetRefusal) -> ApiError {
    match refusal {
        AssetRefusal::Archived => ApiError::new(StatusCode::CONFLICT, refusal.code(), refusal.to_string()),
        AssetRefusal::InvalidTransition { from, .. } => {
            let valid: Vec<&str> = from.valid_transitions().iter().map(|state| state.as_str()).collect();
            invalid_transition(refusal.code(), from.as_str(), valid)
        }
        AssetRefusal::InvalidPrincipal => {
            ApiError::invalid_field(FieldProblem::new("principal", refusal.code(), refusal.to_string()))
        }
    }
}

fn map_asset_in_use(visible: &[BlockingRelease], hidden: usize) -> ApiError {
    let releases: Vec<Value> = visible
        .iter()
        .map(|release| {
            let message = format!("of the workload `{}` in `{}`", release.workload_slug, release.environment);
            json!({
                "release_id": release.release_id,
                "state": release.state.as_str(),
                "message": message,
                "workload_id": release.workload_id,
                "workload_slug": release.workload_slug.as_str(),
                "environment": release.environment.as_str(),
            })
        })
        .collect();
    ApiError::new(StatusCode::CONFLICT, ConstraintConflict::AssetInUse.code(), ASSET_IN_USE_MESSAGE)
        .with_detail("blocking_releases", releases)
        .with_detail("hidden_releases", hidden)
}

fn invalid_content(problems: Vec<Value>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_content", "the content is invalid for this kind of asset")
        .with_detail("fields", problems)
}

fn map_content_refusal(refusal: ContentRefusal) -> ApiError {
    match refusal {
        ContentRefusal::Invalid(problems) => invalid_content(
            problems
                .into_iter()
                .map(|problem| {
                    json!({
                        "path": truncate_path(field_path::from_pointer("content", &problem.pointer)),
                        "code": problem.code,
                        "message": problem.message,
                    })
                })
                .collect(),
        ),
        ContentRefusal::Prompt(refusal) => {
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, refusal.code(), refusal.to_string());
            match refusal.offset() {
                Some(offset) => error.with_detail("offset", offset),
                None => error,
            }
        }
    }
}

fn map_canonical_refusal(refusal: &CanonicalRefusal) -> ApiError {
    let path = truncate_path(field_path::from_pointer("content", refusal.pointer()));
    invalid_content(vec![json!({ "path": path, "code": refusal.code(), "message": refusal.to_string() })])
}

fn map_flow_problems(problems: &[FlowProblem]) -> ApiError {
    let errors: Vec<Value> = problems.iter().map(|problem| json!(FlowErrorView::of(problem))).collect();
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_flow", "the flow is invalid").with_detail("errors", errors)
}

fn map_knowledge_refusal(refusal: KnowledgeRefusal) -> ApiError {
    let code = refusal.code();
    match refusal {
        KnowledgeRefusal::Asset(refusal) => map_asset_refusal(refusal),
        KnowledgeRefusal::NotAKnowledgeBase | KnowledgeRefusal::NoVersion => {
            ApiError::new(StatusCode::CONFLICT, code, refusal.to_string())
        }
        KnowledgeRefusal::DocumentCount
        | KnowledgeRefusal::TooManyChunks
        | KnowledgeRefusal::TextsTooLong
        | KnowledgeRefusal::SourcesTooSlow => FieldProblem::new("documents", code, refusal.to_string()).into(),
        KnowledgeRefusal::InvalidDocument { position, fault } => {
            FieldProblem::new(format!("documents[{position}].{}", fault.field()), code, fault.to_string()).into()
        }
        KnowledgeRefusal::NoVectors => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, refusal.to_string())
            .with_header(RETRY_AFTER, HeaderValue::from(PROVIDER_RETRY_AFTER_SECONDS)),
        KnowledgeRefusal::InvalidReason => FieldProblem::new("reason", code, refusal.to_string()).into(),
    }
}

/// `Retry-After` of a failed model call, in seconds.
const PROVIDER_RETRY_AFTER_SECONDS: u64 = 5;

fn map_workload_refusal(refusal: WorkloadRefusal) -> ApiError {
    match refusal {
        WorkloadRefusal::Name => {
            ApiError::invalid_field(FieldProblem::new("name", refusal.code(), refusal.to_string()))
        }
        WorkloadRefusal::Description => {
            ApiError::invalid_field(FieldProblem::new("description", refusal.code(), refusal.to_string()))
        }
        WorkloadRefusal::ReservedSlug => {
            ApiError::invalid_field(FieldProblem::new("slug", refusal.code(), refusal.to_string()))
        }
        WorkloadRefusal::Builtin | WorkloadRefusal::Retired => {
            ApiError::new(StatusCode::CONFLICT, refusal.code(), refusal.to_string())
        }
        WorkloadRefusal::Transition { from, .. } => {
            let valid: Vec<&str> =
                from.valid_transitions().iter().map(|status| WorkloadStatus::as_str(*status)).collect();
            invalid_transition(refusal.code(), from.as_str(), valid)
        }
    }
}

fn invalid_transition(code: &'static str, from: &str, valid: Vec<&str>) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, code, "the current state does not allow this transition")
        .with_detail("current_state", from)
        .with_detail("valid_transitions", valid)
}

fn map_release_refusal(refusal: ReleaseRefusal) -> ApiError {
    let code = refusal.code();
    let invalid = |message| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
    let conflict = |message| ApiError::new(StatusCode::CONFLICT, code, message);
    match refusal {
        ReleaseRefusal::NotEditable { state } => conflict("bindings can change only while the release is a draft")
            .with_detail("current_state", state.as_str()),
        ReleaseRefusal::NotBound => ApiError::not_found(),
        ReleaseRefusal::RoleKindMismatch => invalid("the role must match the kind of the asset"),
        ReleaseRefusal::DuplicateRole => conflict(conflict_message(ConstraintConflict::DuplicateRole)),
        ReleaseRefusal::TooManyBindings => conflict("a release has at most 100 bindings"),
        ReleaseRefusal::TooLarge => {
            conflict("the run plan of the release would exceed 40 MiB, or its patterns and schemas 32 MiB")
        }
        ReleaseRefusal::AssetNotActive => conflict("the asset accepts no new bindings"),
        ReleaseRefusal::InvalidTransition { from, valid } => {
            let valid = valid.into_iter().map(StateName::as_str).collect();
            invalid_transition(code, from.as_str(), valid)
        }
        ReleaseRefusal::ApprovalRequired { counted, needed, refused, excludes_authors } => {
            let message = match (refused, excludes_authors) {
                (true, _) => "the newest verdict is not an approval".to_owned(),
                (false, false) => "the current bindings have too few approvals".to_owned(),
                (false, true) => {
                    format!("the current bindings have too few approvals; authors do not count: {SELF_APPROVAL_REMEDY}")
                }
            };
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
                .with_detail("approvals", counted)
                .with_detail("min_approvals", needed)
                .with_detail("rejected", refused)
        }
        ReleaseRefusal::SelfApprovalNotAllowed => ApiError::new(
            StatusCode::FORBIDDEN,
            code,
            format!("an author of the release may not approve it in this environment: {SELF_APPROVAL_REMEDY}"),
        )
        .with_detail("setting", "allow_self_approval"),
        ReleaseRefusal::TooManyVerdicts => conflict(
            "a release takes 50 verdicts per person and 500 in total, and one rejection per person beyond that",
        ),
        ReleaseRefusal::RoleDoesNotApprove { needed } => {
            let roles: Vec<&str> = needed.iter().map(Role::as_str).collect();
            ApiError::new(StatusCode::FORBIDDEN, code, "the bindings require the approval of other roles")
                .with_detail("roles", roles)
        }
        ReleaseRefusal::ActivationBlocked(missing) => {
            let missing: Vec<Value> = missing.iter().map(|gap| json!(gap)).collect();
            invalid("the release does not meet all activation requirements").with_detail("missing", missing)
        }
        ReleaseRefusal::LaneNotHeld | ReleaseRefusal::NoPreviousRelease => {
            ApiError::new(StatusCode::CONFLICT, code, refusal.to_string())
        }
        ReleaseRefusal::WorkloadRetired => conflict("the workload is retired"),
        ReleaseRefusal::RolloutInProgress => conflict("a rollout of the release is in progress"),
        ReleaseRefusal::RolloutNotInProgress => conflict("no rollout of the release is in progress"),
        ReleaseRefusal::InvalidReason => {
            FieldProblem::new("reason", code, ReleaseRefusal::InvalidReason.to_string()).into()
        }
        ReleaseRefusal::LaneNotTargeted => invalid("the release targets another lane"),
        ReleaseRefusal::UnresolvedReferences(unresolved) => {
            let offset = unresolved.first().and_then(|first| first.offset);
            let missing: Vec<Value> = unresolved.iter().map(unresolved_reference_json).collect();
            let error = invalid("the release has unresolved references").with_detail("missing", missing);
            match offset {
                Some(offset) => error.with_detail("offset", offset),
                None => error,
            }
        }
    }
}

fn unresolved_reference_json(unresolved: &UnresolvedReference) -> Value {
    json!({
        "code": unresolved.code,
        "message": unresolved.message,
        "asset_slug": unresolved.asset_slug.as_str(),
        "path": truncate_path(field_path::from_pointer("content", &unresolved.pointer)),
        "offset": unresolved.offset,
    })
}

/// Maps a rate limit to 429 with the quota and the whole seconds until a request is allowed again.
fn map_rate_limit(RateLimitRefusal { quota, retry_after: wait }: RateLimitRefusal) -> ApiError {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
    let message = format!("the limit of {} requests a minute is reached; try again in {seconds} s", quota.per_minute);
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
        .with_header(RETRY_AFTER, HeaderValue::from(seconds))
        .with_header(RATE_LIMIT_HEADER, HeaderValue::from(quota.per_minute))
        .with_header(RATE_LIMIT_REMAINING_HEADER, HeaderValue::from(0))
        .with_header(RATE_LIMIT_RESET_HEADER, HeaderValue::from(seconds))
}

fn map_run_refusal(refusal: RunRefusal) -> ApiError {
    let code = refusal.code();
    match refusal {
        RunRefusal::AcceptanceUnknown(id) => ApiError::unavailable().with_detail("execution_id", id.to_string()),
        RunRefusal::PrincipalNotBound => ApiError::new(StatusCode::FORBIDDEN, code, refusal.to_string()),
        RunRefusal::QueueFull { limit } => {
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, refusal.to_string()).with_detail("limit", limit)
        }
        // A script takes a few seconds, so a slot is free within about one second.
        RunRefusal::TooManyScripts => ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, refusal.to_string())
            .with_header(RETRY_AFTER, HeaderValue::from(1)),
        RunRefusal::LanguageNotAllowed => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, refusal.to_string()),
        RunRefusal::NoActiveRelease { active_environments: Some(ref environments) } => {
            let environments: Vec<&str> = environments.iter().map(Slug::as_str).collect();
            ApiError::new(StatusCode::CONFLICT, code, refusal.to_string())
                .with_detail("active_environments", environments)
        }
        RunRefusal::Suspended
        | RunRefusal::Retired
        | RunRefusal::SandboxUnavailable
        | RunRefusal::NoActiveRelease { active_environments: None }
        | RunRefusal::NothingToRun
        | RunRefusal::NotCancellable
        | RunRefusal::NotEnded
        | RunRefusal::AsyncUnavailable => ApiError::new(StatusCode::CONFLICT, code, refusal.to_string()),
    }
}

fn map_tool_refusal(refusal: ToolRefusal) -> ApiError {
    let (code, message) = (refusal.code(), refusal.to_string());
    match refusal {
        ToolRefusal::InvalidArguments(problems) => {
            let fields = problems.into_iter().map(|problem| {
                let path = truncate_path(field_path::from_pointer(ARGUMENTS, &problem.pointer));
                FieldProblem::new(path, problem.code, problem.message)
            });
            ApiError::validation(fields.collect())
        }
        ToolRefusal::ContractDenied => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message),
        ToolRefusal::EmbeddingMismatch => ApiError::new(StatusCode::CONFLICT, code, message),
        ToolRefusal::ResponseLost(id) => {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message).with_detail("execution_id", id.to_string())
        }
        ToolRefusal::ResponseMalformed(id) => {
            ApiError::new(StatusCode::BAD_GATEWAY, code, message).with_detail("execution_id", id.to_string())
        }
    }
}

fn map_review_refusal(refusal: ReviewRefusal) -> ApiError {
    let status = match refusal {
        ReviewRefusal::NotPending => StatusCode::CONFLICT,
        ReviewRefusal::OwnRun => StatusCode::FORBIDDEN,
    };
    ApiError::new(status, refusal.code(), refusal.to_string())
}
