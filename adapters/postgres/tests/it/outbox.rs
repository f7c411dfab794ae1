//! The outbox in PostgreSQL: each delivery is claimed by one sender at a time, and a lane without answers delays no other.

use crate::{
    commits::notification::{projection_of, stored_destination},
    fixture::{Fixture, actor, open_store, scope},
};
use fairway_domain::{
    id::DestinationId,
    notification::{
        Channel,
        delivery::{DeliveryError, DeliveryTarget, NewDelivery},
        identifier::EventKey,
        message::SendFailure,
        ports::{AttemptOutcome, ClaimedDelivery, DeliveryClaim, OutboxStore, ProjectionStore},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::task::JoinSet;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(60);

fn claim(limit: u32, per_lane: u32, busy_lanes: Vec<Uuid>) -> DeliveryClaim {
    DeliveryClaim { claim_id: Uuid::now_v7(), limit, per_lane, busy_lanes, lease: LEASE }
}

/// Projects this number of facts, each with a delivery to every destination.
async fn project(stage: &Fixture, facts: usize, destinations: &[DestinationId]) {
    for position in 0..facts {
        let mut projection = projection_of(&actor(), false);
        let notification = projection.notifications[0].notification.clone();
        let event = EventKey::of_fact(notification.event_id);
        projection.deliveries = destinations
            .iter()
            .map(|destination| NewDelivery {
                delivery_id: event.delivery(&destination.to_string(), Channel::Webhook),
                channel: Channel::Webhook,
                target: DeliveryTarget::Destination(*destination),
                notification: notification.clone(),
                digest: None,
                requires_advanced_tier: false,
            })
            .collect();
        let position = position as u64;
        stage.store.commit_batch(scope(), position, position + 1, &projection).await.unwrap();
    }
}

async fn destinations(stage: &Fixture, count: usize) -> Vec<DestinationId> {
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
                let claimed = store.claim(&claim(3, 3, Vec::new())).await.unwrap();
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
    let first = stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().pop().unwrap();
    assert!(stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().is_empty(), "the lease holds");
    stage.database.move_clock(61).await.unwrap();
    let second = stage.store.claim(&claim(10, 10, Vec::new())).await.unwrap().pop().unwrap();
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
    let claimed = stage.store.claim(&claim(1_000, 8, Vec::new())).await.unwrap();
    let count = lanes(&claimed);
    assert_eq!(count.values().copied().collect::<Vec<_>>(), [8, 8, 8], "no lane exceeds its share");
    let black_hole = destinations[0].uuid();
    let others = stage.store.claim(&claim(1_000, 8, vec![black_hole])).await.unwrap();
    assert!(lanes(&others).len() == 2 && !lanes(&others).contains_key(&black_hole));
}

#[tokio::test]
async fn failed_projection_leaves_no_delivery() {
    let stage = Fixture::new().await;
    let destinations = destinations(&stage, 1).await;
    project(&stage, 1, &destinations).await;
    let mut projection = projection_of(&actor(), false);
    let notification = projection.notifications[0].notification.clone();
    projection.deliveries.push(NewDelivery {
        delivery_id: EventKey::of_fact(notification.event_id).delivery("x", Channel::Webhook),
        channel: Channel::Webhook,
        target: DeliveryTarget::Destination(destinations[0]),
        notification,
        digest: None,
        requires_advanced_tier: false,
    });
    // Another projector moved the position.
    assert!(stage.store.commit_batch(scope(), 0, 1, &projection).await.is_err());
    assert_eq!(stage.query_number("SELECT count(*) FROM notification_delivery").await, 1);
}
