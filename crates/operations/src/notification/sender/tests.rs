//! Tests of the sender with an outbox that responds only when the test permits it, and with a channel that panics.

use super::*;
use async_trait::async_trait;
use fairway_domain::{
    clock::Clock,
    id::IdSource,
    notification::{
        Channel, Severity,
        backlog::{ChannelBacklog, ProjectorLag},
        message::{NotificationMessage, OutgoingMessage, Receiver},
    },
    notification_category::NotificationCategory,
    slug::Slug,
    time::Timestamp,
};
use tokio::sync::Semaphore;

const GRACE: Duration = Duration::from_secs(5);

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::parse("2026-11-28T09:00:00Z").unwrap()
    }
}

impl IdSource for Fixed {
    fn new_id(&self) -> Uuid {
        Uuid::from_u128(7)
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }

    fn secret(&self) -> [u8; 32] {
        [0; 32]
    }
}

impl NotificationMetricsObserver for Fixed {
    fn attempt_ended(&self, _: Channel, _: &AttemptOutcome) {}

    fn backlog_measured(&self, _: &[ChannelBacklog], _: ProjectorLag) {}
}

/// A message channel that panics on each message.
struct Panicking;

#[async_trait]
impl MessageSender for Panicking {
    async fn send(&self, _: &OutgoingMessage) -> Result<Option<u16>, SendFailure> {
        panic!("a channel that panics")
    }
}

/// An outbox with one delivery. A claim returns the delivery only after the test adds a permit.
struct Outbox {
    claim_started: Notify,
    permits: Semaphore,
    /// The active attempts by lane that each claim named.
    in_progress: Mutex<Vec<Vec<(Uuid, u32)>>>,
    released: Mutex<Vec<DeliveryId>>,
}

impl Outbox {
    fn new(permits: usize) -> Arc<Self> {
        let (in_progress, released) = (Mutex::default(), Mutex::default());
        Arc::new(Self { claim_started: Notify::new(), permits: Semaphore::new(permits), in_progress, released })
    }

    /// Creates a sender that claims from this outbox.
    fn sender(self: &Arc<Self>) -> Arc<NotificationSender> {
        let outbox_store: Arc<Self> = Arc::clone(self);
        Arc::new(NotificationSender {
            context: CommitContext::new(Arc::new(Fixed), Arc::new(Fixed)),
            outbox_store,
            message_sender: Arc::new(Panicking),
            outbox_wakeup: Arc::default(),
            observer: Arc::new(Fixed),
            attempts: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            claiming: tokio::sync::Mutex::default(),
        })
    }
}

fn delivery_id() -> DeliveryId {
    Uuid::from_u128(2).into()
}

fn delivery(claim_id: Uuid) -> ClaimedDelivery {
    let message = NotificationMessage {
        delivery_id: delivery_id(),
        tenant: Uuid::from_u128(1).into(),
        category: NotificationCategory::Incidents,
        severity: Severity::Info,
        title: "A title".to_owned(),
        body: "A body".to_owned(),
        link: None,
        event_kind: "workload.changed".to_owned(),
        event_id: Uuid::from_u128(3).into(),
        workspace_id: None,
        workload_id: None,
        environment: None,
        created_at: Fixed.now(),
        lines: Vec::new(),
        omitted_lines: 0,
    };
    let (tenant_slug, receiver) = (Slug::parse("default").unwrap(), Receiver::Mailbox(None));
    let outgoing = OutgoingMessage { tenant_slug, channel: Channel::Email, receiver, message };
    ClaimedDelivery { claim_id, lane: Uuid::from_u128(4), attempt: 1, outgoing }
}

#[async_trait]
impl OutboxStore for Outbox {
    async fn claim(&self, claim: &DeliveryClaimRequest) -> Result<ClaimResult, StoreError> {
        self.in_progress.lock().unwrap().push(claim.in_progress.clone());
        self.claim_started.notify_one();
        self.permits.acquire().await.unwrap().forget();
        Ok(ClaimResult { deliveries: vec![delivery(claim.claim_id)], skipped: 0 })
    }

    async fn finish(&self, _: &ClaimedDelivery, _: AttemptOutcome) -> Result<(), StoreError> {
        Ok(())
    }

    async fn release(&self, claims: &[DeliveryClaimRef]) -> Result<(), StoreError> {
        self.released.lock().unwrap().extend(claims.iter().map(|claim| claim.delivery_id));
        Ok(())
    }
}

/// The paused clock advances while all tasks wait, so the test does not wait for the grace period in real time.
#[tokio::test(start_paused = true)]
async fn drain_releases_the_deliveries_of_a_claim_in_progress() {
    let outbox = Outbox::new(0);
    let sender = outbox.sender();
    let claim_task = tokio::spawn({
        let sender = Arc::clone(&sender);
        async move { sender.claim(1).await.unwrap().deliveries.len() }
    });
    outbox.claim_started.notified().await;
    let drain = tokio::spawn({
        let sender = Arc::clone(&sender);
        async move { sender.drain(GRACE).await }
    });
    while !sender.is_stopping.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    assert!(!drain.is_finished(), "the claim in progress may still get deliveries");
    outbox.permits.add_permits(1);
    assert_eq!(claim_task.await.unwrap(), 1);
    drain.await.unwrap();
    assert_eq!(*outbox.released.lock().unwrap(), [delivery_id()], "nobody attempts it");
    assert!(sender.claim(1).await.unwrap().deliveries.is_empty(), "a stopping sender claims nothing");
    assert_eq!(outbox.in_progress.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn panicking_attempt_frees_its_slot_in_the_lane() {
    let outbox = Outbox::new(2);
    let sender = outbox.sender();
    for turn in 0..2 {
        let claimed = sender.claim(1).await.unwrap().deliveries.pop().unwrap();
        assert_eq!(sender.attempts().len(), 1, "turn {turn}");
        let attempt = tokio::spawn({
            let sender = Arc::clone(&sender);
            async move { sender.attempt(claimed).await }
        });
        assert!(attempt.await.unwrap_err().is_panic());
        assert!(sender.attempts().is_empty(), "turn {turn}");
    }
    let in_progress = outbox.in_progress.lock().unwrap();
    assert!(in_progress.len() == 2 && in_progress.iter().all(Vec::is_empty), "the lane has all its places again");
}
