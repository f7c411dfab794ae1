//! What nobody read of a body.
//!
//! A request is often refused before its body is asked for: by its path, its caller, or for load. The framework then has to
//! end the connection, because the rest of the body would be taken for the next request, and clients that are refused under
//! load spend both machines on connecting again. So the short rest of a body is read and dropped before the answer goes out.
//! A long one ends its connection as before: it may cost its sender more than it costs us.

use super::body::content_length;
use actix_web::{
    Error,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::PayloadError,
    http::StatusCode,
    middleware::Next,
    web::Bytes,
};
use futures_util::{StreamExt as _, stream};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// What is read of a body for nothing, at most, in bytes.
const SHORT: usize = 64 << 10;
/// How long that may take. Most short bodies arrived with their head.
const PATIENCE: Duration = Duration::from_millis(250);

/// The middleware. It goes around everything that may refuse a request.
///
/// # Errors
/// Those of the inside.
pub async fn unread<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if matches!(request.parts_mut().1, Payload::None)
        || content_length(request.headers()).is_some_and(|length| length > SHORT)
    {
        return next.call(request).await;
    }
    let body = Rc::new(Body { payload: RefCell::new(request.parts_mut().1.take()), over: Cell::new(false) });
    let read = Rc::clone(&body);
    let shared = stream::poll_fn(move |context| read.poll(context));
    request.set_payload(Payload::Stream { payload: Box::pin(shared) });
    let answer = next.call(request).await;
    // Whoever was too slow for the handler gets no time here either.
    let waits = answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::REQUEST_TIMEOUT);
    if waits && !body.over.get() {
        // However it ends, the answer goes out; what is left of the body then ends the connection.
        let _ = timeout(PATIENCE, drop_rest(&body)).await;
    }
    answer
}

/// A body that is read by whoever is asked first, and then here.
struct Body {
    payload: RefCell<Payload>,
    /// It was read to its end, or broke: nothing more comes, and nobody says so twice.
    over: Cell<bool>,
}

impl Body {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, PayloadError>>> {
        let part = self.payload.borrow_mut().poll_next_unpin(context);
        self.over.set(matches!(part, Poll::Ready(None | Some(Err(_)))));
        part
    }
}

async fn drop_rest(body: &Body) {
    let mut dropped = 0_usize;
    while let Some(Ok(part)) = poll_fn(|context| body.poll(context)).await {
        dropped = dropped.saturating_add(part.len());
        if dropped > SHORT {
            return;
        }
    }
}
