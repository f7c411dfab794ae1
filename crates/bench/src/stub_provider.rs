//! A stub model provider. It implements OpenAI's protocol and responds at once with a constant answer.
//!
//! The first part of a streamed answer contains its send time, from which the client computes the latency.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::{Context, Result};
use clap::Args;
use futures_util::stream;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::sleep;

/// The account slot of routes to this provider.
pub(crate) const ACCOUNT_SLOT: &str = "elsewhere";
/// The path of the readiness check.
pub(crate) const READINESS_PATH: &str = "/v1/models";
/// The text of every answer.
pub(crate) const CONSTANT_ANSWER: &str = "billing";
/// Pause between the first part of an answer and the rest.
const PAUSE: Duration = Duration::from_millis(30);

#[derive(Args)]
pub(crate) struct Arguments {
    /// The address to listen on
    #[arg(long)]
    bind: SocketAddr,
}

/// Serves requests until the process receives a signal.
///
/// # Errors
/// When the address is in use.
pub(crate) fn serve(arguments: &Arguments) -> Result<()> {
    let server = HttpServer::new(|| {
        App::new().route(READINESS_PATH, web::get().to(ready)).route("/v1/chat/completions", web::post().to(complete))
    });
    let server = server.workers(1).shutdown_timeout(1).bind(arguments.bind)?.run();
    Ok(actix_web::rt::System::new().block_on(server)?)
}

/// Parses the send time in the first part of a streamed answer.
///
/// # Errors
/// When the text is not a timestamp.
pub(crate) fn parse_send_time(part: &str) -> Result<OffsetDateTime> {
    let nanoseconds = part.parse().with_context(|| format!("`{part}` is not a timestamp"))?;
    Ok(OffsetDateTime::from_unix_timestamp_nanos(nanoseconds)?)
}

async fn ready() -> HttpResponse {
    HttpResponse::Ok().json(json!({"object": "list", "data": []}))
}

async fn complete(request: web::Json<Value>) -> HttpResponse {
    if request.get("stream").and_then(Value::as_bool) == Some(true) { streamed_answer() } else { whole_answer() }
}

fn whole_answer() -> HttpResponse {
    const ANSWER: &str = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1780000000,\"model\":\"small\",\
        \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"billing\"},\"finish_reason\":\"stop\"}],\
        \"usage\":{\"prompt_tokens\":210,\"completion_tokens\":1,\"total_tokens\":211}}";
    HttpResponse::Ok().content_type(ContentType::json()).body(ANSWER)
}

fn streamed_answer() -> HttpResponse {
    let parts = stream::unfold(Some(StreamPart::First), async |next| {
        let part = next?;
        let (bytes, next) = match part {
            StreamPart::First => {
                let now = OffsetDateTime::now_utc().unix_timestamp_nanos().to_string();
                (event(&json!({"delta": {"role": "assistant", "content": now}}), None), Some(StreamPart::Rest))
            }
            StreamPart::Rest => {
                sleep(PAUSE).await;
                let usage = json!({"prompt_tokens": 210, "completion_tokens": 2});
                let end = event(&json!({"delta": {}, "finish_reason": "stop"}), Some(&usage));
                (event(&json!({"delta": {"content": CONSTANT_ANSWER}}), None) + &end + "data: [DONE]\n\n", None)
            }
        };
        Some((Ok::<_, actix_web::Error>(Bytes::from(bytes)), next))
    });
    HttpResponse::Ok().content_type("text/event-stream").streaming(Box::pin(parts))
}

/// The part of a streamed answer that is sent next.
#[derive(Clone, Copy)]
enum StreamPart {
    First,
    Rest,
}

fn event(choice: &Value, usage: Option<&Value>) -> String {
    let mut choice = choice.clone();
    if let Some(fields) = choice.as_object_mut() {
        fields.insert("index".to_owned(), json!(0));
    }
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "small", "choices": [choice], "usage": usage,
    });
    format!("data: {chunk}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_send_time_of_a_first_part() {
        let now = OffsetDateTime::now_utc();
        assert_eq!(parse_send_time(&now.unix_timestamp_nanos().to_string()).unwrap(), now);
        assert!(parse_send_time(CONSTANT_ANSWER).is_err());
    }
}
