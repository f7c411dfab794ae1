//! The cache of verified tokens, keyed by the digest of the token.

use crate::key_set::KeySet;
use fairway_domain::{
    access::identity::{GroupsClaim, VerifiedIdentity},
    time::Timestamp,
};
use moka::sync::Cache;
use std::{sync::Arc, time::Duration};

/// How long a verification is valid. It ends earlier if the issuer removes the key that verified the token.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum memory of all entries, in bytes.
const MAX_BYTES: u64 = 8 << 20;
/// Memory of an entry besides the texts of its identity, in bytes: key, value, hash table and queues.
const ENTRY_BYTES: usize = 1_024;

/// A cached verification: the identity that the token proves, and the key set that verified the token.
#[derive(Clone)]
pub(crate) struct VerifiedToken {
    pub(crate) identity: Arc<VerifiedIdentity>,
    /// The key set that verified the token.
    pub(crate) keys: Arc<KeySet>,
    verified_at: Timestamp,
}

/// Tokens that were verified within the last minute. Invalid tokens are not cached.
pub(crate) struct TokenCache(Cache<blake3::Hash, VerifiedToken>);

impl TokenCache {
    pub(crate) fn new() -> Self {
        let weigh = |_: &blake3::Hash, token: &VerifiedToken| u32::try_from(bytes(&token.identity)).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(MAX_BYTES).weigher(weigh).time_to_live(MAX_AGE).build())
    }

    /// The entry, if it is valid at `now`. The injected clock decides; the cache's own clock only frees memory.
    pub(crate) fn get(&self, key: &blake3::Hash, now: Timestamp) -> Option<VerifiedToken> {
        let entry = self.0.get(key)?;
        let end = entry.verified_at.plus(MAX_AGE).min(entry.identity.expires_at);
        // After the clock was set back, the age of an entry is unknown, so the entry counts as expired.
        (entry.verified_at <= now && now < end).then_some(entry)
    }

    pub(crate) fn insert(
        &self,
        key: blake3::Hash,
        identity: Arc<VerifiedIdentity>,
        keys: Arc<KeySet>,
        verified_at: Timestamp,
    ) {
        self.0.insert(key, VerifiedToken { identity, keys, verified_at });
    }
}

/// Estimated memory of an entry, in bytes.
fn bytes(identity: &VerifiedIdentity) -> usize {
    let groups = match &identity.groups {
        GroupsClaim::Absent => 0,
        GroupsClaim::Listed(groups) => groups.iter().map(|group| group.len().saturating_add(40)).sum(),
        GroupsClaim::Overage { source } => source.as_ref().map_or(0, |source| {
            source.endpoint.len().saturating_add(source.access_token.as_deref().map_or(0, str::len))
        }),
    };
    // The token that contains these texts bounds their length.
    let texts = [Some(&identity.subject), identity.name.as_ref(), identity.email.as_ref()];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    ENTRY_BYTES.saturating_add(groups).saturating_add(texts)
}
