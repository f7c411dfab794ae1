//! The rollout pilot: a process of its own that goes on with rollouts once their lanes have soaked and went well.

use crate::{Failure, Services, once::ATTEMPTS};
use fairway_domain::{
    access::ActorRef,
    audit::Stamp,
    release::{
        advance::Advance,
        ports::{PlacedRelease, ReleaseOfTenant},
    },
    rollout::{Hold, Observed, Rollout},
    store::CommitError,
    tenant::TenantScope,
};
use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// How often the pilot looks around.
const EVERY: Duration = Duration::from_secs(1);
/// Rollouts of one look at the database.
const PAGE: u32 = 100;
/// The name under which the pilot acts.
const NAME: &str = "rollout-pilot";

/// What one look around did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piloted {
    /// Rollouts that went on.
    pub advanced: u64,
    /// Rollouts that hold.
    pub held: u64,
}

/// Rounds in a row that fail before the pilot looks for its database anew.
const LOST: u32 = 5;

/// Why a pilot has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landed {
    /// It was told to.
    Told,
    /// The database has not answered for some time.
    Lost,
}

/// Goes on with rollouts until it is told to stop, or the database is lost; what it began it ends. Any number of pilots may
/// do so at once: each step is taken once.
pub async fn pilot_until(services: &Services, mut told_to_stop: Pin<&mut impl Future<Output = ()>>) -> Landed {
    let mut failed = 0_u32;
    let stopping = AtomicBool::new(false);
    loop {
        let mut round = pin!(services.pilot_round(&stopping));
        let (piloted, stopped) = tokio::select! {
            piloted = &mut round => (piloted, false),
            () = &mut told_to_stop => {
                stopping.store(true, Ordering::Relaxed);
                (round.await, true)
            }
        };
        match piloted {
            Ok(Piloted { advanced: 0, .. }) => {}
            Ok(Piloted { advanced, held }) => tracing::info!(advanced, held, "rollouts went on"),
            Err(ref error) => {
                tracing::warn!(error = error as &dyn std::error::Error, "rollouts could not be looked through");
            }
        }
        failed = if piloted.is_ok() { 0 } else { failed.saturating_add(1) };
        if stopped {
            return Landed::Told;
        }
        if failed >= LOST {
            return Landed::Lost;
        }
        tokio::select! {
            () = &mut told_to_stop => return Landed::Told,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

impl Services {
    /// Looks once at every rollout whose lane has soaked.
    ///
    /// # Errors
    /// When the stores do not answer. A rollout that cannot be moved for other reasons hinders no other.
    pub async fn pilot_rollouts(&self) -> Result<Piloted, Failure> {
        self.pilot_round(&AtomicBool::new(false)).await
    }

    async fn pilot_round(&self, stopping: &AtomicBool) -> Result<Piloted, Failure> {
        let (mut piloted, mut after) = (Piloted::default(), None);
        loop {
            let page = self.stores.rollouts.soaked(after, PAGE).await?;
            for due in &page {
                if stopping.load(Ordering::Relaxed) {
                    return Ok(piloted);
                }
                match self.pilot(*due).await {
                    Ok(Turn::Advanced) => piloted.advanced += 1,
                    Ok(Turn::Held) => piloted.held += 1,
                    Ok(Turn::Passed) => {}
                    Err(error @ Failure::Store(_)) => return Err(error),
                    Err(error) => {
                        let (release, error) = (due.release, &error as &dyn std::error::Error);
                        tracing::warn!(%release, error, "a rollout could not be looked at");
                    }
                }
            }
            after = page.last().copied();
            if after.is_none() {
                return Ok(piloted);
            }
        }
    }

    async fn pilot(&self, due: ReleaseOfTenant) -> Result<Turn, Failure> {
        let scope = TenantScope::for_relay(due.tenant);
        for _ in 0..ATTEMPTS {
            let Some(seen) = self.stores.releases.find(scope, due.release).await? else { return Ok(Turn::Passed) };
            let (Some(rollout), Some(observed)) = (&seen.release.rollout, self.observe(scope, &seen).await?) else {
                return Ok(Turn::Passed);
            };
            if let Some(turn) = self.take_turn(scope, &seen, (rollout, &observed)).await? {
                return Ok(turn);
            }
        }
        // Others are at it; there is another look in a moment.
        Ok(Turn::Passed)
    }

    /// One try; none when somebody moved the release meanwhile.
    async fn take_turn(
        &self,
        scope: TenantScope,
        seen: &PlacedRelease,
        (rollout, observed): (&Rollout, &Observed),
    ) -> Result<Option<Turn>, Failure> {
        if let Some(hold) = rollout.hold(observed) {
            return self.say_hold(scope, seen, hold).await;
        }
        if !rollout.is_due(observed) {
            return Ok(Some(Turn::Passed));
        }
        let by = Advance::Pilot(observed.lane);
        let advanced = self.advance(scope, seen, by, &self.pilot_stamp(), None).await?;
        Ok(advanced.map(|_| Turn::Advanced))
    }

    async fn say_hold(&self, scope: TenantScope, seen: &PlacedRelease, hold: Hold) -> Result<Option<Turn>, Failure> {
        let Some(change) = seen.release.hold(hold, &self.pilot_stamp()) else { return Ok(Some(Turn::Held)) };
        match self.stores.rollouts.commit_hold(scope, change).await {
            Err(CommitError::Stale) => Ok(None),
            said => {
                said?;
                Ok(Some(Turn::Held))
            }
        }
    }

    fn pilot_stamp(&self) -> Stamp {
        Stamp { fact_id: self.id(), at: self.clock.now(), actor: ActorRef::system(NAME), request_id: self.id() }
    }
}

/// What became of one rollout.
enum Turn {
    Advanced,
    Held,
    Passed,
}
