//! Webhook requests: CloudEvents 1.0 in structured JSON mode, signed as Standard Webhooks specifies.

use crate::http_delivery::Request;
use fairway_domain::{
    notification::{
        cloud_event::{MEDIA_TYPE, cloud_event},
        delivery::DeliveryError,
        message::{NotificationMessage, SendFailure},
    },
    secret::Secret,
    time::Timestamp,
};
use fairway_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

/// Maximum number of signing keys of a destination: the current key, and the next key during a rotation.
const MAX_KEYS: usize = 2;
/// Minimum length of a key without its `whsec_` prefix, in base64 characters. They encode 24 bytes, the minimum that
/// Standard Webhooks recommends.
const MIN_KEY_CHARACTERS: usize = 32;

/// Builds the request of a message. The secret contains one or two keys, separated by whitespace. Each is `whsec_`
/// followed by base64. With two keys, the request has both signatures. A destination without a key receives an
/// unsigned request.
pub(crate) fn request(
    message: &NotificationMessage,
    key: Option<&Secret>,
    sent_at: Timestamp,
) -> Result<Request, SendFailure> {
    let unusable = || SendFailure::without_response(DeliveryError::SecretUnavailable);
    let body = cloud_event(message);
    let id = message.delivery_id.to_string();
    let seconds = i64::try_from(sent_at.micros() / 1_000_000).map_err(|_| unusable())?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| unusable());
    headers.insert(HeaderName::from_static(HEADER_WEBHOOK_ID), value(&id)?);
    headers.insert(HeaderName::from_static(HEADER_WEBHOOK_TIMESTAMP), value(&seconds.to_string())?);
    if let Some(secret) = key {
        let keys: Vec<&str> = secret.expose().split_whitespace().collect();
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(unusable());
        }
        let mut signatures = Vec::with_capacity(keys.len());
        for key in keys {
            if key.trim_start_matches("whsec_").len() < MIN_KEY_CHARACTERS {
                return Err(unusable());
            }
            let signer = Webhook::new(key).map_err(|_| unusable())?;
            signatures.push(signer.sign(&id, seconds, &body).map_err(|_| unusable())?);
        }
        headers.insert(HeaderName::from_static(HEADER_WEBHOOK_SIGNATURE), value(&signatures.join(" "))?);
    }
    Ok(Request { headers, body })
}
