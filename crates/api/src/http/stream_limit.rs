//! Limits on open event streams. Each stream polls a run or an inbox, so the number of streams is bounded.

use crate::error::ApiError;
use actix_web::http::{
    StatusCode,
    header::{HeaderValue, RETRY_AFTER},
};
use fairway_domain::{
    access::ActorRef,
    client_address::ClientAddress,
    id::{ExecutionId, TenantId},
};
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum open streams of one run or one inbox.
const MAX_STREAMS_PER_SUBJECT: usize = 32;
/// Maximum open streams of guests from one address.
const MAX_STREAMS_PER_CLIENT: usize = 8;
/// Maximum streams of this process. Each stream occupies the buffers of a connection and polls its subject.
const MAX_STREAMS: usize = 1_024;
/// `Retry-After` in seconds, after which a stream has probably ended.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// The source of a stream's events.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum StreamSubject {
    /// The events of a run.
    Run(ExecutionId),
    /// The inbox of a person.
    Inbox(TenantId, ActorRef),
}

/// Counts the open streams of this process. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct StreamLimiter(Arc<Mutex<StreamCounts>>);

#[derive(Debug, Default)]
struct StreamCounts {
    total: usize,
    by_subject: HashMap<StreamSubject, usize>,
    by_client: HashMap<ClientAddress, usize>,
}

/// The permit of an open stream. Dropping it marks the stream as closed.
#[derive(Debug)]
#[must_use = "the stream counts as closed once this is dropped"]
pub(crate) struct StreamPermit {
    limiter: StreamLimiter,
    subject: StreamSubject,
    client: Option<ClientAddress>,
}

impl StreamLimiter {
    /// Acquires a permit for a stream of a subject, and of a client if the caller is a guest.
    pub(crate) fn acquire(
        &self,
        subject: StreamSubject,
        client: Option<ClientAddress>,
    ) -> Result<StreamPermit, ApiError> {
        let mut counts = self.counts();
        let or_zero = |count: Option<&usize>| count.copied().unwrap_or_default();
        let is_exceeded = counts.total >= MAX_STREAMS
            || or_zero(counts.by_subject.get(&subject)) >= MAX_STREAMS_PER_SUBJECT
            || client.is_some_and(|client| or_zero(counts.by_client.get(&client)) >= MAX_STREAMS_PER_CLIENT);
        if is_exceeded {
            let message = "too many streams are open; close one or try again later";
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message);
            return Err(error.with_header(RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        counts.total += 1;
        *counts.by_subject.entry(subject.clone()).or_default() += 1;
        if let Some(client) = client {
            *counts.by_client.entry(client).or_default() += 1;
        }
        Ok(StreamPermit { limiter: self.clone(), subject, client })
    }

    fn counts(&self) -> MutexGuard<'_, StreamCounts> {
        // A panic elsewhere leaves the counts consistent, because each update is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut counts = self.limiter.counts();
        counts.total = counts.total.saturating_sub(1);
        decrement(&mut counts.by_subject, &self.subject);
        if let Some(client) = self.client {
            decrement(&mut counts.by_client, &client);
        }
    }
}

/// Decrements a count and removes it at zero.
fn decrement<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn limits_streams_per_process() {
        let limiter = StreamLimiter::default();
        let run = |number: usize| StreamSubject::Run(Uuid::from_u128(number as u128).into());
        let permits: Vec<StreamPermit> =
            (0..MAX_STREAMS).map(|number| limiter.acquire(run(number), None).unwrap()).collect();
        assert_eq!(limiter.acquire(run(MAX_STREAMS), None).unwrap_err().code(), "too_many_streams");
        drop(permits);
        assert!(limiter.acquire(run(MAX_STREAMS), None).is_ok());
    }

    #[test]
    fn releases_permit_when_stream_ends() {
        let limiter = StreamLimiter::default();
        let run = |number| StreamSubject::Run(Uuid::from_u128(number).into());
        let client = ClientAddress::from_ip_truncating_v6("192.0.2.1".parse().unwrap());
        let mut permits: Vec<StreamPermit> = (0..MAX_STREAMS_PER_CLIENT as u128)
            .map(|number| limiter.acquire(run(number), Some(client)).unwrap())
            .collect();
        assert!(limiter.acquire(run(100), Some(client)).is_err());
        // A named caller counts only towards the limit of its subject.
        permits.extend((0..MAX_STREAMS_PER_SUBJECT).map(|_| limiter.acquire(run(100), None).unwrap()));
        let error = limiter.acquire(run(100), None).unwrap_err();
        assert_eq!((error.status().as_u16(), error.code()), (429, "too_many_streams"));
        drop(permits.remove(0));
        permits.push(limiter.acquire(run(101), Some(client)).unwrap());
        drop(permits);
        assert!(limiter.counts().by_subject.is_empty() && limiter.counts().by_client.is_empty());
    }
}
