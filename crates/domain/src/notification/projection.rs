//! The projection of a fact: its notifications as a pure function of the fact, its subject, the people and their
//! preferences.

mod settings_turned_on_at;
mod suppressed_decision;

pub use settings_turned_on_at::SettingsTurnedOnAt;
pub use suppressed_decision::SuppressedDecision;

use crate::{
    access::{ActorKind, ActorRef, ResourcePosition, Role},
    audit::{Fact, FactKind},
    id::{FactId, NotificationId, RequestId, TenantId, WorkloadId, WorkspaceId},
    notification::{
        Channel, Severity, Tier,
        console_link::console_path,
        delivery::{DeliveryError, DeliveryTarget, NewDelivery},
        derived_identifier::{EventKey, digest_delivery_id},
        destination::ActiveDestination,
        digest::DigestFrequency,
        inbox::{InboxStatus, Notification, NotificationRecord},
        preference::{
            DefaultPreferences, DeliveryDecision, NotificationSettings, PreferenceLayers, PreferenceScope,
            PreferenceSet,
        },
        profile::ProfileSettings,
        recipient::{RecipientRights, Recipients, select_recipients},
        rule::rule_for,
        text::title_and_body,
    },
    notification_category::NotificationCategory,
    slug::Slug,
    store::Revision,
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use suppressed_decision::suppressed_decision;
use uuid::Uuid;

/// The name of the system actor to which the projector's facts are attributed.
pub const PROJECTOR_ACTOR: &str = "notifier";
/// The length of an hour in milliseconds. Denials of unidentified callers for one workload within an hour collapse into
/// one event.
const HOUR_MILLIS: u64 = 60 * 60 * 1_000;

/// A fact with notification categories, and its index in the audit log.
#[derive(Clone, PartialEq, Debug)]
pub struct NotifiableFact {
    /// The index of the fact in the tenant's audit log.
    pub index: u64,
    /// The identifier of the fact.
    pub fact_id: FactId,
    /// The kind of the fact.
    pub kind: FactKind,
    /// The kind of the resource that the fact is about.
    pub subject_kind: String,
    /// The identifier of the resource that the fact is about.
    pub subject_id: Uuid,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The actor to whom the fact is attributed.
    pub actor: ActorRef,
    /// The identifier of the request that caused the fact.
    pub request_id: RequestId,
    /// The time at which the fact occurred.
    pub occurred_at: Timestamp,
    /// The notification categories of the fact; at least one.
    pub categories: Vec<NotificationCategory>,
    /// The codes, identifiers and digests that the fact contains.
    pub detail: Map<String, Value>,
}

/// Data about the subject of a fact, as the projector reads it at the time of the projection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectContext {
    /// The slug of the workload or asset, if the subject has one.
    pub name: Option<String>,
    /// The owner of the subject, if the owner is a person.
    pub owner: Option<ActorRef>,
    /// The people of the team that owns the subject. Their newest token or sign-in listed the group of the team.
    pub owner_team: Vec<ActorRef>,
    /// The submitter, if the subject is a run.
    pub submitter: Option<ActorRef>,
    /// The author, if the subject is a release.
    pub author: Option<ActorRef>,
    /// The workload to which the subject belongs, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment to which the subject belongs, if any.
    pub environment: Option<String>,
    /// The resource position at which the roles and permissions of people are checked.
    pub position: ResourcePosition,
    /// The announcement, if the subject is one.
    pub announcement: Option<AnnouncementContext>,
}

/// The text and the audience of an announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncementContext {
    /// The title, which is one line of text.
    pub title: String,
    /// The body, which can have several lines.
    pub body: String,
    /// The roles of the audience; empty for any role.
    pub roles: Vec<Role>,
    /// The people of the audience. The list ends after one entry more than [`super::recipient::MAX_RECIPIENTS`].
    pub audience: Vec<ActorRef>,
}

/// The possible receivers of a batch of facts: destinations, and people with their preferences and mailboxes.
#[derive(Clone, Debug)]
pub struct CandidateReceivers {
    /// The preference sets that can decide about the facts of the batch, by person.
    pub sets: HashMap<ActorRef, Vec<PreferenceSet>>,
    /// The default profiles of the tenant's roles; `None` if an administrator never set any.
    pub profiles: Option<DefaultPreferences>,
    /// The current notification settings of the tenant.
    pub switches: NotificationSettings,
    /// The times at which the notification settings were turned on.
    pub turned_on: SettingsTurnedOnAt,
    /// The tenant to which the facts belong.
    pub tenant: TenantId,
    /// The generation of the notification settings, which increases when a setting is turned off.
    pub generation: u64,
    /// The enabled destinations that the facts of the batch can reach.
    pub destinations: Vec<ActiveDestination>,
    /// The profile settings of the people who have a profile.
    pub people: HashMap<ActorRef, ProfileSettings>,
    /// The people with a verified e-mail address. The projector looks up only people who may have turned the inbox off,
    /// because the inbox reaches everyone else.
    pub mailboxes: HashSet<ActorRef>,
}

impl CandidateReceivers {
    /// Whether a preference of the recipient, or a default of any role, turns the inbox off for a category.
    #[must_use]
    pub fn has_inbox_disabling_setting(&self, recipient: &ActorRef) -> bool {
        let default_turns_inbox_off = |profiles: &DefaultPreferences| {
            profiles.settings.iter().any(|((_, _, channel), enabled)| *channel == Channel::Portal && !enabled)
        };
        let set_turns_inbox_off = |set: &PreferenceSet| {
            set.settings.iter().any(|((_, channel), enabled)| *channel == Channel::Portal && !enabled)
        };
        self.profiles.as_ref().is_some_and(default_turns_inbox_off)
            || self.sets.get(recipient).is_some_and(|sets| sets.iter().any(set_turns_inbox_off))
    }

    /// The profile settings of the recipient; `None` without the advanced tier, because profiles only have an effect in
    /// that tier.
    fn profile(&self, recipient: &ActorRef, settings: NotificationSettings) -> Option<&ProfileSettings> {
        match settings {
            NotificationSettings::Enabled(Tier::Advanced) => self.people.get(recipient),
            NotificationSettings::Enabled(Tier::Standard) | NotificationSettings::Disabled => None,
        }
    }

    /// Whether a channel has a receiver for this fact and this recipient.
    fn has_receiver(
        &self,
        (fact, subject): (&NotifiableFact, &SubjectContext),
        recipient: &ActorRef,
        settings: NotificationSettings,
        channel: Channel,
    ) -> bool {
        let has_own_receiver = match channel {
            Channel::Portal => true,
            Channel::Email => self.mailboxes.contains(recipient),
            Channel::ChatA | Channel::ChatB | Channel::ChatC => {
                self.profile(recipient, settings).is_some_and(|profile| profile.chat_secret_ref.is_some())
            }
            Channel::Paging | Channel::Webhook => false,
        };
        let covers = |destination: &ActiveDestination| {
            destination.destination_type == channel && destination.covers_workspace(fact.workspace_id)
        };
        // Announcements never reach destinations.
        has_own_receiver || (subject.announcement.is_none() && self.destinations.iter().any(covers))
    }
}

/// A notification, with the channels on which its recipient receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewNotification {
    /// The notification as the inbox contains it.
    pub notification: Notification,
    /// The channels that are on for the recipient; at least one.
    pub channels: Vec<Channel>,
    /// The channels that would be on in the standard tier too.
    pub standard_channels: Vec<Channel>,
}

impl NewNotification {
    /// Whether a delivery on this channel needs the advanced tier. An announcement always needs it.
    fn requires_advanced_tier(&self, channel: Channel) -> bool {
        self.notification.event_kind == FactKind::AnnouncementMade.as_str()
            || !self.standard_channels.contains(&channel)
    }
}

/// The rows that the projector writes for one fact or for several.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    /// The new inbox notifications, with their channels.
    pub notifications: Vec<NewNotification>,
    /// The new deliveries outside the inbox.
    pub deliveries: Vec<NewDelivery>,
    /// The records of suppressed notifications, each with the fact that reports it.
    pub suppressed: Vec<(SuppressedDecision, Fact)>,
    /// The number of people whom the limit of recipients left out.
    pub omitted_recipients: usize,
}

impl Projection {
    /// Adds the rows for another fact. Facts that collapse into one event share the record of a suppressed
    /// notification, so that record is added once.
    pub fn append(&mut self, other: Self) {
        self.notifications.extend(other.notifications);
        self.deliveries.extend(other.deliveries);
        for (decision, fact) in other.suppressed {
            let id = decision.suppressed_decision_id;
            if !self.suppressed.iter().any(|(existing, _)| existing.suppressed_decision_id == id) {
                self.suppressed.push((decision, fact));
            }
        }
        self.omitted_recipients = self.omitted_recipients.saturating_add(other.omitted_recipients);
    }
}

/// The recipients of a fact; `None` if facts of its kind cause no notifications.
#[must_use]
pub fn recipients_of(
    fact: &NotifiableFact,
    subject: &SubjectContext,
    recipient_rights: &RecipientRights,
) -> Option<Recipients> {
    Some(select_recipients(fact, subject, &rule_for(fact.kind, &fact.categories)?, recipient_rights))
}

/// Computes the rows that the projector writes for a fact. `at` is the time of the written facts, and selects the
/// windows of digests.
#[must_use]
pub fn project(
    fact: &NotifiableFact,
    subject: &SubjectContext,
    recipient_rights: &RecipientRights,
    receivers: &CandidateReceivers,
    at: Timestamp,
) -> Projection {
    let Some(rule) = rule_for(fact.kind, &fact.categories) else { return Projection::default() };
    let Recipients { actors, omitted } = select_recipients(fact, subject, &rule, recipient_rights);
    let event = event_key(fact, subject);
    let event_texts = EventTexts::from_fact(fact, subject);
    let settings = receivers.turned_on.settings_at(receivers.switches, fact.occurred_at);
    let mut projection = Projection { omitted_recipients: omitted, ..Projection::default() };
    for recipient in actors {
        let layers = layers(&recipient, subject, recipient_rights, receivers);
        let has_receiver = |channel| receivers.has_receiver((fact, subject), &recipient, settings, channel);
        let decide = |category| layers.decide_delivery(category, settings, has_receiver);
        let decisions = fact.categories.iter().map(|category| (*category, decide(*category)));
        let mut suppressions = Vec::new();
        let mut delivered = None;
        for (category, decision) in decisions {
            match decision {
                DeliveryDecision::Channels(channels) => {
                    delivered = Some((category, channels));
                    break;
                }
                DeliveryDecision::Suppressed(suppression) => suppressions.push((category, suppression)),
            }
        }
        let new_notification = |category, channels| {
            let may_see_actor = recipient == fact.actor
                || recipient_rights
                    .rights
                    .get(&recipient)
                    .is_some_and(|rights| rights.allow(rule.view_permission, &subject.position));
            let identifier = event.notification_id(&recipient.to_string());
            let reader = (recipient.clone(), may_see_actor);
            let notification = event_texts.notification(identifier, reader, (category, rule.severity), fact, subject);
            let standard_channels =
                match layers.decide_delivery(category, NotificationSettings::Enabled(Tier::Standard), |_| true) {
                    DeliveryDecision::Channels(channels) => channels,
                    DeliveryDecision::Suppressed(_) => Vec::new(),
                };
            NewNotification { notification, channels, standard_channels }
        };
        if let Some((category, channels)) = delivered {
            let new = new_notification(category, channels);
            projection.deliveries.extend(personal_deliveries(event, &new, (receivers, settings), at));
            projection.notifications.push(new);
            continue;
        }
        let unsent_mail =
            suppressions.iter().find(|(_, suppression)| suppression.unreachable.contains(&Channel::Email));
        let unsent_mail = unsent_mail.map(|(category, suppression)| {
            mail_without_address(event, &new_notification(*category, suppression.unreachable.clone()))
        });
        projection.deliveries.extend(unsent_mail);
        let relevant = suppressions.into_iter().filter(|(category, _)| category.is_suppression_recorded());
        projection.suppressed.extend(relevant.map(|(category, suppression)| {
            suppressed_decision(event, fact, subject, &recipient, category, suppression, at)
        }));
    }
    // An announcement is meant for its audience only, and a destination can have other readers.
    if subject.announcement.is_none() {
        let shared = shared_deliveries(event, fact, &event_texts, &projection.notifications, &receivers.destinations);
        projection.deliveries.extend(shared);
    }
    projection
}

/// The texts of the notifications about an event, in one variant with the name of the actor and one without it.
struct EventTexts {
    naming_actor: (String, String),
    without_actor: (String, String),
    link: Option<String>,
}

impl EventTexts {
    fn from_fact(fact: &NotifiableFact, subject: &SubjectContext) -> Self {
        Self {
            naming_actor: title_and_body(fact, subject, true),
            without_actor: title_and_body(fact, subject, false),
            link: console_path(fact, subject),
        }
    }

    /// Creates the notification for a recipient. Its text names the actor if the recipient may see the actor.
    fn notification(
        &self,
        notification_id: NotificationId,
        (recipient, may_see_actor): (ActorRef, bool),
        (category, severity): (NotificationCategory, Severity),
        fact: &NotifiableFact,
        subject: &SubjectContext,
    ) -> Notification {
        let (title, body) = if may_see_actor { &self.naming_actor } else { &self.without_actor };
        Notification(NotificationRecord {
            notification_id,
            recipient,
            status: InboxStatus::Unread,
            category,
            severity,
            title: title.clone(),
            body: body.clone(),
            link: self.link.clone(),
            event_kind: fact.kind.as_str().to_owned(),
            event_id: fact.fact_id,
            log_index: fact.index,
            workspace_id: fact.workspace_id,
            workload_id: subject.workload_id,
            environment: subject.environment.clone(),
            created_at: fact.occurred_at,
            read_at: None,
            revision: Revision::FIRST,
        })
    }

    /// Creates the notification for a shared destination. It names the actor, because administrators chose the readers
    /// of the destination.
    fn for_destination(&self, notification: &Notification) -> Notification {
        let (title, body) = self.naming_actor.clone();
        Notification(NotificationRecord { title, body, ..notification.0.clone() })
    }
}

/// Creates one delivery for each destination whose channel is on for at least one recipient.
fn shared_deliveries(
    event: EventKey,
    fact: &NotifiableFact,
    event_texts: &EventTexts,
    notifications: &[NewNotification],
    destinations: &[ActiveDestination],
) -> Vec<NewDelivery> {
    let covering_destinations =
        destinations.iter().filter(|destination| destination.covers_workspace(fact.workspace_id));
    let deliveries = covering_destinations.filter_map(|destination| {
        let channel = destination.destination_type;
        let enabled_notifications = || notifications.iter().filter(|new| new.channels.contains(&channel));
        let first = enabled_notifications().next()?;
        Some(NewDelivery {
            delivery_id: event.delivery_id(&destination.destination_id.to_string(), channel),
            channel,
            target: DeliveryTarget::Destination(destination.destination_id),
            notification: event_texts.for_destination(&first.notification),
            event,
            digest: None,
            requires_advanced_tier: enabled_notifications().all(|new| new.requires_advanced_tier(channel)),
            failure: None,
        })
    });
    deliveries.collect()
}

/// Creates the deliveries to the recipient's own addresses: the mailbox and, in the advanced tier, the recipient's chat
/// and digests.
fn personal_deliveries(
    event: EventKey,
    new: &NewNotification,
    (receivers, settings): (&CandidateReceivers, NotificationSettings),
    at: Timestamp,
) -> Vec<NewDelivery> {
    let NewNotification { notification, channels, standard_channels: _ } = new;
    let profile = receivers.profile(&notification.recipient, settings);
    let has_chat = profile.is_some_and(|profile| profile.chat_secret_ref.is_some());
    let is_chat = |channel: &&Channel| matches!(channel, Channel::ChatA | Channel::ChatB | Channel::ChatC);
    let mailbox = channels.iter().find(|channel| **channel == Channel::Email);
    let chat = channels.iter().find(is_chat).filter(|_| has_chat);
    let frequency = profile.map_or(DigestFrequency::Off, |profile| profile.digest_frequency(notification.category));
    let recipient = notification.recipient.to_string();
    let delivery_on = |channel: Channel| {
        let digest = profile.and_then(|profile| profile.zone.window(frequency, at));
        let delivery_id = match &digest {
            None => event.delivery_id(&recipient, channel),
            Some(window) => {
                let log = (receivers.tenant, receivers.generation);
                digest_delivery_id(log, &recipient, channel, notification.category, window)
            }
        };
        NewDelivery {
            delivery_id,
            channel,
            target: DeliveryTarget::Person(notification.recipient.clone()),
            notification: notification.clone(),
            event,
            digest,
            requires_advanced_tier: digest.is_some()
                || channel != Channel::Email
                || new.requires_advanced_tier(channel),
            failure: None,
        }
    };
    mailbox.into_iter().chain(chat).map(|channel| delivery_on(*channel)).collect()
}

/// Creates a failed e-mail delivery for a recipient whom no channel reaches and who has no verified address. The
/// delivery is not attempted even if the recipient gets an address later, because the notification is recorded as
/// suppressed.
fn mail_without_address(event: EventKey, new: &NewNotification) -> NewDelivery {
    let notification = new.notification.clone();
    NewDelivery {
        delivery_id: event.delivery_id(&notification.recipient.to_string(), Channel::Email),
        channel: Channel::Email,
        target: DeliveryTarget::Person(notification.recipient.clone()),
        notification,
        event,
        digest: None,
        requires_advanced_tier: new.requires_advanced_tier(Channel::Email),
        failure: Some(DeliveryError::NoAddress),
    }
}

/// The event to which a fact belongs. Denials of unidentified callers collapse into one event for each workload and
/// hour, because anyone can cause many of them.
fn event_key(fact: &NotifiableFact, subject: &SubjectContext) -> EventKey {
    let is_denial = fact.kind == FactKind::ExecutionDenied
        || (fact.kind == FactKind::ExecutionEnded
            && fact.detail.get("outcome").and_then(Value::as_str) == Some("denied"));
    let is_guest = |actor: &ActorRef| match actor.kind() {
        ActorKind::ShareLink | ActorKind::Anonymous => true,
        ActorKind::User | ActorKind::Group | ActorKind::Service | ActorKind::System => false,
    };
    match subject.workload_id {
        Some(workload) if is_denial && is_guest(subject.submitter.as_ref().unwrap_or(&fact.actor)) => {
            let millis = u64::try_from(fact.occurred_at.micros() / 1_000).unwrap_or(0);
            EventKey::of_denials(workload.uuid(), millis - millis % HOUR_MILLIS)
        }
        Some(_) | None => EventKey::of_fact(fact.fact_id),
    }
}

/// Selects the preference sets and defaults that decide about a fact for a recipient.
fn layers<'b>(
    recipient: &ActorRef,
    subject: &SubjectContext,
    recipient_rights: &RecipientRights,
    receivers: &'b CandidateReceivers,
) -> PreferenceLayers<'b> {
    let environment = subject.environment.as_deref().and_then(|name| Slug::parse(name).ok());
    let sets = receivers.sets.get(recipient).map_or(&[][..], Vec::as_slice);
    let find = |scope: Option<PreferenceScope>| scope.and_then(|scope| sets.iter().find(|set| set.scope == scope));
    let workload = subject.workload_id;
    PreferenceLayers {
        environment: find(workload.zip(environment).map(|(id, name)| PreferenceScope::Environment(id, name))),
        project: find(workload.map(PreferenceScope::Project)),
        workspace: find(subject.position.workspace.map(PreferenceScope::Workspace)),
        global: find(Some(PreferenceScope::Global)),
        profiles: receivers.profiles.as_ref(),
        roles: recipient_rights
            .rights
            .get(recipient)
            .map(|rights| rights.roles_at(&subject.position))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
