//! Tests of the destinations and mailboxes of a recipient, and of the records if a channel has no receiver.

use super::*;

#[test]
fn each_destination_of_a_wanted_channel_gets_one_delivery() {
    let (fact, subject) = denial("user:ada", 0);
    let operators = directory(&[("user:operator", Role::Operator)]);
    let destinations = vec![
        destination(20, DestinationScope::Organization, Channel::Webhook),
        destination(21, DestinationScope::Workspace(id(3).into()), Channel::Webhook),
        destination(22, DestinationScope::Workspace(id(99).into()), Channel::Webhook),
        destination(23, DestinationScope::Organization, Channel::Paging),
    ];
    let nobody = RecipientPreferences { destinations: destinations.clone(), ..book() };
    assert!(project(&fact, &subject, &operators, &nobody, at()).deliveries.is_empty());
    let mut sets = HashMap::from([opt_in(&[Channel::Webhook])]);
    sets.insert(actor("user:operator"), opt_in(&[Channel::Webhook]).1);
    let wanted = RecipientPreferences { destinations, sets, ..book() };
    let projection = project(&fact, &subject, &operators, &wanted, at());
    let reached: Vec<_> = projection.deliveries.iter().map(|one| one.target.destination().unwrap().uuid()).collect();
    assert_eq!(reached, [id(20), id(21)], "one for both recipients, none elsewhere or on other channels");
    let again = project(&fact, &subject, &operators, &wanted, at());
    assert_eq!(projection.deliveries, again.deliveries, "a repeated projection writes the same rows");
}

#[test]
fn mailbox_is_personal_and_chat_needs_the_advanced_tier_and_an_address() {
    let (fact, subject) = denial("user:ada", 0);
    let sets = HashMap::from([opt_in(&[Channel::Email, Channel::ChatB])]);
    let standard = RecipientPreferences { sets, ..book() };
    let channels = |book: &RecipientPreferences| -> Vec<_> {
        let projection = project(&fact, &subject, &RecipientRights::default(), book, at());
        projection.deliveries.iter().map(|one| (one.channel, one.requires_advanced_tier)).collect()
    };
    assert_eq!(channels(&standard), [(Channel::Email, false)]);
    let profile = ProfileSettings { chat_secret_ref: Some("env:CHAT".to_owned()), ..ProfileSettings::default() };
    let people = HashMap::from([(actor("user:ada"), profile)]);
    let with_profile = RecipientPreferences { people, ..standard };
    assert_eq!(channels(&with_profile), [(Channel::Email, false)], "the standard tier ignores profiles");
    let advanced = RecipientPreferences { switches: NotificationSettings::Enabled(Tier::Advanced), ..with_profile };
    assert_eq!(channels(&advanced), [(Channel::Email, false), (Channel::ChatB, true)]);
}

/// With the inbox off, an enabled channel either has a receiver, or the suppressed notification is recorded.
#[test]
fn channels_without_a_receiver_leave_one_record() {
    let (mut fact, subject) = denial("user:ada", 0);
    fact.categories = vec![FactCategory::Executions];
    let wanted = |channels: &[Channel]| {
        let (person, mut sets) = opt_in(channels);
        sets[0].0.settings.insert((FactCategory::Executions, Channel::Portal), false);
        RecipientPreferences { sets: HashMap::from([(person, sets)]), ..book() }
    };
    let organization = |channel| vec![destination(20, DestinationScope::Organization, channel)];
    let elsewhere = vec![destination(20, DestinationScope::Workspace(id(99).into()), Channel::Webhook)];
    let mailboxes = HashSet::from([actor("user:ada")]);
    let daily = [(FactCategory::Executions, DigestFrequency::Daily)].into();
    let profile = ProfileSettings { digest: daily, ..ProfileSettings::default() };
    let chat = ProfileSettings { chat_secret_ref: Some("env:CHAT".to_owned()), ..profile.clone() };
    let advanced = |channel, profile: &ProfileSettings| RecipientPreferences {
        people: HashMap::from([(actor("user:ada"), profile.clone())]),
        switches: NotificationSettings::Enabled(Tier::Advanced),
        ..wanted(&[channel])
    };
    let no_address = Some(DeliveryError::NoAddress);
    let (email, webhook, chat_b) = (Channel::Email, Channel::Webhook, Channel::ChatB);
    for (book, unreachable, deliveries) in [
        (wanted(&[email]), vec![email], vec![(email, no_address)]),
        (RecipientPreferences { mailboxes, ..wanted(&[email]) }, vec![], vec![(email, None)]),
        (
            RecipientPreferences { destinations: organization(email), ..wanted(&[email]) },
            vec![],
            vec![(email, None); 2],
        ),
        (wanted(&[webhook]), vec![webhook], vec![]),
        (RecipientPreferences { destinations: elsewhere, ..wanted(&[webhook]) }, vec![webhook], vec![]),
        (
            RecipientPreferences { destinations: organization(webhook), ..wanted(&[webhook]) },
            vec![],
            vec![(webhook, None)],
        ),
        (wanted(&[email, webhook]), vec![email, webhook], vec![(email, no_address)]),
        (wanted(&[chat_b]), vec![chat_b], vec![]),
        (advanced(chat_b, &profile), vec![chat_b], vec![]),
        (advanced(chat_b, &chat), vec![], vec![(chat_b, None)]),
        // Otherwise a digest of later notifications could contain the notification that is recorded as suppressed.
        (advanced(email, &profile), vec![email], vec![(email, no_address)]),
    ] {
        let projection = project(&fact, &subject, &RecipientRights::default(), &book, at());
        let sent: Vec<_> = projection.deliveries.iter().map(|one| (one.channel, one.failure)).collect();
        assert_eq!(sent, deliveries, "{unreachable:?}");
        assert!(
            sent.iter()
                .zip(&projection.deliveries)
                .all(|((_, failure), one)| failure.is_none() || one.digest.is_none())
        );
        let records: Vec<_> = projection.suppressed.iter().map(|(record, _)| record).collect();
        if unreachable.is_empty() {
            assert!(records.is_empty() && projection.notifications.len() == 1);
            continue;
        }
        let [record] = records[..] else { panic!("{records:?}") };
        assert_eq!((record.reason, record.scope), (ReasonCode::PreferenceOff, Some(DecidingScope::Global)));
        assert_eq!((record.channel, &record.unreachable_channels), (Some(Channel::Portal), &unreachable));
        assert!(projection.notifications.is_empty());
    }
}

#[test]
fn mailbox_is_looked_up_only_where_the_inbox_may_be_off() {
    let ada = actor("user:ada");
    assert!(!book().may_turn_inbox_off(&ada));
    let with_sets = |set| RecipientPreferences { sets: HashMap::from([set]), ..book() };
    assert!(!with_sets(opt_in(&[Channel::Email])).may_turn_inbox_off(&ada));
    let off = with_sets(opt_out("user:ada", &[FactCategory::Executions]));
    assert!(off.may_turn_inbox_off(&ada) && !off.may_turn_inbox_off(&actor("user:bob")));
    let profiles = DefaultProfiles::restore(DefaultProfilesRecord {
        settings: BTreeMap::from([((Role::Operator, FactCategory::Executions, Channel::Portal), false)]),
        updated_at: at(),
        updated_by: actor("user:admin"),
        revision: Revision::FIRST,
    });
    assert!(RecipientPreferences { profiles: Some(profiles), ..book() }.may_turn_inbox_off(&ada));
}
