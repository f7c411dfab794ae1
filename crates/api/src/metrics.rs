//! Metrics in the Prometheus text format.
//!
//! INVARIANT: every label has a closed set of values. Routes are patterns, never paths that a client chose.

mod notifications;
mod runs;

use fairway_postgres::StatementsInFlight;
pub use notifications::NotificationMetrics;
use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
    core::Collector,
};
pub use runs::RunMetrics;
use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Histogram buckets of request durations, in seconds: from a cached read to the longest synchronous run.
const DURATION_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

/// The values of the method label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Requests with the method GET.
    Get,
    /// Requests with the method HEAD.
    Head,
    /// Requests with the method POST.
    Post,
    /// Requests with the method PUT.
    Put,
    /// Requests with the method PATCH.
    Patch,
    /// Requests with the method DELETE.
    Delete,
    /// Requests with the method OPTIONS.
    Options,
    /// Requests with any other method, including invented ones.
    Other,
}

impl Method {
    /// The label value of a request's method.
    #[must_use]
    pub fn of(method: &actix_web::http::Method) -> Self {
        match method.as_str() {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }

    /// The value of the label `method`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other => "other",
        }
    }
}

/// A completed request, as the metrics count it.
#[derive(Clone, Copy, Debug)]
pub struct CompletedRequest<'a> {
    /// HTTP method of the request.
    pub method: Method,
    /// The pattern of the route.
    pub route: &'a str,
    /// The status of the response.
    pub status: u16,
    /// Time from arrival to the response headers.
    pub elapsed: Duration,
}

/// All metrics. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    runs: RunMetrics,
    notifications: NotificationMetrics,
    load_refusals: IntCounter,
    delayed_refusals: IntCounter,
    waiting: IntGauge,
    databases: Arc<Mutex<Vec<StatementsInFlight>>>,
    memory: IntGauge,
    files: IntGauge,
    threads: IntGauge,
}

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    /// When Prometheus refuses a name, or a name is registered twice.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let requests = Opts::new("fairway_http_requests_total", "Requests answered.");
        let requests = IntCounterVec::new(requests, &["method", "route", "status"])?;
        let durations =
            HistogramOpts::new("fairway_http_request_duration_seconds", "Time from arrival to the response.");
        let durations = HistogramVec::new(durations.buckets(DURATION_BUCKETS.to_vec()), &["method", "route"])?;
        let runs = RunMetrics::register(&registry)?;
        let notifications = NotificationMetrics::register(&registry)?;
        let load_refusals =
            IntCounter::new("fairway_http_refused_for_load_total", "Requests answered 503 because of overload.")?;
        let delayed_refusals = IntCounter::new(
            "fairway_http_delayed_refusals_total",
            "Requests refused for load whose response was delayed.",
        )?;
        let waiting = IntGauge::new("fairway_database_waiting", "Statements in flight that requests wait for.")?;
        let memory = IntGauge::new("process_resident_memory_bytes", "Resident memory of this process.")?;
        let files = IntGauge::new("process_open_fds", "Open files and sockets of this process.")?;
        let threads = IntGauge::new("process_threads", "Threads of this process.")?;
        let collectors: [Box<dyn Collector>; 8] = [
            Box::new(requests.clone()),
            Box::new(durations.clone()),
            Box::new(load_refusals.clone()),
            Box::new(delayed_refusals.clone()),
            Box::new(waiting.clone()),
            Box::new(memory.clone()),
            Box::new(files.clone()),
            Box::new(threads.clone()),
        ];
        for collector in collectors {
            registry.register(collector)?;
        }
        let databases = Arc::default();
        Ok(Self {
            registry,
            requests,
            durations,
            runs,
            notifications,
            load_refusals,
            delayed_refusals,
            waiting,
            databases,
            memory,
            files,
            threads,
        })
    }

    /// Counts a completed request by method, route and class of status, and records its duration.
    pub fn count_request(&self, request: &CompletedRequest<'_>) {
        let method = request.method.as_str();
        self.requests.with_label_values(&[method, request.route, status_class(request.status)]).inc();
        self.durations.with_label_values(&[method, request.route]).observe(request.elapsed.as_secs_f64());
    }

    /// The metrics of runs.
    #[must_use]
    pub const fn runs(&self) -> &RunMetrics {
        &self.runs
    }

    /// The metrics of notifications.
    #[must_use]
    pub const fn notifications(&self) -> &NotificationMetrics {
        &self.notifications
    }

    /// Counts a request that is refused for load, and whether its response is delayed.
    pub fn count_load_refusal(&self, is_delayed: bool) {
        self.load_refusals.inc();
        self.delayed_refusals.inc_by(u64::from(is_delayed));
    }

    /// Adds the statements in flight of a database to the gauge of waiting statements.
    pub fn watch_statements_in_flight(&self, waiting: StatementsInFlight) {
        self.databases.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
    }

    /// Renders all metrics as `text/plain; version=0.0.4`.
    ///
    /// # Errors
    /// When a collector does not match its description.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: usize = databases.iter().map(StatementsInFlight::count).sum();
        drop(databases);
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.update_process_gauges();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Updates the gauges of the process. They stay at zero on systems without `/proc`.
    fn update_process_gauges(&self) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| -> Option<i64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        self.memory.set(number("VmRSS:").unwrap_or_default().saturating_mul(1024));
        self.threads.set(number("Threads:").unwrap_or_default());
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        self.files.set(i64::try_from(open_files).unwrap_or(i64::MAX));
    }
}

const fn status_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_counted_requests() {
        let metrics = Metrics::new().unwrap();
        let request = CompletedRequest {
            method: Method::Get,
            route: "/v1/x/{id}",
            status: 204,
            elapsed: Duration::from_millis(3),
        };
        metrics.clone().count_request(&request);
        metrics.count_request(&CompletedRequest { status: 299, ..request });
        let text = metrics.render().unwrap();
        for line in [
            r#"fairway_http_requests_total{method="GET",route="/v1/x/{id}",status="2xx"} 2"#,
            r#"fairway_http_request_duration_seconds_bucket{method="GET",route="/v1/x/{id}",le="0.0025"} 0"#,
            r#"fairway_http_request_duration_seconds_bucket{method="GET",route="/v1/x/{id}",le="0.005"} 2"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let memory = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")).unwrap();
        assert!(memory.parse::<i64>().unwrap() > 1_000_000, "{memory}");
    }

    #[test]
    fn groups_unknown_methods_under_one_label() {
        let unknown = actix_web::http::Method::from_bytes(b"BREW").unwrap();
        assert_eq!(Method::of(&unknown).as_str(), "other");
        assert_eq!(Method::of(&actix_web::http::Method::PATCH).as_str(), "PATCH");
    }
}
