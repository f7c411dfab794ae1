//! A receiver that accepts connections and never responds, beside receivers that respond.

use crate::{
    delivery::{await_deliveries, opt_in_to_incidents, server, suspend, webhook},
    support::workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use std::time::{Duration, Instant};

/// Maximum concurrent delivery attempts to one receiver.
const MAX_PER_RECEIVER: i64 = 8;
/// Number of deliveries to the unresponsive receiver; more than a process attempts concurrently.
const HELD: i64 = 300;
/// Number of deliveries to each responding receiver.
const FREE: i64 = 30;
/// Number of responding receivers.
const OTHERS: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Queues copies of each destination's delivery: `HELD` for the unresponsive receiver, and `FREE` for each other
/// receiver.
async fn queue(owner: &tokio_postgres::Client, unresponsive: uuid::Uuid) {
    let copies = "INSERT INTO notification_delivery
        SELECT copy.* FROM notification_delivery AS delivery
        CROSS JOIN LATERAL generate_series(1, CASE WHEN destination_id = $1 THEN $2::bigint ELSE $3::bigint END) AS n
        CROSS JOIN LATERAL (
            SELECT md5(delivery_id::text || n)::uuid AS random, left(delivery_id::text, 15) AS time_and_version
        ) AS parts
        CROSS JOIN LATERAL jsonb_populate_record(delivery, jsonb_build_object(
            'delivery_id', time_and_version || right(random::text, 21), 'status', 'pending', 'attempts', 0,
            'due_at', fairway_now(), 'claim_id', NULL, 'last_error', NULL, 'last_http_status', NULL, 'sent_at', NULL
        )) AS copy";
    let queued = owner.execute(copies, &[&unresponsive, &HELD, &FREE]).await.unwrap();
    let other_deliveries = u64::try_from(FREE).unwrap() * u64::try_from(OTHERS).unwrap();
    assert_eq!(queued, u64::try_from(HELD).unwrap() + other_deliveries);
}

/// Numbers of deliveries by receiver and state.
struct Counts {
    /// Claimed deliveries to the unresponsive receiver.
    held: i64,
    /// Deliveries to the unresponsive receiver that have ended, with any result.
    ended: i64,
    /// Deliveries to the responding receivers that are not yet sent.
    delayed: i64,
}

async fn count(owner: &tokio_postgres::Client, unresponsive: uuid::Uuid) -> Counts {
    let counts = "SELECT count(*) FILTER (WHERE destination_id = $1 AND status = 'claimed'),
            count(*) FILTER (WHERE destination_id = $1 AND status NOT IN ('pending', 'claimed')),
            count(*) FILTER (WHERE destination_id <> $1 AND status <> 'sent')
        FROM notification_delivery";
    let row = owner.query_one(counts, &[&unresponsive]).await.unwrap();
    Counts { held: row.get(0), ended: row.get(1), delayed: row.get(2) }
}

/// Polls the counts until they meet a condition. Asserts that the unresponsive receiver never exceeds its share of
/// attempts.
async fn await_counts(app: &TestApp, unresponsive: uuid::Uuid, is_met: impl Fn(&Counts) -> bool) {
    let owner = app.database().connect_as_owner().await.unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let counts = count(&owner, unresponsive).await;
        let Counts { held: held_count, ended, delayed } = counts;
        assert!(held_count <= MAX_PER_RECEIVER, "the unresponsive receiver has {held_count} attempts at the same time");
        if is_met(&counts) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "to the unresponsive receiver: {held_count} held, {ended} ended; to the others: {delayed} wait"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn unresponsive_receiver_delays_only_its_own_deliveries() {
    let (app, _secrets) = server("").await;
    let fixture = WorkspaceFixture::create(&app).await;
    let hole = ScriptedEndpoint::start().await;
    hole.respond_with(ScriptedResponse::status(204, "").with_initial_pause());
    let unresponsive: uuid::Uuid = webhook(&app, "hole", &hole.url("/in"), None).await.parse().unwrap();
    let mut other_receivers = Vec::new();
    for number in 0..OTHERS {
        let receiver = ScriptedEndpoint::start().await;
        receiver.respond_with(ScriptedResponse::status(204, ""));
        webhook(&app, &format!("other {number}"), &receiver.url("/in"), None).await;
        other_receivers.push(receiver);
    }
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    await_deliveries(&app, |found| found.len() == OTHERS + 1).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    queue(&owner, unresponsive).await;
    // No delivery to the unresponsive receiver ends before the test releases it, however long the other deliveries
    // take.
    await_counts(&app, unresponsive, |counts| {
        assert_eq!(counts.ended, 0);
        counts.delayed == 0
    })
    .await;
    for receiver in &other_receivers {
        assert!(i64::try_from(receiver.request_count()).unwrap() > FREE);
    }
    // The unresponsive receiver occupies all of its attempts. Deliveries of a later fact to the other receivers still
    // succeed.
    hole.wait_for_requests(usize::try_from(MAX_PER_RECEIVER).unwrap()).await;
    suspend(&fixture).await;
    other_receivers[0].wait_for_requests(usize::try_from(FREE + 2).unwrap()).await;
    await_counts(&app, unresponsive, |counts| {
        assert_eq!(counts.ended, 0);
        counts.delayed == 0
    })
    .await;
    // Once the receiver responds, the deliveries to it succeed too.
    hole.respond_with(ScriptedResponse::status(204, ""));
    hole.release_pauses(1_000);
    await_counts(&app, unresponsive, |counts| counts.ended == HELD + 2).await;
    let failed = "SELECT count(*) FROM notification_delivery WHERE status <> 'sent'";
    assert_eq!(owner.query_one(failed, &[]).await.unwrap().get::<_, i64>(0), 0);
}
