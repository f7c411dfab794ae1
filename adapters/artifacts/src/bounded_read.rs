//! Reads that are limited to the recorded length of an object.

use fairway_domain::asset::integrity::UnverifiedBytes;
use futures_util::TryStreamExt as _;
use object_store::{GetResult, GetResultPayload, Result};

/// The bytes of an object, if it has at most `expected_len` bytes. A longer object is not the stored one: it is not
/// read if its size is known, and a longer stream is dropped at the first part beyond the length.
///
/// # Errors
/// When the store fails, or ends a file before the size that it reported.
pub(crate) async fn collect(found: GetResult, expected_len: usize) -> Result<UnverifiedBytes> {
    if usize::try_from(found.meta.size).map_or(true, |size| size > expected_len) {
        return Ok(UnverifiedBytes::too_long());
    }
    let mut stream = match found.payload {
        // Reads the reported size in one task of the blocking pool, even if the file changed since.
        GetResultPayload::File(..) => return Ok(UnverifiedBytes::new(found.bytes().await?.into())),
        GetResultPayload::Stream(stream) => stream,
    };
    let mut bytes = Vec::new();
    while let Some(portion) = stream.try_next().await? {
        if portion.len() > expected_len - bytes.len() {
            return Ok(UnverifiedBytes::too_long());
        }
        bytes.extend_from_slice(&portion);
    }
    Ok(UnverifiedBytes::new(bytes))
}
