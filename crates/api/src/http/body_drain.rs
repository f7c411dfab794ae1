//! Drains unread request bodies.
//!
//! A request is often refused by path, caller or load before its body is read. The framework then closes the
//! connection, because it would parse the unread bytes as the next request. A reconnect costs client and server
//! work, which matters most under load. The middleware therefore reads and drops a short rest of the body before
//! the response. A long rest still closes the connection.

use super::body::content_length;
use actix_web::{
    Error,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::{ConnectionType, StatusCode},
    middleware::Next,
    web::Bytes,
};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// Maximum bytes that are drained for one request; a longer body closes the connection.
const MAX_DRAINED_BYTES: usize = 64 << 10;
/// Maximum number of bodies that one worker thread drains at a time. Each drain occupies its connection and about
/// 30 KiB of buffers. Beyond this number the response closes the connection instead.
const MAX_DRAINS: usize = 128;
/// Time limit for draining. Most short bodies arrive with their head.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Middleware that drains an unread request body. It must wrap every service that may refuse a request.
///
/// # Errors
/// The errors of the inner service.
pub async fn body_drain<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if matches!(request.parts_mut().1, Payload::None)
        || content_length(request.headers()).is_some_and(|length| length > MAX_DRAINED_BYTES)
    {
        return next.call(request).await;
    }
    let body = Rc::new(SharedBody {
        payload: RefCell::new(request.parts_mut().1.take()),
        has_ended: Cell::default(),
        has_failed: Cell::default(),
    });
    let handler_body = Rc::clone(&body);
    let payload_stream = stream::poll_fn(move |context| handler_body.poll(context));
    request.set_payload(Payload::Stream { payload: Box::pin(payload_stream) });
    let mut response = next.call(request).await;
    // A client that was too slow for the handler gets no additional time.
    let should_drain = response.as_ref().is_ok_and(|response| response.status() != StatusCode::REQUEST_TIMEOUT);
    if should_drain
        && !body.has_ended.get()
        // Bytes that have already arrived are dropped without waiting.
        && drain(&body).now_or_never().is_none()
        && let Some(_drain) = DrainPermit::acquire()
    {
        // The response is sent in any case; an undrained rest then closes the connection.
        let _ = timeout(DRAIN_TIMEOUT, drain(&body)).await;
    }
    if body.has_failed.get()
        && let Ok(response) = &mut response
    {
        // The end of the request is unknown, so the framework closes the connection.
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

thread_local! {
    static ACTIVE_DRAINS: Cell<usize> = const { Cell::new(0) };
}

/// The permit for one drain of this thread; dropping it ends the drain.
struct DrainPermit;

impl DrainPermit {
    /// Begins a drain, or returns `None` if [`MAX_DRAINS`] are active.
    fn acquire() -> Option<Self> {
        ACTIVE_DRAINS.with(|drains| {
            let active = drains.get();
            (active < MAX_DRAINS).then(|| {
                drains.set(active + 1);
                Self
            })
        })
    }
}

impl Drop for DrainPermit {
    fn drop(&mut self) {
        ACTIVE_DRAINS.with(|drains| drains.set(drains.get().saturating_sub(1)));
    }
}

/// A body that the handler reads first and the middleware drains.
struct SharedBody {
    payload: RefCell<Payload>,
    /// Whether the body has ended or failed; it must not be polled again.
    has_ended: Cell<bool>,
    /// Whether the framing of the body is broken, or the client has disconnected.
    has_failed: Cell<bool>,
}

impl SharedBody {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, PayloadError>>> {
        let part = self.payload.borrow_mut().poll_next_unpin(context);
        self.has_ended.set(matches!(part, Poll::Ready(None | Some(Err(_)))));
        self.has_failed.set(matches!(part, Poll::Ready(Some(Err(_)))));
        part
    }
}

async fn drain(body: &SharedBody) {
    let mut drained = 0_usize;
    while let Some(Ok(part)) = poll_fn(|context| body.poll(context)).await {
        drained = drained.saturating_add(part.len());
        if drained > MAX_DRAINED_BYTES {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::{
        App, HttpResponse,
        dev::Service as _,
        middleware::from_fn,
        test::{TestRequest, init_service},
        web,
    };

    #[test]
    fn bounds_the_drains_of_a_thread() {
        let drains: Vec<DrainPermit> = (0..MAX_DRAINS).map(|_| DrainPermit::acquire().unwrap()).collect();
        assert!(DrainPermit::acquire().is_none());
        drop(drains);
        assert!(DrainPermit::acquire().is_some());
    }

    #[actix_web::test]
    async fn drains_arrived_bytes_without_a_permit() {
        let _drains: Vec<DrainPermit> = (0..MAX_DRAINS).map(|_| DrainPermit::acquire().unwrap()).collect();
        let refuse = web::to(|| async { HttpResponse::NotFound().finish() });
        let app = init_service(App::new().wrap(from_fn(body_drain)).default_service(refuse)).await;
        let has_ended = Rc::new(Cell::new(false));
        let shared_has_ended = Rc::clone(&has_ended);
        let mut parts = vec![Bytes::from_static(b"{}")];
        let payload = stream::poll_fn(move |_| {
            let part = parts.pop();
            shared_has_ended.set(part.is_none());
            Poll::Ready(part.map(Ok))
        });
        let request = TestRequest::post().to_request();
        let (request, _) = request.replace_payload(Payload::Stream { payload: payload.boxed_local() });
        assert_eq!(app.call(request).await.unwrap().status(), StatusCode::NOT_FOUND);
        assert!(has_ended.get());
    }
}
