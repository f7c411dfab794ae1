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
use futures_util::{FutureExt as _, StreamExt as _, stream};
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
/// Bodies whose rest one worker thread drops at a time. Each holds its connection and some 30 KiB of buffers; beyond this
/// number the answer ends the connection instead.
const MAX_DRAINS: usize = 128;
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
    if waits
        && !body.over.get()
        // What has arrived already costs no wait.
        && drop_rest(&body).now_or_never().is_none()
        && let Some(_drain) = Drain::begin()
    {
        // However it ends, the answer goes out; what is left of the body then ends the connection.
        let _ = timeout(PATIENCE, drop_rest(&body)).await;
    }
    answer
}

thread_local! {
    static DRAINS: Cell<usize> = const { Cell::new(0) };
}

/// One of the bodies whose rest this thread drops, until this value is dropped.
struct Drain;

impl Drain {
    /// Begins a drain; none beyond [`MAX_DRAINS`].
    fn begin() -> Option<Self> {
        DRAINS.with(|drains| {
            let under_way = drains.get();
            (under_way < MAX_DRAINS).then(|| {
                drains.set(under_way + 1);
                Self
            })
        })
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        DRAINS.with(|drains| drains.set(drains.get().saturating_sub(1)));
    }
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
        let drains: Vec<Drain> = (0..MAX_DRAINS).map(|_| Drain::begin().unwrap()).collect();
        assert!(Drain::begin().is_none());
        drop(drains);
        assert!(Drain::begin().is_some());
    }

    #[actix_web::test]
    async fn drops_what_has_arrived_while_every_drain_is_taken() {
        let _drains: Vec<Drain> = (0..MAX_DRAINS).map(|_| Drain::begin().unwrap()).collect();
        let refuse = web::to(|| async { HttpResponse::NotFound().finish() });
        let app = init_service(App::new().wrap(from_fn(unread)).default_service(refuse)).await;
        let ended = Rc::new(Cell::new(false));
        let tell = Rc::clone(&ended);
        let mut parts = vec![Bytes::from_static(b"{}")];
        let payload = stream::poll_fn(move |_| {
            let part = parts.pop();
            tell.set(part.is_none());
            Poll::Ready(part.map(Ok))
        });
        let request = TestRequest::post().to_request();
        let (request, _) = request.replace_payload(Payload::Stream { payload: payload.boxed_local() });
        assert_eq!(app.call(request).await.unwrap().status(), StatusCode::NOT_FOUND);
        assert!(ended.get());
    }
}
