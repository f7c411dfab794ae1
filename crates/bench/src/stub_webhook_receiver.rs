//! A stub receiver of webhooks. One path accepts every message and records its delay; another path never responds.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::web::{self, Data, Json};
use actix_web::{App, HttpResponse, HttpServer};
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::sleep;

/// Path that returns the recorded delays in microseconds, and clears them. It also serves as the readiness check.
pub(crate) const DELAYS_PATH: &str = "/delays";
/// Path that accepts every message.
pub(crate) const ACCEPTING_PATH: &str = "/in";
/// Path that never responds.
pub(crate) const HANGING_PATH: &str = "/hole";
/// A duration longer than the timeout of any client.
const FOREVER: Duration = Duration::from_secs(3_600);

#[derive(Args)]
pub(crate) struct Arguments {
    /// The address to listen on
    #[arg(long)]
    bind: SocketAddr,
}

#[derive(Default)]
struct Delays(Mutex<Vec<i64>>);

/// Serves requests until the process receives a signal.
///
/// # Errors
/// When the address is in use.
pub(crate) fn serve(arguments: &Arguments) -> Result<()> {
    let delays = Data::new(Delays::default());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(Data::clone(&delays))
            .route(DELAYS_PATH, web::get().to(read))
            .route(ACCEPTING_PATH, web::post().to(accept))
            .route(HANGING_PATH, web::post().to(hang))
    });
    let server = server.workers(1).shutdown_timeout(1).bind(arguments.bind)?.run();
    Ok(actix_web::rt::System::new().block_on(server)?)
}

async fn read(delays: Data<Delays>) -> HttpResponse {
    let delays = std::mem::take(&mut *delays.0.lock().unwrap_or_else(PoisonError::into_inner));
    HttpResponse::Ok().json(json!(delays))
}

/// Records the time since the `time` attribute of a `CloudEvent`.
async fn accept(delays: Data<Delays>, event: Json<Value>) -> HttpResponse {
    let time = event.get("time").and_then(Value::as_str).and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    let Some(time) = time else { return HttpResponse::BadRequest().finish() };
    let delay = (OffsetDateTime::now_utc() - time).whole_microseconds();
    let mut delays = delays.0.lock().unwrap_or_else(PoisonError::into_inner);
    delays.push(i64::try_from(delay).unwrap_or(i64::MAX));
    HttpResponse::NoContent().finish()
}

async fn hang() -> HttpResponse {
    sleep(FOREVER).await;
    HttpResponse::NoContent().finish()
}
