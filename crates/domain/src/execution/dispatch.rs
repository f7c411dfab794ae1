//! Where runs run: while their caller waits, or in a line that workers take them from.

use super::{Acceptance, Execution, Payload};
use crate::{
    access::ActorRef,
    evidence::{RecordedDecision, SnapshotDigest},
    execution::{ports::AcceptedOn, progress::Progress},
    id::{ExecutionId, RequestId, ShareLinkId, TenantId},
    memory::SessionId,
    release::lane::Lane,
    tenant::TenantScope,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// How often a run may go on elsewhere after its worker fell silent. What ends so many workers ends the next one too.
pub const MOST_TAKEOVERS: u16 = 5;

/// What a deployment does with runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// The process that takes a request runs it. Nothing waits in line.
    Inline,
    /// Workers run everything.
    Queued,
    /// What its caller waits for runs where it was taken, everything else in line.
    Hybrid,
}

impl Dispatch {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Queued, Self::Hybrid];

    /// The spelling in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Queued => "queued",
            Self::Hybrid => "hybrid",
        }
    }

    /// The one of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dispatch| dispatch.as_str() == text)
    }

    /// Whether workers take runs at all.
    #[must_use]
    pub const fn has_workers(self) -> bool {
        match self {
            Self::Inline => false,
            Self::Queued | Self::Hybrid => true,
        }
    }

    /// Whether a run waits in line; `None` where this deployment has no line for those that ask for one.
    #[must_use]
    pub const fn queues(self, wanted: Wanted) -> Option<bool> {
        match (self, wanted) {
            (Self::Inline, Wanted::InLine) => None,
            (Self::Inline | Self::Hybrid, Wanted::AtOnce) => Some(false),
            (Self::Queued, Wanted::AtOnce | Wanted::InLine) | (Self::Hybrid, Wanted::InLine) => Some(true),
        }
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The end of the run, if it comes in time.
    AtOnce,
    /// To be let go as soon as the run is accepted.
    InLine,
}

/// Who sent a run, as far as the run's own row does not say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sender {
    /// The request that brought it.
    pub request_id: RequestId,
    /// The groups of its submitter.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The lane that it wants; a more general one serves it where that has no holder.
    pub lane: String,
    /// The conversation that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Sender {
    /// The lane that it wants.
    #[must_use]
    pub fn wanted_lane(&self) -> Lane {
        Lane::parse(&self.lane).unwrap_or(Lane::Standard)
    }

    /// The conversation that it is part of.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_deref().and_then(|session| SessionId::parse(session).ok())
    }

    /// The groups, as actors.
    #[must_use]
    pub fn groups(&self) -> Vec<ActorRef> {
        self.groups.iter().filter_map(|group| ActorRef::parse(group).ok()).collect()
    }
}

/// What a worker asks for when it has room.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The fencing token of what is taken. It names the claim.
    pub lease: Uuid,
    /// The tokens of earlier claims whose answers were lost: the runs that they took are taken again, first of all.
    pub lost: Vec<Uuid>,
    /// How long it is held unless renewed.
    pub lease_for: Duration,
    /// How long a run may take from now on.
    pub deadline_in: Duration,
    /// Most runs to take.
    pub most: u16,
    /// Most runs to take of one tenant.
    pub most_of_one: u16,
    /// The tenant that was taken from last: the next one's turn comes first.
    pub after: Option<TenantId>,
    /// Tenants that have enough here already, or too many runs that pause.
    pub sated: Vec<TenantId>,
    /// Inputs with a longer JSON text, in bytes, are large: they are left unread.
    pub max_input_bytes: usize,
    /// Whether queued runs with large inputs are taken.
    pub takes_large: bool,
    /// Tenants of which no queued run with large inputs is taken.
    pub no_large_of: Vec<TenantId>,
}

/// What was sent with a claimed run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimedInputs {
    /// The inputs.
    Read(Payload),
    /// The inputs are large: [`ExecutionStore::inputs`](super::ports::ExecutionStore::inputs) reads them.
    Unread,
    /// The inputs are erased.
    Erased,
}

/// A run that was taken out of the line, or over from a worker that fell silent.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Whose it is.
    pub scope: TenantScope,
    /// The run.
    pub execution: Execution,
    /// The governance chain under which it was accepted or began.
    pub snapshot: SnapshotDigest,
    /// What was sent.
    pub inputs: ClaimedInputs,
    /// Its digest.
    pub input_digest: [u8; 32],
    /// Who sent it.
    pub sender: Option<Sender>,
    /// The share link that let it in.
    pub share_link: Option<ShareLinkId>,
    /// The fencing token.
    pub lease: Uuid,
    /// What is left of its time; nothing where it is over.
    pub time_left: Duration,
    /// How often it was taken over from somebody who fell silent.
    pub takeovers: u16,
    /// How late in the round its tenant's turn was; 0 where it was nobody's turn, because it was taken over.
    pub turn: u16,
    /// Who asked that it be stopped.
    pub cancelled_by: Option<ActorRef>,
    /// What was decided of it, the first first.
    pub decisions: Vec<RecordedDecision>,
    /// How far it came.
    pub progress: Vec<Progress>,
}

/// What the start of a run that waited in line stores: what it runs under from now on.
#[derive(Clone, Debug)]
pub struct Start {
    /// The run, as it would be accepted now.
    pub acceptance: Acceptance,
    /// What must still be true.
    pub on: AcceptedOn,
    /// The fencing token.
    pub lease: Uuid,
    /// What happened first.
    pub progress: Progress,
    /// The share link that let it in, which must not have been revoked.
    pub share_link: Option<ShareLinkId>,
}

/// What became of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// The run has begun.
    Yes,
    /// Something it was decided on has moved.
    Moved,
}

/// Where a run stands that somebody wants to be stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopping {
    /// It waited in line and is the caller's to end, under the token that was given.
    Taken,
    /// Whoever works on it is told.
    Told,
    /// The idempotency key is known already.
    KeyTaken,
    /// It has ended, or nobody can stop it.
    Over,
}

/// A lease that somebody takes to end a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The run, and the token.
    pub held: Held,
    /// How long it is held unless renewed.
    pub lease_for: Duration,
    /// How long the run may take from now on.
    pub deadline_in: Duration,
}

/// A run and the token under which somebody works on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The run.
    pub execution_id: ExecutionId,
    /// The fencing token.
    pub lease: Uuid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_has_a_line_or_says_that_it_has_none() {
        let all = Dispatch::ALL.map(|dispatch| (dispatch.queues(Wanted::AtOnce), dispatch.queues(Wanted::InLine)));
        assert_eq!(all, [(Some(false), None), (Some(true), Some(true)), (Some(false), Some(true))]);
        for dispatch in Dispatch::ALL {
            assert_eq!(Dispatch::parse(dispatch.as_str()), Some(dispatch));
            assert_eq!(dispatch.has_workers(), dispatch.queues(Wanted::InLine).is_some());
        }
    }
}
