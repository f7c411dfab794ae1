//! The recipients of a fact: the owner of its subject, the actor concerned, and the people who act on it.

use crate::{
    access::{ActorKind, ActorRef, Rights},
    notification::{
        projection::{NotifiableFact, SubjectContext},
        rule::NotificationRule,
    },
};
use std::collections::BTreeMap;

/// The maximum number of recipients of one fact. The owner and the actor concerned come first.
pub const MAX_RECIPIENTS: usize = 1_000;

/// The rights of everybody whom the facts of a batch can concern.
#[derive(Clone, Debug, Default)]
pub struct RecipientRights {
    /// Rights by actor.
    pub rights: BTreeMap<ActorRef, Rights>,
}

/// The recipients of one fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipients {
    /// At most [`MAX_RECIPIENTS`], without repetition.
    pub actors: Vec<ActorRef>,
    /// The number of further people who would have been recipients.
    pub cut: usize,
}

/// Whether the actor can have an inbox.
const fn has_inbox(actor: &ActorRef) -> bool {
    match actor.kind() {
        ActorKind::User | ActorKind::Service => true,
        ActorKind::Group | ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => false,
    }
}

/// The recipients of a fact. Each of them may see its subject at this time.
#[must_use]
pub fn recipients(
    fact: &NotifiableFact,
    subject: &SubjectContext,
    rule: &NotificationRule,
    directory: &RecipientRights,
) -> Recipients {
    if let Some(announcement) = &subject.announcement {
        return cut(announcement.audience.iter().filter(|actor| has_inbox(actor)).cloned().collect());
    }
    let rights_of = |actor: &ActorRef| directory.rights.get(actor);
    let may_see = |actor: &ActorRef| {
        let is_submitter = subject.submitter.as_ref() == Some(actor);
        is_submitter || rights_of(actor).is_some_and(|rights| rights.allow(rule.view, &subject.position))
    };
    let mut actors: Vec<ActorRef> = Vec::new();
    for actor in concerned(fact, subject) {
        if has_inbox(actor) && may_see(actor) && !actors.contains(actor) {
            actors.push(actor.clone());
        }
    }
    let first = actors.clone();
    let acting = directory.rights.iter().filter(|(actor, rights)| {
        has_inbox(actor)
            && rule.acting.is_some_and(|acting| rights.allow(acting, &subject.position))
            && rights.allow(rule.view, &subject.position)
            && !first.contains(actor)
    });
    actors.extend(acting.map(|(actor, _)| actor.clone()));
    cut(actors)
}

fn cut(mut actors: Vec<ActorRef>) -> Recipients {
    let cut = actors.len().saturating_sub(MAX_RECIPIENTS);
    actors.truncate(MAX_RECIPIENTS);
    Recipients { actors, cut }
}

/// The owner of the subject or the people of its team, and the actors concerned: who submitted the run or drafted the release, else who caused the
/// fact.
fn concerned<'a>(fact: &'a NotifiableFact, subject: &'a SubjectContext) -> impl Iterator<Item = &'a ActorRef> {
    let author = subject.submitter.as_ref().or(subject.author.as_ref()).unwrap_or(&fact.actor);
    subject.owner.iter().chain(&subject.owner_team).chain([author])
}
