//! Tests of destinations and mailboxes, and of the records for channels without a receiver.

use super::*;

#[test]
fn each_destination_of_an_enabled_channel_gets_one_delivery() {
    let (fact, subject) = denial("user:ada", 0);
    let operators = recipient_rights(&[("user:operator", Role::Operator)]);
    let destinations = vec![
        destination(20, DestinationScope::Organization, Channel::Webhook),
        destination(21, DestinationScope::Workspace(id(3).into()), Channel::Webhook),
        destination(22, DestinationScope::Workspace(id(99).into()), Channel::Webhook),
        destination(23, DestinationScope::Organization, Channel::Paging),
    ];
    let without_preferences = CandidateReceivers { destinations: destinations.clone(), ..default_receivers() };
    assert!(project(&fact, &subject, &operators, &without_preferences, at()).deliveries.is_empty());
    let mut sets = HashMap::from([opt_in(&[Channel::Webhook])]);
    sets.insert(actor("user:operator"), opt_in(&[Channel::Webhook]).1);
    let with_preferences = CandidateReceivers { destinations, sets, ..default_receivers() };
    let projection = project(&fact, &subject, &operators, &with_preferences, at());
    let destination_ids: Vec<_> =
        projection.deliveries.iter().map(|delivery| delivery.target.destination().unwrap().uuid()).collect();
    assert_eq!(destination_ids, [id(20), id(21)], "one for both recipients, none elsewhere or on other channels");
    let repeated = project(&fact, &subject, &operators, &with_preferences, at());
    assert_eq!(projection.deliveries, repeated.deliveries, "a repeated projection writes the same rows");
}

#[test]
fn mailbox_is_personal_and_chat_needs_the_advanced_tier_and_an_address() {
    let (fact, subject) = denial("user:ada", 0);
    let sets = HashMap::from([opt_in(&[Channel::Email, Channel::ChatB])]);
    let standard = CandidateReceivers { sets, ..default_receivers() };
    let channels = |receivers: &CandidateReceivers| -> Vec<_> {
        let projection = project(&fact, &subject, &RecipientRights::default(), receivers, at());
        projection.deliveries.iter().map(|delivery| (delivery.channel, delivery.requires_advanced_tier)).collect()
    };
    assert_eq!(channels(&standard), [(Channel::Email, false)]);
    let profile = ProfileSettings { chat_secret_ref: Some("env:CHAT".to_owned()), ..ProfileSettings::default() };
    let people = HashMap::from([(actor("user:ada"), profile)]);
    let with_profile = CandidateReceivers { people, ..standard };
    assert_eq!(channels(&with_profile), [(Channel::Email, false)], "the standard tier ignores profiles");
    let advanced = CandidateReceivers { switches: NotificationSettings::Enabled(Tier::Advanced), ..with_profile };
    assert_eq!(channels(&advanced), [(Channel::Email, false), (Channel::ChatB, true)]);
}

/// If the inbox is off, either an enabled channel has a receiver or the suppressed notification is recorded.
#[test]
fn channels_without_a_receiver_leave_one_record() {
    let (mut fact, subject) = denial("user:ada", 0);
    fact.categories = vec![NotificationCategory::Executions];
    let opted_in = |channels: &[Channel]| {
        let (person, mut sets) = opt_in(channels);
        sets[0].0.settings.insert((NotificationCategory::Executions, Channel::Portal), false);
        CandidateReceivers { sets: HashMap::from([(person, sets)]), ..default_receivers() }
    };
    let organization = |channel| vec![destination(20, DestinationScope::Organization, channel)];
    let other_workspace = vec![destination(20, DestinationScope::Workspace(id(99).into()), Channel::Webhook)];
    let mailboxes = HashSet::from([actor("user:ada")]);
    let daily = [(NotificationCategory::Executions, DigestFrequency::Daily)].into();
    let profile = ProfileSettings { digest: daily, ..ProfileSettings::default() };
    let chat = ProfileSettings { chat_secret_ref: Some("env:CHAT".to_owned()), ..profile.clone() };
    let advanced = |channel, profile: &ProfileSettings| CandidateReceivers {
        people: HashMap::from([(actor("user:ada"), profile.clone())]),
        switches: NotificationSettings::Enabled(Tier::Advanced),
        ..opted_in(&[channel])
    };
    let no_address = Some(DeliveryError::NoAddress);
    let (email, webhook, chat_b) = (Channel::Email, Channel::Webhook, Channel::ChatB);
    for (receivers, unreachable, deliveries) in [
        (opted_in(&[email]), vec![email], vec![(email, no_address)]),
        (CandidateReceivers { mailboxes, ..opted_in(&[email]) }, vec![], vec![(email, None)]),
        (
            CandidateReceivers { destinations: organization(email), ..opted_in(&[email]) },
            vec![],
            vec![(email, None); 2],
        ),
        (opted_in(&[webhook]), vec![webhook], vec![]),
        (CandidateReceivers { destinations: other_workspace, ..opted_in(&[webhook]) }, vec![webhook], vec![]),
        (
            CandidateReceivers { destinations: organization(webhook), ..opted_in(&[webhook]) },
            vec![],
            vec![(webhook, None)],
        ),
        (opted_in(&[email, webhook]), vec![email, webhook], vec![(email, no_address)]),
        (opted_in(&[chat_b]), vec![chat_b], vec![]),
        (advanced(chat_b, &profile), vec![chat_b], vec![]),
        (advanced(chat_b, &chat), vec![], vec![(chat_b, None)]),
        // A digest of later notifications must not contain this one, because it is recorded as suppressed.
        (advanced(email, &profile), vec![email], vec![(email, no_address)]),
    ] {
        let projection = project(&fact, &subject, &RecipientRights::default(), &receivers, at());
        let actual: Vec<_> =
            projection.deliveries.iter().map(|delivery| (delivery.channel, delivery.failure)).collect();
        assert_eq!(actual, deliveries, "{unreachable:?}");
        assert!(
            actual
                .iter()
                .zip(&projection.deliveries)
                .all(|((_, failure), delivery)| failure.is_none() || delivery.digest.is_none())
        );
        let records: Vec<_> = projection.suppressed.iter().map(|(record, _)| record).collect();
        if unreachable.is_empty() {
            assert!(records.is_empty() && projection.notifications.len() == 1);
            continue;
        }
        let [record] = records[..] else { panic!("{records:?}") };
        assert_eq!((record.reason, record.scope), (SuppressionReason::PreferenceOff, Some(DecidingScope::Global)));
        assert_eq!((record.channel, &record.unreachable_channels), (Some(Channel::Portal), &unreachable));
        assert!(projection.notifications.is_empty());
    }
}

#[test]
fn mailbox_is_looked_up_only_where_the_inbox_may_be_off() {
    let ada = actor("user:ada");
    assert!(!default_receivers().has_inbox_disabling_setting(&ada));
    let with_sets = |set| CandidateReceivers { sets: HashMap::from([set]), ..default_receivers() };
    assert!(!with_sets(opt_in(&[Channel::Email])).has_inbox_disabling_setting(&ada));
    let inbox_off = with_sets(opt_out("user:ada", &[NotificationCategory::Executions]));
    assert!(inbox_off.has_inbox_disabling_setting(&ada) && !inbox_off.has_inbox_disabling_setting(&actor("user:bob")));
    let profiles = DefaultPreferences::restore(DefaultPreferencesRecord {
        settings: BTreeMap::from([((Role::Operator, NotificationCategory::Executions, Channel::Portal), false)]),
        updated_at: at(),
        updated_by: actor("user:admin"),
        revision: Revision::FIRST,
    });
    assert!(CandidateReceivers { profiles: Some(profiles), ..default_receivers() }.has_inbox_disabling_setting(&ada));
}
