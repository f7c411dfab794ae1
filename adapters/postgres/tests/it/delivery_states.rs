//! Compares the outbox statements with the domain's table of transitions, for every event in every delivery status.

use crate::{
    fixture::{Fixture, scope, stamp},
    outbox::{claim, destinations, project},
};
use fairway_domain::{
    notification::{
        delivery::{DeliveryError, DeliveryEvent, DeliveryStatus},
        message::SendFailure,
        ports::{AttemptOutcome, ClaimedDelivery, DeliveryClaimRef, DeliveryStore, OutboxStore},
    },
    store::CommitError,
};
use std::time::Duration;

/// A delivery whose status the test can set.
struct DeliveryFixture {
    fixture: Fixture,
    /// The delivery, with the claim that it has in status `claimed`.
    claimed: ClaimedDelivery,
}

impl DeliveryFixture {
    async fn create() -> Self {
        let fixture = Fixture::new().await;
        let destinations = destinations(&fixture, 1).await;
        project(&fixture, 1, &destinations).await;
        let claimed = fixture.store.claim(&claim(1, 1, Vec::new())).await.unwrap().deliveries.pop().unwrap();
        Self { fixture, claimed }
    }

    /// Sets the status of the delivery. The delivery then has one attempt, is due, and belongs to the current settings.
    async fn reset(&self, status: DeliveryStatus) {
        let claim = self.claimed.claim_id;
        let status = status.as_str();
        let reset = format!(
            "UPDATE notification_delivery AS delivery SET status = '{status}', attempts = 1, revision = 1,
                claim_id = CASE WHEN '{status}' = 'claimed' THEN '{claim}'::uuid END,
                sent_at = CASE WHEN '{status}' = 'sent' THEN now() END,
                due_at = fairway_now() - interval '1 second',
                notification_generation = tenant.notification_generation,
                destination_generation = (SELECT generation FROM notification_destination)
             FROM tenant WHERE tenant.tenant_id = delivery.tenant_id"
        );
        self.fixture.run(&reset).await;
    }

    /// The status of the delivery, and whether the delivery has changed since its reset.
    async fn read(&self) -> (DeliveryStatus, bool) {
        let sql = "SELECT status, revision FROM notification_delivery";
        let row = self.fixture.owner.query_one(sql, &[]).await.unwrap();
        (DeliveryStatus::parse(row.get(0)).unwrap(), row.get::<_, i64>(1) != 1)
    }

    async fn cause(&self, status: DeliveryStatus, event: DeliveryEvent) {
        let store = &self.fixture.store;
        let failure = SendFailure::without_response(DeliveryError::TimedOut);
        let finish = async |outcome| store.finish(&self.claimed, outcome).await.unwrap();
        let claim_after = async |change: &str| {
            if !change.is_empty() {
                self.fixture.run(&format!("UPDATE notification_delivery SET {change}")).await;
            }
            store.claim(&claim(1, 1, Vec::new())).await.unwrap();
        };
        match event {
            DeliveryEvent::Claimed => claim_after("").await,
            DeliveryEvent::SettingDisabled => claim_after("notification_generation = -1").await,
            DeliveryEvent::DestinationDisabled => claim_after("destination_generation = -1").await,
            DeliveryEvent::Returned => {
                let message = &self.claimed.outgoing.message;
                store
                    .release(&[DeliveryClaimRef {
                        tenant: message.tenant,
                        delivery_id: message.delivery_id,
                        claim_id: self.claimed.claim_id,
                    }])
                    .await
                    .unwrap();
            }
            DeliveryEvent::Accepted => finish(AttemptOutcome::Sent(Some(200))).await,
            DeliveryEvent::AttemptFailed => finish(AttemptOutcome::Retry(failure, Duration::ZERO)).await,
            DeliveryEvent::GivenUp => finish(AttemptOutcome::Failed(failure)).await,
            DeliveryEvent::RetriedByHand => {
                // The retry is decided while the delivery is `failed`, and committed in the given status.
                self.reset(DeliveryStatus::Failed).await;
                let id = self.claimed.outgoing.message.delivery_id;
                let (failed, _) = DeliveryStore::find(&**store, scope(), id).await.unwrap().unwrap();
                let change = failed.retry(&stamp()).unwrap();
                self.reset(status).await;
                match store.commit_retry(scope(), change, None).await {
                    Ok(()) | Err(CommitError::Stale) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn outbox_accepts_the_transitions_of_the_domain_and_no_others() {
    let delivery_fixture = DeliveryFixture::create().await;
    for status in DeliveryStatus::ALL {
        for event in DeliveryEvent::ALL {
            delivery_fixture.reset(status).await;
            delivery_fixture.cause(status, event).await;
            let expected = status.after(event);
            let found = delivery_fixture.read().await;
            assert_eq!(found, (expected.unwrap_or(status), expected.is_some()), "{status:?} {event:?}");
        }
    }
}
