//! Logs and traces.
//!
//! Logs go to standard error, one JSON object a line, so that no value can fake a line or steer a terminal. Traces go
//! to an OpenTelemetry collector where `OTEL_EXPORTER_OTLP_ENDPOINT` names one; the other standard variables hold too.

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

/// The name of this service in traces, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE: &str = "fairway-server";
/// What the targets of our own lines begin with.
const OURS: &str = "fairway";
/// Where libraries tell of what others said: connections that end in the middle, and messages of tools.
const STRANGERS: [&str; 2] = ["actix_http::h1::dispatcher", "rmcp"];
/// The header of W3C Trace Context without which there is no parent.
const TRACE_PARENT: &str = "traceparent";
/// Whether this process exports traces.
static EXPORTING: AtomicBool = AtomicBool::new(false);
/// Longest wait for the last spans to go out.
const FLUSH: Duration = Duration::from_secs(3);

/// Logs or traces could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not understood.
    #[error("the log filter is not understood")]
    Filter(#[source] ParseError),
    /// The exporter refused its settings.
    #[error("traces cannot be exported")]
    Exporter(#[source] ExporterBuildError),
    /// This process logs already.
    #[error("logs are set up already")]
    Twice(#[source] TryInitError),
}

/// Keeps the exporter. Shut it down last, or the last spans are lost.
#[derive(Debug)]
#[must_use = "without a shutdown the last spans are lost"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Begins to log, and to trace where `export_traces` is set. Once for each process, before the server starts.
    ///
    /// # Errors
    /// When the filter or the exporter's settings are wrong, or when it is called twice.
    pub fn start(settings: &LogSettings, export_traces: bool) -> Result<Self, TelemetryError> {
        let filter = EnvFilter::builder().parse(&settings.filter).map_err(TelemetryError::Filter)?;
        let provider = if export_traces { Some(exporter()?) } else { None };
        let traces = provider.as_ref().map(|provider| {
            let tracer = provider.tracer(SERVICE);
            let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
            layer.with_filter(
                FilterFn::new(is_traced as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::DEBUG),
            )
        });
        Registry::default()
            .with(traces)
            .with(lines(settings.format, io::stderr).with_filter(filter.and(discreet())))
            .try_init()
            .map_err(TelemetryError::Twice)?;
        EXPORTING.store(provider.is_some(), Ordering::Relaxed);
        log_panics();
        Ok(Self { provider })
    }

    /// Sends what is left, for at most three seconds. Blocks: call it after the server has ended.
    pub fn shutdown(self) {
        let Some(provider) = self.provider else { return };
        if let Err(failure) = provider.shutdown_with_timeout(FLUSH) {
            tracing::warn!(%failure, "the last spans may be lost");
        }
    }
}

/// Whether traces go anywhere. What is recorded on a span for them alone is not free: the log's formatter reads and
/// writes a span's fields anew for every one that is added.
pub fn is_exporting() -> bool {
    EXPORTING.load(Ordering::Relaxed)
}

/// Makes a request's span a child of the caller's (W3C Trace Context), notes the trace in the log, and names it.
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
        // Without an exporter, or for a span that the filter left out, there is nothing to be a child of.
        Ok(()) | Err(SetParentError::LayerNotFound | SetParentError::SpanDisabled) => {}
        Err(SetParentError::AlreadyStarted) => tracing::debug!("a span began before it knew its parent"),
    }
    Some(parent.trace_id())
}

/// Names a request's span when its route is known, and says whether the server was at fault. A span that got a parent has
/// begun, and takes neither as a field any more.
pub fn name(span: &Span, name: String, at_fault: bool) {
    let context = span.context();
    let begun = context.span();
    begun.update_name(name);
    if at_fault {
        begun.set_status(Status::error(""));
    }
}

/// Request headers, as the propagator reads them.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// The exporter has a thread of its own and a blocking client: an asynchronous one finds no reactor there.
fn exporter() -> Result<SdkTracerProvider, TelemetryError> {
    let spans = SpanExporter::builder().with_http().build().map_err(TelemetryError::Exporter)?;
    let mut resource = Resource::builder();
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(SERVICE);
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.build()).build())
}

/// What the log takes whatever its filter asks for: below `INFO`, nothing from libraries. They show what they work
/// with there, such as the values of every statement, and that is what people wrote. And nothing from the one that tells
/// as errors what strangers send that is no HTTP, or that they went away; nor from the one that speaks to tools, which
/// repeats whole messages of theirs, and ours.
fn discreet() -> FilterFn {
    FilterFn::new(is_discreet as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::TRACE)
}

/// What traces take, however quiet the log is: our spans down to single statements and calls, and events of level `INFO`.
/// Libraries that repeat the messages of others are left out, as in the log.
fn is_traced(what: &Metadata<'_>) -> bool {
    let most = if what.is_span() && what.target().starts_with(OURS) { Level::DEBUG } else { Level::INFO };
    *what.level() <= most && is_discreet(what)
}

fn is_discreet(line: &Metadata<'_>) -> bool {
    line.target().starts_with(OURS)
        || *line.level() <= Level::INFO && !STRANGERS.iter().any(|one| line.target().starts_with(one))
}

fn lines<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
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

/// A panic's text may quote a value, so the log gets its place alone.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a thread panicked");
    }));
}

#[cfg(test)]
mod tests;
