//! Memory budget of large responses: a process-wide reservation until the client has read the last byte.
//!
//! A response becomes 503 if no memory is free for it; a repeated request with the same idempotency key receives
//! the response. Bodies are written in chunks, because the framework copies a whole body into its write buffer.

use super::{
    HttpState,
    client_address::client_of,
    idempotency::IDEMPOTENCY_KEY,
    memory_budget::{BudgetExhausted, RequestMemory, Reservation},
};
use crate::error::ApiError;
use actix_web::{
    Error, HttpMessage as _, ResponseError as _,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::{self, Bytes},
};
use fairway_memory_limit::{Admission, LimitReached, admit};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// Bytes of a chunk, about the write buffer of a connection. Shorter responses are not counted.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Time that a large response to a read waits for process memory. It is short, because the waiting response already
/// occupies memory.
const ADMISSION_WAIT: Duration = Duration::from_secs(1);

/// Middleware that reserves memory for responses. It must wrap every service that creates responses.
///
/// # Errors
/// The errors of the inner service.
pub async fn reserve_response_memory<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let response = next.call(request).await?.map_into_boxed_body();
    // A large response reuses the request's memory reservation if that is large enough, because it often repeats the
    // request's document. A stream releases the reservation, because its handler has dropped the document and the
    // stream can last as long as its run.
    let request_memory = response.request().extensions_mut().remove::<RequestMemory>();
    let bytes = match response.response().body().size() {
        BodySize::Sized(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        BodySize::None | BodySize::Stream => return Ok(response),
    };
    if bytes <= CHUNK_BYTES {
        return Ok(response);
    }
    let memory = match request_memory {
        Some(memory) if memory.bytes() >= bytes => ResponseMemory::Request(memory),
        Some(_) | None => {
            let base = response.request().app_data::<web::Data<HttpState>>();
            let client = client_of(response.request());
            // The process limit refuses responses to reads only, because a client can repeat a read. Responses to
            // changes need a budget reservation only.
            let admission = match response.request().method().is_safe() {
                true => admit(bytes, ADMISSION_WAIT).await.map(Admission::detach),
                false => Ok(()),
            };
            let reserve = |base: &web::Data<HttpState>| match admission {
                Ok(()) => base.memory_budgets.reserve_response(client, bytes),
                Err(LimitReached) => Err(BudgetExhausted),
            };
            match base.map(reserve) {
                Some(Ok(reservation)) => ResponseMemory::Reserved(reservation),
                // Only apps of unit tests lack an `HttpState`.
                None => return Ok(response),
                Some(Err(_)) => {
                    let refusal = refusal_without_memory(&response);
                    let (request, _) = response.into_parts();
                    return Ok(ServiceResponse::new(request, refusal.error_response()));
                }
            }
        }
    };
    Ok(response.map_body(|_, body| match body.try_into_bytes() {
        Ok(bytes) => BoxBody::new(ChunkedBody { bytes, _memory: memory }),
        Err(body) => BoxBody::new(SizedBody { body, _memory: memory }),
    }))
}

/// The 503 for a response without memory. If the change is committed and the request has no idempotency key, the
/// error states that the change may have happened.
fn refusal_without_memory<B>(response: &ServiceResponse<B>) -> ApiError {
    let is_change = !response.request().method().is_safe() && response.status().is_success();
    if is_change && !response.request().headers().contains_key(IDEMPOTENCY_KEY) {
        ApiError::response_lost()
    } else {
        ApiError::unavailable()
    }
}

/// The memory reservation of a response until it is written.
enum ResponseMemory {
    Reserved(#[expect(dead_code, reason = "dropped with the response")] Reservation),
    Request(#[expect(dead_code, reason = "dropped with the response")] RequestMemory),
}

/// A body that is written chunk by chunk, because the framework would copy a whole body.
struct ChunkedBody {
    bytes: Bytes,
    _memory: ResponseMemory,
}

impl MessageBody for ChunkedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.bytes.len().min(CHUNK_BYTES);
        Poll::Ready((length > 0).then(|| Ok(self.bytes.split_to(length))))
    }
}

/// A body of known size that produces its own chunks.
struct SizedBody {
    body: BoxBody,
    _memory: ResponseMemory,
}

impl MessageBody for SizedBody {
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
