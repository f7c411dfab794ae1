//! Share links: a token that opens one workload to whoever holds it, for a time and a number of runs.

mod token;

use crate::{
    access::{ActorKind, ActorRef},
    audit::{Fact, FactKind, Stamp, Subject},
    id::{ExecutionId, ShareLinkId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, CommitError, Listed, Paging, StoreError},
    tenant::TenantScope,
    text::is_name,
    time::Timestamp,
    workload::Workload,
};
use async_trait::async_trait;
use serde_json::json;
use std::ops::RangeInclusive;
pub use token::{ResultToken, ShareToken, TokenHash};

/// How long a link may live, in hours.
pub const TTL_HOURS: RangeInclusive<u32> = 1..=720;
/// How long it lives where nobody says.
pub const DEFAULT_TTL_HOURS: u32 = 24;
/// How many runs a link may be good for.
pub const MAX_USES: RangeInclusive<u32> = 1..=10_000;
/// How many it is good for where nobody says.
pub const DEFAULT_MAX_USES: u32 = 1;
/// Longest label, in characters.
pub const LONGEST_LABEL: usize = 200;

/// A share link as it is read back. Its token is not among what is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareLink {
    /// Its identifier.
    pub share_link_id: ShareLinkId,
    /// What it opens.
    pub workload_id: WorkloadId,
    /// For those who manage it.
    pub label: Option<String>,
    /// The lane that serves its runs; `None` for none of its own.
    pub lane: Option<Lane>,
    /// Runs that it is good for.
    pub max_uses: u32,
    /// Runs that were accepted with it. INVARIANT: never more than `max_uses`.
    pub use_count: u32,
    /// When it ends, by the database's clock.
    pub expires_at: Timestamp,
    /// Whether it was taken back.
    pub revoked: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// A link to make. When it ends is the store's to say, by its own clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewShareLink {
    /// Its identifier.
    pub share_link_id: ShareLinkId,
    /// What it opens.
    pub workload_id: WorkloadId,
    /// What its maker wants of it.
    pub terms: ShareTerms,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: ActorRef,
}

/// What the maker of a link wants of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareTerms {
    /// How long it lives, in hours.
    pub ttl_hours: u32,
    /// Runs that it is good for.
    pub max_uses: u32,
    /// For those who manage it.
    pub label: Option<String>,
    /// The lane that serves its runs.
    pub lane: Option<Lane>,
}

impl ShareTerms {
    /// Everything that is wrong with them.
    pub fn refusals(&self) -> impl Iterator<Item = ShareTermsRefusal> {
        let label = self.label.as_deref().is_some_and(|label| !is_name(label, LONGEST_LABEL));
        let refusals = [
            (!TTL_HOURS.contains(&self.ttl_hours), ShareTermsRefusal::TtlHours),
            (!MAX_USES.contains(&self.max_uses), ShareTermsRefusal::MaxUses),
            (label, ShareTermsRefusal::Label),
        ];
        refusals.into_iter().filter_map(|(is_wrong, refusal)| is_wrong.then_some(refusal))
    }
}

/// Why a link cannot be made as it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShareTermsRefusal {
    /// It would live too long or not at all.
    #[error("a share link lives 1 to 720 hours")]
    TtlHours,
    /// It would be good for too many runs or for none.
    #[error("a share link is good for 1 to 10000 runs")]
    MaxUses,
    /// The label is no name.
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

    /// The field that it is about.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::TtlHours => "ttl_hours",
            Self::MaxUses => "max_uses",
            Self::Label => "label",
        }
    }
}

/// Why a token opens nothing. Of several reasons the first in this order is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The workload is reached by share links alone, and there is no token.
    #[error("this workload is reached by a share link")]
    Required,
    /// No link has this token, or it opens another workload.
    #[error("this share token opens nothing here")]
    Invalid,
    /// The link was taken back.
    #[error("this share link was revoked")]
    Revoked,
    /// Its time is over.
    #[error("this share link has expired")]
    Expired,
    /// It is used up: it starts no run any more.
    #[error("this share link is used up")]
    Exhausted,
}

impl TokenRefusal {
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

/// A link as it stood when the store looked at it: nothing of this is true any longer than the request that asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenLink {
    /// The link.
    pub link: ShareLink,
    /// Whether its time was over, by the database's clock.
    pub expired: bool,
    /// The hash of its token.
    pub hash: TokenHash,
}

impl SeenLink {
    /// Whether the link opens its workload.
    ///
    /// # Errors
    /// When it was revoked, or has expired.
    pub const fn is_open(&self) -> Result<(), TokenRefusal> {
        match (self.link.revoked, self.expired) {
            (true, _) => Err(TokenRefusal::Revoked),
            (false, true) => Err(TokenRefusal::Expired),
            (false, false) => Ok(()),
        }
    }

    /// Whether it also starts a run.
    ///
    /// # Errors
    /// As [`Self::is_open`]; besides when it is used up.
    pub fn starts_a_run(&self) -> Result<(), TokenRefusal> {
        self.is_open()?;
        if self.link.use_count < self.link.max_uses { Ok(()) } else { Err(TokenRefusal::Exhausted) }
    }
}

impl NewShareLink {
    /// Makes a link to a workload.
    ///
    /// # Errors
    /// When it is wanted for longer, for more runs or under another label than is allowed.
    pub fn create(
        share_link_id: ShareLinkId,
        workload: &Workload,
        terms: ShareTerms,
        stamp: &Stamp,
    ) -> Result<Change<Self>, ShareTermsRefusal> {
        if let Some(refusal) = terms.refusals().next() {
            return Err(refusal);
        }
        // Neither the token nor its hash, and no label: people write that.
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
        Ok(Change::creating(next, fact))
    }

    /// The link as it is read back, with the end that the store gave it.
    #[must_use]
    pub fn kept(self, expires_at: Timestamp) -> ShareLink {
        let Self { share_link_id, workload_id, terms, created_at, created_by } = self;
        let ShareTerms { ttl_hours: _, max_uses, label, lane } = terms;
        let (use_count, revoked) = (0, false);
        ShareLink {
            share_link_id,
            workload_id,
            label,
            lane,
            max_uses,
            use_count,
            expires_at,
            revoked,
            created_at,
            created_by,
        }
    }
}

impl ShareLink {
    /// Who holds it, as an actor.
    #[must_use]
    pub fn holder(&self) -> ActorRef {
        ActorRef::share_link(self.share_link_id)
    }

    /// The fact that it was taken back.
    #[must_use]
    pub fn revocation(&self, workload: &Workload, stamp: &Stamp) -> Fact {
        let detail = json!({ "workload_id": workload.workload_id });
        fact(FactKind::ShareLinkRevoked, self.share_link_id, workload, stamp, detail)
    }
}

fn fact(kind: FactKind, id: ShareLinkId, workload: &Workload, stamp: &Stamp, detail: serde_json::Value) -> Fact {
    let subject = Subject { kind: "share_link", id: id.uuid() };
    Fact::new(kind, subject, Some(workload.workspace_id), stamp, detail)
}

/// Whether an actor is somebody without a name of its own: it is shown of a run what it started, and no more.
#[must_use]
pub const fn is_guest(kind: ActorKind) -> bool {
    match kind {
        ActorKind::ShareLink | ActorKind::Anonymous => true,
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => false,
    }
}

/// Keeps share links. What is asked of them is never answered out of a cache: a link that was taken back opens nothing
/// from then on.
#[async_trait]
pub trait ShareLinkStore: Send + Sync {
    /// One link of a workload.
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<Option<SeenLink>, StoreError>;
    /// The link that has this token.
    async fn find_by_token(&self, scope: TenantScope, hash: &TokenHash) -> Result<Option<SeenLink>, StoreError>;
    /// A page of a workload's links, newest first.
    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: Paging,
    ) -> Result<Listed<ShareLink>, StoreError>;
    /// Stores a link with the hash of its token, and answers when it ends. Stale when the workload is retired.
    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewShareLink>,
        hash: &TokenHash,
        key: Option<&KeyedOutcome>,
    ) -> Result<Timestamp, CommitError>;
    /// Takes a link back. Stale when it was taken back already.
    async fn commit_revocation(&self, scope: TenantScope, seen: &ShareLink, fact: Fact) -> Result<(), CommitError>;
    /// Whether a run was accepted with a link that has been taken back since: whoever starts it later must not.
    async fn is_run_revoked(&self, scope: TenantScope, run: ExecutionId) -> Result<bool, StoreError>;
    /// The hash of a run's result token; `None` where it has none.
    async fn result_token(&self, scope: TenantScope, run: ExecutionId) -> Result<Option<TokenHash>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn seen(revoked: bool, expired: bool, use_count: u32) -> SeenLink {
        let at = Timestamp::new(time::OffsetDateTime::UNIX_EPOCH);
        let link = ShareLink {
            share_link_id: Uuid::from_u128(1).into(),
            workload_id: Uuid::from_u128(2).into(),
            label: None,
            lane: None,
            max_uses: 2,
            use_count,
            expires_at: at,
            revoked,
            created_at: at,
            created_by: ActorRef::local(),
        };
        SeenLink { link, expired, hash: TokenHash::new([0; 32]) }
    }

    #[test]
    fn of_several_reasons_the_first_is_told() {
        use TokenRefusal::{Exhausted, Expired, Revoked};
        for (revoked, expired, uses, open, runs) in [
            (false, false, 0, Ok(()), Ok(())),
            (false, false, 1, Ok(()), Ok(())),
            (false, false, 2, Ok(()), Err(Exhausted)),
            (false, true, 2, Err(Expired), Err(Expired)),
            (true, false, 2, Err(Revoked), Err(Revoked)),
            (true, true, 2, Err(Revoked), Err(Revoked)),
            (true, true, 0, Err(Revoked), Err(Revoked)),
        ] {
            let seen = seen(revoked, expired, uses);
            assert_eq!((seen.is_open(), seen.starts_a_run()), (open, runs), "{seen:?}");
        }
        assert_eq!(seen(false, false, 0).link.holder().to_string(), format!("share_link:{}", Uuid::from_u128(1)));
    }
}
