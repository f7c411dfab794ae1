//! The recipients of a fact: the owner of its subject, the actor that the fact concerns, and the people who must act on
//! it.

use crate::{
    access::{ActorKind, ActorRef, Rights},
    notification::{
        projection::{NotifiableFact, SubjectContext},
        rule::NotificationRule,
    },
};
use std::collections::BTreeMap;

/// The maximum number of recipients of one fact. The owner and the concerned actor have precedence over other
/// recipients.
pub const MAX_RECIPIENTS: usize = 1_000;

/// The rights of all people whom the facts of a batch can concern.
#[derive(Clone, Debug, Default)]
pub struct RecipientRights {
    /// The rights of each person.
    pub rights: BTreeMap<ActorRef, Rights>,
}

/// The people who are notified of one fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipients {
    /// The recipients without duplicates; at most [`MAX_RECIPIENTS`].
    pub actors: Vec<ActorRef>,
    /// The number of people whom the limit left out.
    pub omitted: usize,
}

/// Whether this actor can have an inbox: people and services can.
const fn has_inbox(actor: &ActorRef) -> bool {
    match actor.kind() {
        ActorKind::User | ActorKind::Service => true,
        ActorKind::Group | ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => false,
    }
}

/// Selects the recipients of a fact. Each of them may see the subject now.
#[must_use]
pub fn select_recipients(
    fact: &NotifiableFact,
    subject: &SubjectContext,
    rule: &NotificationRule,
    recipient_rights: &RecipientRights,
) -> Recipients {
    if let Some(announcement) = &subject.announcement {
        return limit_recipients(announcement.audience.iter().filter(|actor| has_inbox(actor)).cloned().collect());
    }
    let rights_of = |actor: &ActorRef| recipient_rights.rights.get(actor);
    let may_see = |actor: &ActorRef| {
        let is_submitter = subject.submitter.as_ref() == Some(actor);
        is_submitter || rights_of(actor).is_some_and(|rights| rights.allow(rule.view_permission, &subject.position))
    };
    let mut actors: Vec<ActorRef> = Vec::new();
    for actor in concerned(fact, subject) {
        if has_inbox(actor) && may_see(actor) && !actors.contains(actor) {
            actors.push(actor.clone());
        }
    }
    let concerned_actors = actors.clone();
    let acting_entries = recipient_rights.rights.iter().filter(|(actor, rights)| {
        has_inbox(actor)
            && rule.acting_permission.is_some_and(|permission| rights.allow(permission, &subject.position))
            && rights.allow(rule.view_permission, &subject.position)
            && !concerned_actors.contains(actor)
    });
    actors.extend(acting_entries.map(|(actor, _)| actor.clone()));
    limit_recipients(actors)
}

fn limit_recipients(mut actors: Vec<ActorRef>) -> Recipients {
    let omitted = actors.len().saturating_sub(MAX_RECIPIENTS);
    actors.truncate(MAX_RECIPIENTS);
    Recipients { actors, omitted }
}

/// The owner or the people of the owning team, and the concerned actor. The concerned actor is the submitter of the run
/// or the author of the release; for other subjects, it is the actor of the fact.
fn concerned<'a>(fact: &'a NotifiableFact, subject: &'a SubjectContext) -> impl Iterator<Item = &'a ActorRef> {
    let concerned_actor = subject.submitter.as_ref().or(subject.author.as_ref()).unwrap_or(&fact.actor);
    subject.owner.iter().chain(&subject.owner_team).chain([concerned_actor])
}
