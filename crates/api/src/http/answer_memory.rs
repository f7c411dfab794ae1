//! Large answers that clients have not read yet take memory of a process-wide budget, from their first byte to their last.
//!
//! An answer that finds no room becomes 503. A repeat of the request with its idempotency key gets the answer. Answers are
//! written in portions: the framework copies a whole body into what it writes next.

use super::{
    HttpBase,
    client_address::client_of,
    idempotency::IDEMPOTENCY_KEY,
    memory::{Exhausted, RequestMemory, Reservation},
};
use crate::error::ApiError;
use actix_web::{
    Error, HttpMessage as _, ResponseError as _,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::{self, Bytes},
};
use fairway_memory_limit::try_admit;
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

/// Bytes of a portion, which is about what a connection buffers. Shorter answers are not counted.
pub(crate) const PORTION: usize = 64 << 10;

/// The middleware. Everything that makes answers is inside of it.
///
/// # Errors
/// Those of the inside.
pub async fn answer_memory<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let answer = next.call(request).await?.map_into_boxed_body();
    // The request's own memory goes with its answer: a document that was just stored is what is answered. A stream begins
    // after the handler has let go of the document, and may last for as long as its run.
    let of_request = answer.request().extensions_mut().remove::<RequestMemory>();
    let bytes = match answer.response().body().size() {
        BodySize::Sized(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        BodySize::None | BodySize::Stream => return Ok(answer),
    };
    if bytes <= PORTION {
        return Ok(answer);
    }
    let held = match of_request {
        Some(memory) if memory.bytes() >= bytes => Held::Request(memory),
        Some(_) | None => {
            let base = answer.request().app_data::<web::Data<HttpBase>>();
            let client = client_of(answer.request());
            // A read can be repeated once the process has memory again. What a change answers is refused by the budget alone.
            let is_refused = answer.request().method().is_safe() && try_admit(0).is_err();
            let reserve = |base: &web::Data<HttpBase>| match is_refused {
                true => Err(Exhausted),
                false => base.memory.answer(client, bytes),
            };
            match base.map(reserve) {
                Some(Ok(reservation)) => Held::Answer(reservation),
                // Tests of parts have no base.
                None => return Ok(answer),
                Some(Err(_)) => {
                    let refusal = without_room(&answer);
                    let (request, _) = answer.into_parts();
                    return Ok(ServiceResponse::new(request, refusal.error_response()));
                }
            }
        }
    };
    Ok(answer.map_body(|_, body| match body.try_into_bytes() {
        Ok(bytes) => BoxBody::new(Portions { bytes, _held: held }),
        Err(body) => BoxBody::new(Whole { body, _held: held }),
    }))
}

/// The refusal of an answer without room. A change has been committed by then, and without a key nothing else tells its
/// caller of it.
fn without_room<B>(answer: &ServiceResponse<B>) -> ApiError {
    let is_change = !answer.request().method().is_safe() && answer.status().is_success();
    if is_change && !answer.request().headers().contains_key(IDEMPOTENCY_KEY) {
        ApiError::answer_lost()
    } else {
        ApiError::unavailable()
    }
}

/// What counts for an answer until it is written.
enum Held {
    Answer(#[expect(dead_code, reason = "dropped with the answer")] Reservation),
    Request(#[expect(dead_code, reason = "dropped with the answer")] RequestMemory),
}

/// Bytes that are written portion by portion.
struct Portions {
    bytes: Bytes,
    _held: Held,
}

impl MessageBody for Portions {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let portion = self.bytes.len().min(PORTION);
        Poll::Ready((portion > 0).then(|| Ok(self.bytes.split_to(portion))))
    }
}

/// A body of a known size that makes its portions itself.
struct Whole {
    body: BoxBody,
    _held: Held,
}

impl MessageBody for Whole {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

#[cfg(test)]
mod tests;
