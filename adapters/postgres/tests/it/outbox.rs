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
        ports::{AttemptOutcome, ClaimedDelivery, DeliveryClaim, OutboxStore, ProjectionStore},
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

pub(crate) fn claim(limit: u32, per_lane: u32, in_progress: Vec<(Uuid, u32)>) -> DeliveryClaim {
    DeliveryClaim {
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
pub(crate) async fn project(stage: &Fixture, facts: usize, destinations: &[DestinationId]) {
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
        stage
            .store
            .commit_batch(scope(), position..position + 1, stage.now_and_settings_generation().await, &projection)
            .await
            .unwrap();
    }
}

pub(crate) async fn destinations(stage: &Fixture, count: usize) -> Vec<DestinationId> {
    let mut made = Vec::new();
    for _ in 0..count {
        made.push(stored_destination(stage).await.destination_id);
    }
    made
}

fn id_of(claimed: &ClaimedDelivery) -> Uuid {
    claimed.outgoing.message.delivery_id.uuid()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_senders_claim_each_delivery_once() {
    const SENDERS: usize = 20;
    let stage = Fixture::with_connections(8).await;
    let destinations = destinations(&stage, 4).await;
    project(&stage, 50, &destinations).await;
    let stores: Vec<_> = (0..4).map(|_| open_store(&stage.database.url(), 4)).collect();
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
    let mut all = Vec::new();
    while let Some(sent) = senders.join_next().await {
        all.extend(sent.unwrap());
    }
    assert_eq!(all.len(), 200, "each delivery is sent exactly once");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 200);
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'sent' AND attempts = 1";
    assert_eq!(stage.query_number(sql).await, 200);
}

#[tokio::test]
async fn delivery_of_a_dead_sender_is_claimed_again_and_its_late_outcome_is_void() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 1).await;
    project(&stage, 1, &destinations).await;
    let first = stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.pop().unwrap();
    assert!(stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.is_empty(), "the lease holds");
    stage.database.move_clock(61).await.unwrap();
    let second = stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().deliveries.pop().unwrap();
    assert_eq!((id_of(&second), second.attempt), (id_of(&first), 2));
    assert_eq!(second.outgoing.message, first.outgoing.message, "all attempts send the same message");
    let failure = SendFailure::without_response(DeliveryError::TimedOut);
    stage.store.finish(&first, AttemptOutcome::Failed(failure)).await.unwrap();
    stage.store.finish(&second, AttemptOutcome::Sent(Some(204))).await.unwrap();
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'sent' AND last_error IS NULL";
    assert_eq!(stage.query_number(sql).await, 1);
}

#[tokio::test]
async fn busy_lane_delays_no_other() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 3).await;
    project(&stage, 40, &destinations).await;
    let lanes = |claimed: &[ClaimedDelivery]| {
        let mut count: BTreeMap<Uuid, usize> = BTreeMap::new();
        for delivery in claimed {
            *count.entry(delivery.lane).or_default() += 1;
        }
        count
    };
    let claimed = stage.store.claim(&claim(1_000, 8, Vec::new())).await.unwrap().deliveries;
    let count = lanes(&claimed);
    assert_eq!(count.values().copied().collect::<Vec<_>>(), [8, 8, 8], "no lane exceeds its share");
    let [black_hole, slow, free] = [0, 1, 2].map(|index| destinations[index].uuid());
    let in_progress = vec![(black_hole, 8), (slow, 5)];
    let others = lanes(&stage.store.claim(&claim(1_000, 8, in_progress)).await.unwrap().deliveries);
    assert_eq!(others, BTreeMap::from([(slow, 3), (free, 8)]), "a lane gets what is left of its share");
}

#[tokio::test]
async fn tenant_with_its_share_delays_no_other_and_draws_among_its_lanes() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 12).await;
    project(&stage, 1, &destinations).await;
    let busy = DeliveryClaim { busy_tenants: vec![scope().tenant()], ..claim(1_000, 8, Vec::new()) };
    assert!(stage.store.claim(&busy).await.unwrap().deliveries.is_empty());
    let some = DeliveryClaim { lanes_per_tenant: 4, ..claim(1_000, 8, Vec::new()) };
    let mut drawn = Vec::new();
    for _ in 0..20 {
        let claimed = stage.store.claim(&some).await.unwrap().deliveries;
        assert_eq!(claimed.len(), 4);
        drawn.push(claimed.iter().map(|one| one.lane).collect::<BTreeSet<_>>());
        let claims: Vec<_> = claimed
            .iter()
            .map(|one| (one.outgoing.message.tenant, one.outgoing.message.delivery_id, one.claim_id))
            .collect();
        stage.store.release(&claims).await.unwrap();
    }
    let all: BTreeSet<_> = drawn.iter().flatten().collect();
    assert!(all.len() > 8, "low identifiers do not come first: {drawn:?}");
    let sql = "SELECT count(*) FROM notification_delivery WHERE status = 'pending' AND attempts = 0";
    assert_eq!(stage.query_number(sql).await, 12, "what is returned was not attempted");
}

#[tokio::test]
async fn withdrawn_and_unreadable_deliveries_are_passed_over() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 2).await;
    project(&stage, 2, &destinations).await;
    let id = destinations[0];
    stage.run(&format!("UPDATE notification_destination SET generation = 7 WHERE destination_id = '{id}'")).await;
    // Simulates a delivery to the other destination that a newer server version has written, with an unknown category.
    stage
        .run(&format!(
            "UPDATE notification_delivery SET category = 'later' WHERE delivery_id = (
            SELECT delivery_id FROM notification_delivery WHERE destination_id <> '{id}' LIMIT 1)"
        ))
        .await;
    let claimed = stage.store.claim(&claim(1_000, 8, Vec::new())).await.unwrap();
    assert_eq!((claimed.deliveries.len(), claimed.skipped), (1, 3));
    let cancelled = "SELECT count(*) FROM notification_delivery WHERE status = 'cancelled'";
    assert_eq!(stage.query_number(cancelled).await, 2);
}

#[tokio::test]
async fn failed_projection_leaves_no_delivery() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 1).await;
    project(&stage, 1, &destinations).await;
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
    assert!(
        stage.store.commit_batch(scope(), 0..1, stage.now_and_settings_generation().await, &projection).await.is_err()
    );
    assert_eq!(stage.query_number("SELECT count(*) FROM notification_delivery").await, 1);
}

#[tokio::test]
async fn backlog_counts_what_has_not_ended_and_how_long_it_waits() {
    let stage = Fixture::new().await;
    assert_eq!(stage.store.outbox_backlog().await.unwrap(), []);
    let destinations = destinations(&stage, 1).await;
    project(&stage, 3, &destinations).await;
    let claimed = stage.store.claim(&claim(2, 2, Vec::new())).await.unwrap().deliveries;
    stage.store.finish(&claimed[0], AttemptOutcome::Sent(Some(200))).await.unwrap();
    stage.database.move_clock(100).await.unwrap();
    let backlog = stage.store.outbox_backlog().await.unwrap();
    let [ChannelBacklog { channel: Channel::Webhook, pending: 1, claimed: 1, oldest_pending, longest_overdue }] =
        backlog[..]
    else {
        panic!("{backlog:?}")
    };
    let waited = Duration::from_secs(100)..Duration::from_secs(160);
    assert!(waited.contains(&oldest_pending) && waited.contains(&longest_overdue), "{backlog:?}");
}

#[tokio::test]
async fn lag_of_the_projector_is_the_facts_ahead_of_its_position() {
    let stage = Fixture::new().await;
    for _ in 0..5 {
        stage.workload().await;
    }
    while stage.store.sequence().await.unwrap() > 0 {}
    let size = u64::try_from(stage.query_number("SELECT max(size) FROM fact_log").await).unwrap();
    stage.database.move_clock(100).await.unwrap();
    let lag = stage.store.projector_lag().await.unwrap();
    assert_eq!(lag.facts, size);
    assert!((Duration::from_secs(100)..Duration::from_secs(160)).contains(&lag.age), "{lag:?}");
    stage
        .store
        .commit_batch(scope(), 0..size - 1, stage.now_and_settings_generation().await, &Projection::default())
        .await
        .unwrap();
    assert_eq!(stage.store.projector_lag().await.unwrap().facts, 1);
    stage
        .store
        .commit_batch(scope(), size - 1..size, stage.now_and_settings_generation().await, &Projection::default())
        .await
        .unwrap();
    assert_eq!(stage.store.projector_lag().await.unwrap(), ProjectorLag::default());
}
