//! Reads of objects, bounded by the length that the database recorded for the object.

use fairway_domain::asset::artifact_integrity::UnverifiedBytes;
use futures_util::TryStreamExt as _;
use object_store::{GetResult, GetResultPayload, Result};

/// Reads the bytes of an object that has at most `expected_len` bytes. A longer object cannot be the stored object,
/// so the result is `UnverifiedBytes::too_long`. An object whose reported size is too long is not read at all. A
/// longer stream is dropped at the first part that exceeds the length.
///
/// # Errors
/// When the store fails, or the data ends before the size that the store reported.
pub(crate) async fn collect(object: GetResult, expected_len: usize) -> Result<UnverifiedBytes> {
    if usize::try_from(object.meta.size).map_or(true, |size| size > expected_len) {
        return Ok(UnverifiedBytes::too_long());
    }
    let mut stream = match object.payload {
        // One blocking task reads exactly the reported size, even if the file has changed since.
        GetResultPayload::File(..) => return Ok(UnverifiedBytes::new(object.bytes().await?.into())),
        GetResultPayload::Stream(stream) => stream,
    };
    let mut bytes = Vec::new();
    while let Some(part) = stream.try_next().await? {
        if part.len() > expected_len - bytes.len() {
            return Ok(UnverifiedBytes::too_long());
        }
        bytes.extend_from_slice(&part);
    }
    Ok(UnverifiedBytes::new(bytes))
}
