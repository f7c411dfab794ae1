//! Share links: revocable bearer tokens, each of which opens one workload for a limited time and number of runs.

mod bearer_tokens;

use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{ExecutionId, ShareLinkId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, CommitError, Page, PageRequest, StoreError, aggregate},
    tenant::TenantScope,
    text::is_name,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
pub use bearer_tokens::{ResultToken, ShareToken, TokenHash};
use serde_json::json;
use std::ops::RangeInclusive;

/// The lifetimes that a share link may have, in hours.
pub const ALLOWED_TTL_HOURS: RangeInclusive<u32> = 1..=720;
/// The default lifetime of a share link, in hours.
pub const DEFAULT_TTL_HOURS: u32 = 24;
/// The limits on the number of runs that a share link may have.
pub const ALLOWED_MAX_USES: RangeInclusive<u32> = 1..=10_000;
/// The default limit on the number of runs of a share link.
pub const DEFAULT_MAX_USES: u32 = 1;
/// The maximum length of a share link's label, in characters.
pub const MAX_LABEL_CHARS: usize = 200;

/// A stored share link, without its token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareLink(pub(crate) ShareLinkRecord);

/// The fields of [`ShareLink`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareLinkRecord {
    /// The identifier by which managers read and revoke the link.
    pub share_link_id: ShareLinkId,
    /// The workload that the link opens.
    pub workload_id: WorkloadId,
    /// The label by which managers recognize the link, if it has one.
    pub label: Option<String>,
    /// The lane that serves the runs of the link; `None` selects the lane as for a request without a link.
    pub lane: Option<Lane>,
    /// The maximum number of runs of the link.
    pub max_uses: u32,
    /// The number of runs that were accepted with the link. INVARIANT: at most `max_uses`.
    pub use_count: u32,
    /// When the link expires, by the clock of the database.
    pub expires_at: Timestamp,
    /// Whether a manager revoked the link.
    pub is_revoked: bool,
    /// When the link was created.
    pub created_at: Timestamp,
    /// The actor that created the link.
    pub created_by: ActorRef,
}

aggregate!(ShareLink, ShareLinkRecord);

/// A share link to create. The store computes its expiry by the clock of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewShareLink {
    /// The identifier that the link receives.
    pub share_link_id: ShareLinkId,
    /// The workload that the link opens.
    pub workload_id: WorkloadId,
    /// Lifetime, number of runs, label and lane, as requested.
    pub terms: ShareTerms,
    /// When the link is created.
    pub created_at: Timestamp,
    /// The actor that creates the link.
    pub created_by: ActorRef,
}

/// The terms that a request chooses for a share link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareTerms {
    /// The lifetime of the link, in hours.
    pub ttl_hours: u32,
    /// The maximum number of runs that the link can start.
    pub max_uses: u32,
    /// The label by which managers recognize the link, if any.
    pub label: Option<String>,
    /// The lane that serves the runs of the link; `None` selects the lane as for a request without a link.
    pub lane: Option<Lane>,
}

impl ShareTerms {
    /// All problems of the requested terms.
    pub fn refusals(&self) -> impl Iterator<Item = ShareTermsRefusal> {
        let has_invalid_label = self.label.as_deref().is_some_and(|label| !is_name(label, MAX_LABEL_CHARS));
        let refusals = [
            (!ALLOWED_TTL_HOURS.contains(&self.ttl_hours), ShareTermsRefusal::TtlHours),
            (!ALLOWED_MAX_USES.contains(&self.max_uses), ShareTermsRefusal::MaxUses),
            (has_invalid_label, ShareTermsRefusal::Label),
        ];
        refusals.into_iter().filter_map(|(is_wrong, refusal)| is_wrong.then_some(refusal))
    }
}

/// The reason why the requested terms are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShareTermsRefusal {
    /// The lifetime is out of range.
    #[error("a share link is valid for 1 to 720 hours")]
    TtlHours,
    /// The number of runs is out of range.
    #[error("a share link allows 1 to 10000 runs")]
    MaxUses,
    /// The label is not one line of visible characters, or is too long.
    #[error("a label is one line of 1 to 200 visible characters")]
    Label,
}

impl ShareTermsRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TtlHours | Self::MaxUses => "out_of_bounds",
            Self::Label => "invalid_label",
        }
    }

    /// The field of the request that the refusal concerns.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::TtlHours => "ttl_hours",
            Self::MaxUses => "max_uses",
            Self::Label => "label",
        }
    }
}

/// The reason why a share token is refused. If several reasons apply, the first in the order of declaration is
/// reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShareTokenRefusal {
    /// The workload requires a share link, but the request presents no token.
    #[error("this workload requires a share link")]
    Required,
    /// No link has this token, or the link opens another workload.
    #[error("this share token is not valid here")]
    Invalid,
    /// The link was revoked.
    #[error("this share link was revoked")]
    Revoked,
    /// The link has expired.
    #[error("this share link has expired")]
    Expired,
    /// The link has reached its maximum number of runs.
    #[error("this share link is used up")]
    Exhausted,
}

impl ShareTokenRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Required => "share_token_required",
            Self::Invalid => "share_token_invalid",
            Self::Revoked => "share_token_revoked",
            Self::Expired => "share_token_expired",
            Self::Exhausted => "share_token_exhausted",
        }
    }
}

/// A share link as one query read it. It may be used only for the current request, because the link may be revoked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareLinkSnapshot {
    /// The stored share link.
    pub link: ShareLink,
    /// Whether the link had expired by the clock of the database when it was read.
    pub is_expired: bool,
    /// The hash of the link's token.
    pub hash: TokenHash,
}

impl ShareLinkSnapshot {
    /// Checks that the link is open.
    ///
    /// # Errors
    /// When the link was revoked or has expired.
    pub const fn check_open(&self) -> Result<(), ShareTokenRefusal> {
        match (self.link.0.is_revoked, self.is_expired) {
            (true, _) => Err(ShareTokenRefusal::Revoked),
            (false, true) => Err(ShareTokenRefusal::Expired),
            (false, false) => Ok(()),
        }
    }

    /// Checks that the link can start another run.
    ///
    /// # Errors
    /// The errors of [`Self::check_open`]; also when the link has no runs left.
    pub fn check_can_start_run(&self) -> Result<(), ShareTokenRefusal> {
        self.check_open()?;
        if self.link.use_count < self.link.max_uses { Ok(()) } else { Err(ShareTokenRefusal::Exhausted) }
    }
}

impl NewShareLink {
    /// Creates a share link to a workload.
    ///
    /// # Errors
    /// When one of the terms is invalid.
    pub fn create(
        share_link_id: ShareLinkId,
        workload: &Workload,
        terms: ShareTerms,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ShareTermsRefusal> {
        if let Some(refusal) = terms.refusals().next() {
            return Err(refusal);
        }
        // The fact omits the token and its hash. It also omits the label, because a label is free text.
        let detail = json!({
            "workload_id": workload.workload_id,
            "ttl_hours": terms.ttl_hours,
            "max_uses": terms.max_uses,
            "lane": terms.lane,
        });
        let fact = fact(FactKind::ShareLinkCreated, share_link_id, workload, stamp, detail);
        let next = Self {
            share_link_id,
            workload_id: workload.workload_id,
            terms,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
        };
        Ok(Change::create(next, fact))
    }

    /// Converts the new link to the stored link, with the expiry that the store computed.
    #[must_use]
    pub fn into_stored(self, expires_at: Timestamp) -> ShareLink {
        let Self { share_link_id, workload_id, terms, created_at, created_by } = self;
        let ShareTerms { ttl_hours: _, max_uses, label, lane } = terms;
        let (use_count, is_revoked) = (0, false);
        ShareLink(ShareLinkRecord {
            share_link_id,
            workload_id,
            label,
            lane,
            max_uses,
            use_count,
            expires_at,
            is_revoked,
            created_at,
            created_by,
        })
    }
}

impl ShareLink {
    /// The actor to whom the actions of the link's holder are attributed.
    #[must_use]
    pub fn holder(&self) -> ActorRef {
        ActorRef::share_link(self.share_link_id)
    }

    /// The fact that the link was revoked.
    #[must_use]
    pub fn revocation_fact(&self, workload: &Workload, stamp: &Stamp) -> Fact {
        let detail = json!({ "workload_id": workload.workload_id });
        fact(FactKind::ShareLinkRevoked, self.share_link_id, workload, stamp, detail)
    }
}

fn fact(kind: FactKind, id: ShareLinkId, workload: &Workload, stamp: &Stamp, detail: serde_json::Value) -> Fact {
    let subject = FactSubject { kind: "share_link", id: id.uuid() };
    Fact::new(kind, subject, Some(workload.workspace_id), stamp, detail)
}

/// Whether an actor of this kind is a guest, that is, has no identity. A guest can read only the runs that it started.
#[must_use]
pub const fn is_guest(kind: ActorKind) -> bool {
    match kind {
        ActorKind::ShareLink | ActorKind::Anonymous => true,
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => false,
    }
}

/// Stores share links. Each request reads them from the store, so that a revocation takes effect immediately.
#[async_trait]
pub trait ShareLinkStore: Send + Sync {
    /// Finds a link by its identifier, if it belongs to the workload.
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError>;
    /// Finds a link by the hash of its token.
    async fn find_by_token(
        &self,
        scope: TenantScope,
        hash: &TokenHash,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError>;
    /// Lists a page of a workload's links, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<ShareLink>, StoreError>;
    /// Stores a link with the hash of its token, and returns the expiry of the link. Fails with `Stale` if the workload
    /// is retired.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewShareLink>,
        hash: &TokenHash,
        key: Option<&KeyedOutcome>,
    ) -> Result<Timestamp, CommitError>;
    /// Revokes a link. Fails with `Stale` if the link is already revoked.
    async fn commit_revocation(&self, scope: TenantScope, link: &ShareLink, fact: Fact) -> Result<(), CommitError>;
    /// Whether a run was accepted with a link that has been revoked since. If the run is still queued, it must not
    /// start.
    async fn is_run_revoked(&self, scope: TenantScope, run: ExecutionId) -> Result<bool, StoreError>;
    /// Finds the hash of a run's result token; `None` if the run has none.
    async fn result_token(&self, scope: TenantScope, run: ExecutionId) -> Result<Option<TokenHash>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn snapshot(revoked: bool, expired: bool, use_count: u32) -> ShareLinkSnapshot {
        let at = Timestamp::new(time::OffsetDateTime::UNIX_EPOCH);
        let link = ShareLink(ShareLinkRecord {
            share_link_id: Uuid::from_u128(1).into(),
            workload_id: Uuid::from_u128(2).into(),
            label: None,
            lane: None,
            max_uses: 2,
            use_count,
            expires_at: at,
            is_revoked: revoked,
            created_at: at,
            created_by: ActorRef::local(),
        });
        ShareLinkSnapshot { link, is_expired: expired, hash: TokenHash::from_hash_bytes([0; 32]) }
    }

    #[test]
    fn reports_first_refusal_reason() {
        use ShareTokenRefusal::{Exhausted, Expired, Revoked};
        for (revoked, expired, uses, open, runs) in [
            (false, false, 0, Ok(()), Ok(())),
            (false, false, 1, Ok(()), Ok(())),
            (false, false, 2, Ok(()), Err(Exhausted)),
            (false, true, 2, Err(Expired), Err(Expired)),
            (true, false, 2, Err(Revoked), Err(Revoked)),
            (true, true, 2, Err(Revoked), Err(Revoked)),
            (true, true, 0, Err(Revoked), Err(Revoked)),
        ] {
            let link_snapshot = snapshot(revoked, expired, uses);
            assert_eq!(
                (link_snapshot.check_open(), link_snapshot.check_can_start_run()),
                (open, runs),
                "{link_snapshot:?}"
            );
        }
        assert_eq!(snapshot(false, false, 0).link.holder().to_string(), format!("share_link:{}", Uuid::from_u128(1)));
    }
}
