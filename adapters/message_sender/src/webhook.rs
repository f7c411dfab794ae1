//! Webhooks: CloudEvents 1.0 in the structured JSON mode, signed by Standard Webhooks.

use crate::post::Request;
use fairway_domain::{
    notification::{
        cloud_event::{MEDIA_TYPE, cloud_event},
        delivery::DeliveryError,
        message::{Message, SendFailure},
    },
    secret::Secret,
    time::Timestamp,
};
use fairway_egress::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

/// Maximum number of keys of a destination: the present one and the next one while it is rotated.
const MAX_KEYS: usize = 2;
/// Minimum length of a key, in bytes (Standard Webhooks recommends 24 to 64).
const MIN_KEY_CHARACTERS: usize = 32;

/// The request of a message. The secret holds one or two keys, `whsec_` and base64, separated by whitespace; with two, the
/// request has both signatures. A destination without a key gets an unsigned request.
pub(crate) fn request(message: &Message, key: Option<&Secret>, at: Timestamp) -> Result<Request, SendFailure> {
    let unusable = || SendFailure::without_response(DeliveryError::SecretUnavailable);
    let body = cloud_event(message);
    let id = message.delivery_id.to_string();
    let seconds = i64::try_from(at.micros() / 1_000_000).map_err(|_| unusable())?;
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
