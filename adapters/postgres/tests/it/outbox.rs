//! The outbox in PostgreSQL. One sender at a time claims a delivery. A receiver that never responds does not delay
//! deliveries to other receivers.

use crate::{
    commit_cases::notification::{projection_of, stored_destination},
    fixture::{Fixture, actor, open_store, scope},
};
use fairway_domain::{
    audit::FactSequencer,
    id::DestinationId,
    notification::{
        Channel,
        backlog::{BacklogStore, ChannelBacklog, ProjectorLag},
        delivery::{DeliveryError, DeliveryTarget, NewDelivery},
        derived_identifier::EventKey,
        message::SendFailure,
        ports::{
            AttemptOutcome, ClaimedDelivery, DeliveryClaimRef, DeliveryClaimRequest, OutboxStore, ProjectionStore,
        },
        projection::Projection,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::task::JoinSet;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn claim(limit: u32, per_lane: u32, in_progress: Vec<(Uuid, u32)>) -> DeliveryClaimRequest {
    DeliveryClaimRequest {
        claim_id: Uuid::now_v7(),
        limit,
        per_lane,
        in_progress,
        lanes_per_tenant: 100,
        busy_tenants: Vec::new(),
        lease: LEASE,
    }
}

/// Projects this number of facts. Each fact causes a delivery to every destination.
pub(crate) async fn project(fixture: &Fixture, facts: usize, destinations: &[DestinationId]) {
    for position in 0..facts {
        let mut projection = projection_of(&actor(), false);
        let notification = projection.notifications[0].notification.clone();
        let event = EventKey::of_fact(notification.event_id);
        projection.deliveries = destinations
            .iter()
            .map(|destination| NewDelivery {
                delivery_id: event.delivery_id(&destination.to_string(), Channel::Webhook),
                channel: Channel::Webhook,
                target: DeliveryTarget::Destination(*destination),
                notification: notification.clone(),
                event,
                digest: None,
                requires_advanced_tier: false,
                failure: None,
            })
            .collect();
        let position = position as u64;
        fixture
            .store
            .commit_batch(scope(), position..position + 1, fixture.projection_basis().await, &projection)
            .await
            .unwrap();
    }
}

pub(crate) async fn destinations(fixture: &Fixture, count: usize) -> Vec<DestinationId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(stored_destination(fixture).await.destination_id);
    }
    ids
}

fn id_of(claimed: &ClaimedDelivery) -> Uuid {
    claimed.outgoing.message.delivery_id.uuid()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_senders_claim_each_delivery_once() {
    const SENDERS: usize = 20;
    let fixture = Fixture::with_connections(8).await;
    let destinations = destinations(&fixture, 4).await;
    project(&fixture, 50, &destinations).await;
    let stores: Vec<_> = (0..4).map(|_| open_store(&fixture.database.url_for_owner(), 4)).collect();
    let mut senders = JoinSet::new();
    for number in 0..SENDERS {
        let store = std::sync::Arc::clone(&stores[number % stores.len()]);
        senders.spawn(async move {
            let mut sent = Vec::new();
            loop {
                let claimed = store.claim(&claim(3, 3, Vec::new())).await.unwrap().deliveries;
                if claimed.is_empty() {
                    return sent;
                }
                for delivery in claimed {
                    assert_eq!(delivery.attempt, 1);
                    store.finish(&delivery, AttemptOutcome::Sent(Some(200))).await.unwrap();
                    sent.push(id_of(&delivery));
                }
            }
        });
    }
    let mut sent_deliveries = Vec::new();
    while let Some(sent) = senders.join_next().await {
        sent_deliveries.extend(sent.unwrap());
    }
    assert_eq!(sent_deliveries.len(), 200, "each delivery is sent exactly once");
    assert_eq!(sent_deliveries.iter().collect::<BTreeSet<_>>().len(), 200);
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'sent' AND attempts = 1";
    assert_eq!(fixture.query_number(sql).await, 200);
}

#[tokio::test]
async fn delivery_with_an_expired_claim_is_claimed_again_and_a_late_outcome_is_ignored() {
    let fixture = Fixture::new().await;
    let destinations = destinations(&fixture, 1).await;
    project(&fixture, 1, &destinations).await;
    let first = fixture.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.pop().unwrap();
    assert!(fixture.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.is_empty(), "the lease holds");
    fixture.database.set_clock_offset(61).await.unwrap();
    let second = fixture.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.pop().unwrap();
    assert_eq!((id_of(&second), second.attempt), (id_of(&first), 2));
    assert_eq!(second.outgoing.message, first.outgoing.message, "all attempts send the same message");
    let failure = SendFailure::without_response(DeliveryError::TimedOut);
    fixture.store.finish(&first, AttemptOutcome::Failed(failure)).await.unwrap();
    fixture.store.finish(&second, AttemptOutcome::Sent(Some(204))).await.unwrap();
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'sent' AND last_error IS NULL";
    assert_eq!(fixture.query_number(sql).await, 1);
}

#[tokio::test]
async fn busy_lane_delays_no_other() {
    let fixture = Fixture::new().await;
    let destinations = destinations(&fixture, 3).await;
    project(&fixture, 40, &destinations).await;
    let lanes = |claimed: &[ClaimedDelivery]| {
        let mut counts: BTreeMap<Uuid, usize> = BTreeMap::new();
        for delivery in claimed {
            *counts.entry(delivery.lane).or_default() += 1;
        }
        counts
    };
    let claimed = fixture.store.claim(&claim(1_000, 8, Vec::new())).await.unwrap().deliveries;
    let counts = lanes(&claimed);
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [8, 8, 8], "no lane exceeds its share");
    let [full_lane, busy_lane, idle_lane] = [0, 1, 2].map(|index| destinations[index].uuid());
    let in_progress = vec![(full_lane, 8), (busy_lane, 5)];
    let claimed_counts = lanes(&fixture.store.claim(&claim(1_000, 8, in_progress)).await.unwrap().deliveries);
    assert_eq!(claimed_counts, BTreeMap::from([(busy_lane, 3), (idle_lane, 8)]), "a lane gets the rest of its share");
}

#[tokio::test]
async fn busy_tenant_delays_no_other_and_lanes_are_selected_at_random() {
    let fixture = Fixture::new().await;
    let destinations = destinations(&fixture, 12).await;
    project(&fixture, 1, &destinations).await;
    let busy_tenant_claim =
        DeliveryClaimRequest { busy_tenants: vec![scope().tenant()], ..claim(1_000, 8, Vec::new()) };
    assert!(fixture.store.claim(&busy_tenant_claim).await.unwrap().deliveries.is_empty());
    let limited_claim = DeliveryClaimRequest { lanes_per_tenant: 4, ..claim(1_000, 8, Vec::new()) };
    let mut claimed_lanes = Vec::new();
    for _ in 0..20 {
        let claimed = fixture.store.claim(&limited_claim).await.unwrap().deliveries;
        assert_eq!(claimed.len(), 4);
        claimed_lanes.push(claimed.iter().map(|delivery| delivery.lane).collect::<BTreeSet<_>>());
        let claims: Vec<_> = claimed
            .iter()
            .map(|delivery| DeliveryClaimRef {
                tenant: delivery.outgoing.message.tenant,
                delivery_id: delivery.outgoing.message.delivery_id,
                claim_id: delivery.claim_id,
            })
            .collect();
        fixture.store.release(&claims).await.unwrap();
    }
    let distinct_lanes: BTreeSet<_> = claimed_lanes.iter().flatten().collect();
    assert!(distinct_lanes.len() > 8, "low identifiers do not come first: {claimed_lanes:?}");
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'pending' AND attempts = 0";
    assert_eq!(fixture.query_number(sql).await, 12, "a released delivery counts no attempt");
}

#[tokio::test]
async fn claim_skips_withdrawn_and_unreadable_deliveries() {
    let fixture = Fixture::new().await;
    let destinations = destinations(&fixture, 2).await;
    project(&fixture, 2, &destinations).await;
    let id = destinations[0];
    fixture.run(&format!("UPDATE notification_destination SET generation = 7 WHERE destination_id = '{id}'")).await;
    // Simulates a delivery to the other destination that a newer server version has written, with an unknown category.
    fixture
        .run(&format!(
            "UPDATE notification_delivery SET category = 'later' WHERE delivery_id = (
            SELECT delivery_id FROM notification_delivery WHERE destination_id <> '{id}' LIMIT 1)"
        ))
        .await;
    let claimed = fixture.store.claim(&claim(1_000, 8, Vec::new())).await.unwrap();
    assert_eq!((claimed.deliveries.len(), claimed.skipped), (1, 3));
    let cancelled = "SELECT count(*) FROM notification_delivery WHERE status = 'cancelled'";
    assert_eq!(fixture.query_number(cancelled).await, 2);
}

#[tokio::test]
async fn failed_projection_leaves_no_delivery() {
    let fixture = Fixture::new().await;
    let destinations = destinations(&fixture, 1).await;
    project(&fixture, 1, &destinations).await;
    let mut projection = projection_of(&actor(), false);
    let notification = projection.notifications[0].notification.clone();
    let event = EventKey::of_fact(notification.event_id);
    projection.deliveries.push(NewDelivery {
        delivery_id: event.delivery_id("x", Channel::Webhook),
        channel: Channel::Webhook,
        target: DeliveryTarget::Destination(destinations[0]),
        notification,
        event,
        digest: None,
        requires_advanced_tier: false,
        failure: None,
    });
    // Another projector has moved the position, so the commit fails.
    assert!(fixture.store.commit_batch(scope(), 0..1, fixture.projection_basis().await, &projection).await.is_err());
    assert_eq!(fixture.query_number("SELECT count(*) FROM notification_delivery").await, 1);
}

#[tokio::test]
async fn backlog_counts_unfinished_deliveries_and_their_wait() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.store.outbox_backlog().await.unwrap(), []);
    let destinations = destinations(&fixture, 1).await;
    project(&fixture, 3, &destinations).await;
    let claimed = fixture.store.claim(&claim(2, 2, Vec::new())).await.unwrap().deliveries;
    fixture.store.finish(&claimed[0], AttemptOutcome::Sent(Some(200))).await.unwrap();
    fixture.database.set_clock_offset(100).await.unwrap();
    let backlog = fixture.store.outbox_backlog().await.unwrap();
    let [ChannelBacklog { channel: Channel::Webhook, pending: 1, claimed: 1, oldest_pending, longest_overdue }] =
        backlog[..]
    else {
        panic!("{backlog:?}")
    };
    let expected_wait = Duration::from_secs(100)..Duration::from_secs(160);
    assert!(expected_wait.contains(&oldest_pending) && expected_wait.contains(&longest_overdue), "{backlog:?}");
}

#[tokio::test]
async fn projector_lag_counts_the_facts_after_its_position() {
    let fixture = Fixture::new().await;
    for _ in 0..5 {
        fixture.workload().await;
    }
    while fixture.store.sequence().await.unwrap() > 0 {}
    let size = u64::try_from(fixture.query_number("SELECT max(size) FROM fact_log").await).unwrap();
    fixture.database.set_clock_offset(100).await.unwrap();
    let lag = fixture.store.projector_lag().await.unwrap();
    assert_eq!(lag.facts, size);
    assert!((Duration::from_secs(100)..Duration::from_secs(160)).contains(&lag.age), "{lag:?}");
    fixture
        .store
        .commit_batch(scope(), 0..size - 1, fixture.projection_basis().await, &Projection::default())
        .await
        .unwrap();
    assert_eq!(fixture.store.projector_lag().await.unwrap().facts, 1);
    fixture
        .store
        .commit_batch(scope(), size - 1..size, fixture.projection_basis().await, &Projection::default())
        .await
        .unwrap();
    assert_eq!(fixture.store.projector_lag().await.unwrap(), ProjectorLag::default());
}
