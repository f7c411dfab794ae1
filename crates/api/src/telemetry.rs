//! Logs and traces.
//!
//! Logs go to standard error as one JSON object per line, so that no value can forge a line or inject terminal
//! escapes. Traces go to the OpenTelemetry collector of `OTEL_EXPORTER_OTLP_ENDPOINT`, if it is set. The other
//! standard OpenTelemetry variables apply too.

use crate::config::{LogFormat, LogSettings};
use actix_web::http::header::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{Status, TraceContextExt as _, TraceId, TracerProvider as _},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use std::{
    env, io, panic,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetrySpanExt as _, SetParentError};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, FilterFn, LevelFilter, ParseError},
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::{SubscriberInitExt as _, TryInitError},
};

/// Default service name in traces; `OTEL_SERVICE_NAME` overrides it.
const SERVICE_NAME: &str = "fairway-server";
/// Prefix of the log targets of this project.
const TARGET_PREFIX: &str = "fairway";
/// Log targets of libraries that repeat input of clients and tools.
const ECHOING_TARGETS: [&str; 2] = ["actix_http::h1::dispatcher", "rmcp"];
/// The required header of W3C Trace Context.
const TRACE_PARENT: &str = "traceparent";
/// Whether this process exports traces.
static EXPORTING: AtomicBool = AtomicBool::new(false);
/// Time limit for the export of the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The setup of logs or traces failed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The setting of the log filter cannot be parsed.
    #[error("the log filter is malformed")]
    Filter(#[source] ParseError),
    /// The exporter refused its settings.
    #[error("failed to set up the trace exporter")]
    Exporter(#[source] ExporterBuildError),
    /// Logging is already set up in this process.
    #[error("logging is already set up")]
    AlreadyStarted(#[source] TryInitError),
}

/// Owns the exporter. Shut it down last, or the last spans are lost.
#[derive(Debug)]
#[must_use = "without a shutdown the last spans are lost"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging, and tracing if `export_traces` is set. Call it once per process, before the server starts.
    ///
    /// # Errors
    /// When the filter or the exporter's settings are invalid, or on a second call.
    pub fn start(settings: &LogSettings, export_traces: bool) -> Result<Self, TelemetryError> {
        let filter = EnvFilter::builder().parse(&settings.filter).map_err(TelemetryError::Filter)?;
        let provider = if export_traces { Some(exporter()?) } else { None };
        let traces = provider.as_ref().map(|provider| {
            let tracer = provider.tracer(SERVICE_NAME);
            let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
            layer.with_filter(
                FilterFn::new(is_traced as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::DEBUG),
            )
        });
        Registry::default()
            .with(traces)
            .with(log_layer(settings.format, io::stderr).with_filter(filter.and(confidentiality_filter())))
            .try_init()
            .map_err(TelemetryError::AlreadyStarted)?;
        EXPORTING.store(provider.is_some(), Ordering::Relaxed);
        log_panics();
        Ok(Self { provider })
    }

    /// Exports the remaining spans within three seconds. It blocks, so call it after the server has ended.
    pub fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        if let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to export the last spans; some may be lost"
            );
        }
    }
}

/// Whether traces are exported. Otherwise callers add no span fields for traces, because the log formatter rewrites
/// all fields of a span for each added field.
pub fn is_exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

/// Makes a request's span a child of the client's span (W3C Trace Context), records the trace id on it, and returns the
/// id.
pub fn adopt_parent(span: &Span, headers: &HeaderMap) -> Option<TraceId> {
    if !headers.contains_key(TRACE_PARENT) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    let parent = context.span().span_context().clone();
    if !parent.is_valid() {
        return None;
    }
    span.record("trace_id", tracing::field::display(parent.trace_id()));
    match span.set_parent(context) {
        // Without an exporter, or for a span that the filter disabled, there is no parent to set.
        Ok(()) | Err(SetParentError::LayerNotFound | SetParentError::SpanDisabled) => {}
        Err(SetParentError::AlreadyStarted) => {
            tracing::debug!("span started before its parent was set; ignoring the parent")
        }
    }
    Some(parent.trace_id())
}

/// Sets the name and the error status of a request's span after routing. They are not span fields, because a span
/// with a parent has already started.
pub fn set_span_name_and_status(span: &Span, name: String, is_error: bool) {
    let context = span.context();
    let otel_span = context.span();
    otel_span.update_name(name);
    if is_error {
        otel_span.set_status(Status::error(""));
    }
}

/// Request headers for the propagator.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// Creates the exporter. It runs in a thread without an async runtime, so its HTTP client is blocking.
fn exporter() -> Result<SdkTracerProvider, TelemetryError> {
    let spans = SpanExporter::builder().with_http().build().map_err(TelemetryError::Exporter)?;
    let mut resource = Resource::builder();
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(SERVICE_NAME);
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.build()).build())
}

/// A log filter that applies in addition to the configured filter.
///
/// It drops library events below `INFO`, because they contain values such as statement parameters. It also drops all
/// events of [`ECHOING_TARGETS`]: the HTTP library logs client errors as errors, and the MCP library repeats messages.
fn confidentiality_filter() -> FilterFn {
    FilterFn::new(is_loggable as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::TRACE)
}

/// The filter of traces, independent of the log filter: spans of this project down to `DEBUG`, and events from `INFO`.
/// The restrictions of [`is_loggable`] apply too.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    let max_level =
        if metadata.is_span() && metadata.target().starts_with(TARGET_PREFIX) { Level::DEBUG } else { Level::INFO };
    *metadata.level() <= max_level && is_loggable(metadata)
}

fn is_loggable(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(TARGET_PREFIX)
        || *metadata.level() <= Level::INFO
            && !ECHOING_TARGETS.iter().any(|target| metadata.target().starts_with(target))
}

fn log_layer<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    match format {
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
            layer.with_writer(writer).boxed()
        }
        LogFormat::Text => fmt::layer().with_ansi(false).with_writer(writer).boxed(),
    }
}

/// Logs only the location of a panic, because its message may contain a value.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, "thread panicked");
    }));
}

#[cfg(test)]
mod tests;
