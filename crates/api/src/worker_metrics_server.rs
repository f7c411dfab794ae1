//! The metrics of a worker process, which serves no API.

use crate::{http::site_guard::host_of, metrics::Metrics, serve::ServeError};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, dev::Server, web};
use std::net::SocketAddr;
use tokio::task::JoinSet;

/// Serves `GET /metrics` in a background task, if an address is configured.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn start(bind: Option<SocketAddr>, metrics: &Metrics, tasks: &mut JoinSet<()>) -> Result<(), ServeError> {
    let Some(bind) = bind else { return Ok(()) };
    let server = serve(bind, metrics.clone())?;
    tracing::info!(%bind, "metrics listening");
    tasks.spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(
                %bind,
                error = &error as &dyn std::error::Error,
                "the listener for metrics failed; scrapes fail until a restart"
            );
        }
    });
    Ok(())
}

/// Creates the metrics server on the address.
///
/// # Errors
/// When the address cannot be bound.
fn serve(bind: SocketAddr, metrics: Metrics) -> Result<Server, ServeError> {
    let metrics = web::Data::new(metrics);
    let app = move || App::new().app_data(metrics.clone()).route("/metrics", web::get().to(render));
    let server = HttpServer::new(app).workers(1).disable_signals();
    let server = server.bind(bind).map_err(|source| ServeError::WorkerMetrics { address: bind, source })?;
    Ok(server.run())
}

/// Renders the metrics, only for requests to loopback names and to IP addresses. A page of another site could otherwise
/// read them through its own host name that resolves to this address (DNS rebinding).
async fn render(request: HttpRequest, metrics: web::Data<Metrics>) -> HttpResponse {
    let is_local = host_of(&request).is_some_and(|host| host.is_loopback() || host.is_address());
    match metrics.render() {
        _ if !is_local => HttpResponse::MisdirectedRequest().finish(),
        Ok(text) => HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(text),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to render the metrics; the scrape fails");
            HttpResponse::InternalServerError().finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::{http::StatusCode, test};

    #[actix_web::test]
    async fn serves_addresses_and_refuses_other_host_names() {
        let metrics = web::Data::new(Metrics::new().unwrap());
        let app = test::init_service(App::new().app_data(metrics).route("/metrics", web::get().to(render))).await;
        for (host, status) in [
            ("127.0.0.1:9091", StatusCode::OK),
            ("localhost", StatusCode::OK),
            ("10.1.2.3:9091", StatusCode::OK),
            ("evil.example", StatusCode::MISDIRECTED_REQUEST),
            ("10.1.2.3.evil.example", StatusCode::MISDIRECTED_REQUEST),
        ] {
            let request = test::TestRequest::get().uri("/metrics").insert_header(("host", host)).to_request();
            let response = test::call_service(&app, request).await;
            assert_eq!(response.status(), status, "{host}");
            let body = String::from_utf8(test::read_body(response).await.to_vec()).unwrap();
            assert_eq!(body.contains("fairway_executions_total"), status == StatusCode::OK, "{host}: {body}");
        }
    }
}
