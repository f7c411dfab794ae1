//! Operations on deliveries: listing, manual retries, and tests of destinations.

use super::Notifications;
use crate::{
    Failure, MaybeReplayed,
    access::{Operation, authorize},
    idempotency::{MAX_ATTEMPTS, keyed_outcome},
};
use fairway_domain::{
    access::Caller,
    id::{DeliveryId, DestinationId},
    idempotency::RequestKey,
    notification::{
        Severity,
        console_link::INBOX_PAGE_PATH,
        delivery::{Delivery, DeliveryError},
        destination::DestinationScope,
        message::{NotificationMessage, OutgoingMessage, Receiver},
        ports::DeliveryFilter,
    },
    notification_category::NotificationCategory,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
};
use std::time::{Duration, Instant};

/// Result of sending a test message to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestinationTest {
    /// Reason why the receiver did not accept the message; `None` if it did.
    pub error: Option<DeliveryError>,
    /// HTTP status of the response, if a response arrived.
    pub response_status: Option<u16>,
    /// Time until the response arrived or the attempt failed.
    pub duration: Duration,
}

impl Notifications {
    /// Lists deliveries outside the inbox, newest first: those of the workspace in the filter, or else of all scopes in
    /// which the caller may view deliveries.
    ///
    /// # Errors
    /// When the caller may not view deliveries in that scope, or the tenant's notifications are off.
    pub async fn list_deliveries(
        &self,
        caller: &Caller,
        filter: DeliveryFilter,
        page: PageRequest,
    ) -> Result<Page<Delivery>, Failure> {
        let operation = Operation::ListDeliveries;
        let (scope, visible_scopes) =
            self.scope_resolver.authorize_list_of(caller, operation, filter.workspace).await?;
        self.require_enabled(scope).await?;
        Ok(self.delivery_store.list(scope, filter, visible_scopes.as_ref(), page).await?)
    }

    /// Schedules one more attempt of a failed delivery.
    ///
    /// # Errors
    /// Not found when the caller may not view the delivery; refused when the caller may not manage destinations in its
    /// scope, or the delivery has not failed.
    pub async fn retry_delivery(
        &self,
        caller: &Caller,
        id: DeliveryId,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<Delivery>, Failure> {
        let scope = TenantScope::for_caller(caller);
        let (_, position) = self.delivery_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
        let scope = authorize::authorize(caller, Operation::RetryDelivery, &position)?;
        self.require_enabled(scope).await?;
        let retried = self.keyed_requests.idempotent(
            scope,
            key,
            async || {
                for _ in 0..MAX_ATTEMPTS {
                    let (delivery, _) = self.delivery_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
                    let change = delivery.retry(&self.context.stamp(caller))?;
                    let retried_delivery = change.next.clone();
                    let outcome = keyed_outcome(key, 200, id.uuid());
                    match self.delivery_store.commit_retry(scope, change, outcome.as_ref()).await {
                        Err(CommitError::Stale) => continue,
                        committed => committed?,
                    }
                    self.context.notify_facts();
                    self.outbox_wakeup.notify_one();
                    return Ok(retried_delivery);
                }
                Err(Failure::Contended)
            },
            async |_| Ok(self.delivery_store.find(scope, id).await?.ok_or(Failure::NotFound)?.0),
        );
        retried.await
    }

    /// Sends a test message to a destination, even if the destination is disabled, and waits for the receiver's
    /// response.
    ///
    /// # Errors
    /// As [`Self::read_destination`].
    pub async fn test_destination(
        &self,
        caller: &Caller,
        destination_scope: DestinationScope,
        id: DestinationId,
    ) -> Result<DestinationTest, Failure> {
        let operations = [Operation::TestOrganizationDestination, Operation::TestWorkspaceDestination];
        let scope = self.authorize_destinations(caller, destination_scope, operations).await?;
        let destination = self.destination_store.find(scope, destination_scope, id).await?.ok_or(Failure::NotFound)?;
        let tenant = self.tenant_store.find(scope).await?.ok_or(Failure::NotFound)?;
        let stamp = self.context.stamp(caller);
        let message = NotificationMessage {
            delivery_id: self.context.new_id(),
            tenant: scope.tenant(),
            category: NotificationCategory::Reports,
            severity: Severity::Info,
            title: "A test message of Fairway".to_owned(),
            body: format!("Destination {id} receives notifications."),
            link: Some(INBOX_PAGE_PATH.to_owned()),
            event_kind: "notification.destination_tested".to_owned(),
            event_id: stamp.fact_id,
            workspace_id: destination_scope.workspace(),
            workload_id: None,
            environment: None,
            created_at: stamp.at,
            lines: Vec::new(),
            omitted_lines: 0,
        };
        let outgoing = OutgoingMessage {
            tenant_slug: tenant.slug.clone(),
            channel: destination.destination_type,
            receiver: Receiver::Destination {
                configuration: destination.configuration.clone(),
                secret_ref: destination.secret_ref.clone(),
            },
            message,
        };
        let started_at = Instant::now();
        let send_result = self.message_sender.send(&outgoing).await;
        let duration = started_at.elapsed();
        let error = send_result.err().map(|failure| failure.error);
        match self.destination_store.commit_test(scope, id, destination.test_fact(error, &stamp)).await {
            // A concurrent request deleted the destination.
            Err(CommitError::Stale) => return Err(Failure::NotFound),
            committed => committed?,
        }
        self.context.notify_facts();
        let response_status = match send_result {
            Ok(status) => status,
            Err(failure) => failure.status,
        };
        Ok(DestinationTest { error, response_status, duration })
    }
}
