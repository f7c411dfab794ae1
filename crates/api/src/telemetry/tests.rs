use super::*;
use actix_web::http::header::{HeaderName, HeaderValue};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SimpleSpanProcessor};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::subscriber::with_default;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A writer that captures the log.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn capture_log(format: LogFormat, emit: impl FnOnce()) -> String {
    let capture = LogCapture::default();
    let writer = capture.clone();
    with_default(Registry::default().with(log_layer(format, move || writer.clone())), emit);
    let bytes = capture.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn headers(parent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("traceparent"), HeaderValue::from_str(parent).unwrap());
    headers
}

#[test]
fn log_values_cannot_forge_lines() {
    let hostile = "a\r\n{\"level\":\"ERROR\"}\u{1b}[31m\u{9b}31m\0";
    for format in [LogFormat::Json, LogFormat::Text] {
        let text = capture_log(format, || {
            let span = tracing::info_span!("outer", request = hostile);
            span.in_scope(|| tracing::info!(slug = hostile, shown = %format!("{hostile:?}"), "fixed"));
        });
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(!text.trim_end().chars().any(|character| character.is_ascii_control()), "{text:?}");
    }
    let text = capture_log(LogFormat::Json, || tracing::info!(slug = hostile, "fixed"));
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line.get("slug").unwrap(), hostile);
    assert_eq!(line.get("message").unwrap(), "fixed");
}

#[test]
fn continues_trace_of_caller() {
    let exporter = InMemorySpanExporter::default();
    let processor = SimpleSpanProcessor::new(exporter.clone());
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    with_default(Registry::default().with(layer), || {
        let outer = tracing::info_span!("outer", trace_id = tracing::field::Empty);
        adopt_parent(&outer, &headers(PARENT));
        outer.in_scope(|| tracing::info_span!("inner").in_scope(|| ()));
    });
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 2);
    for span in &spans {
        assert_eq!(span.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    }
    let outer = spans.iter().find(|span| span.name == "outer").unwrap();
    assert_eq!(outer.parent_span_id.to_string(), "b7ad6b7169203331");
}

#[test]
fn logs_only_valid_trace_ids() {
    for (parent, is_logged) in
        [(PARENT, true), ("00-00000000000000000000000000000000-b7ad6b7169203331-01", false), ("x", false)]
    {
        let text = capture_log(LogFormat::Json, || {
            let span = tracing::info_span!("outer", trace_id = tracing::field::Empty);
            adopt_parent(&span, &headers(parent));
            span.in_scope(|| tracing::info!("fixed"));
        });
        assert_eq!(text.contains("\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\""), is_logged, "{text}");
    }
}
