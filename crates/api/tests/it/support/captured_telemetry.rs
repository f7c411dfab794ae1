//! A server in its own process whose log lines and exported spans are captured.

use fairway_managed_postgres::parent_death::{self, DeathSignal};
use fairway_testkit::{TestDatabase, app::Client, unused_address};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Time limit for the start and for the shutdown of the server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A server process that logs at a given level and exports traces.
pub(crate) struct CapturedServer {
    pub(crate) client: Client,
    pub(crate) database: TestDatabase,
    child: Child,
    directory: TempDir,
    spans: Arc<Mutex<Vec<u8>>>,
}

/// Everything that a server has logged, exported and stored until its shutdown.
pub(crate) struct CapturedTelemetry {
    pub(crate) log: String,
    /// The request bodies that the trace collector received, as text. Texts appear in them unencoded.
    pub(crate) spans: String,
    /// The request bodies of `spans` as decoded messages.
    pub(crate) trace_request: ExportTraceServiceRequest,
    /// Every file of the data directory (the artifacts), by path.
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl CapturedServer {
    pub(crate) async fn start(log: &str) -> Self {
        Self::start_with(log, "").await
    }

    /// Starts a server with this text as `fairway.toml`.
    pub(crate) async fn start_with(log: &str, settings: &str) -> Self {
        let database = TestDatabase::create().await.unwrap();
        let data_dir = tempfile::tempdir().unwrap();
        let address = unused_address().unwrap();
        let (collector, spans) = start_collector();
        let mut command = parent_death::command(env!("CARGO_BIN_EXE_fairway-server"), DeathSignal::Terminate);
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("FAIRWAY_") || name.starts_with("OTEL_") {
                command.env_remove(name);
            }
        }
        let file = File::create(data_dir.path().join("log")).unwrap();
        fs::write(data_dir.path().join("fairway.toml"), settings).unwrap();
        command
            .args(["serve", "--config", "fairway.toml"])
            .current_dir(data_dir.path())
            .env("FAIRWAY_BIND", address.to_string())
            .env("FAIRWAY_DATABASE_URL", database.url_for_owner())
            .env("FAIRWAY_DATA_DIR", data_dir.path().join("data"))
            .env("FAIRWAY_LOG", log)
            // Tests that call every operation read the inbox stream until it ends.
            .env("FAIRWAY_INBOX_STREAM_LIFETIME", "1ms")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command.spawn().unwrap();
        let client = Client::new(address, database.url_for_owner()).unwrap();
        let mut server = Self { client, database, child, directory: data_dir, spans };
        server.wait_until_ready(address).await;
        server
    }

    async fn wait_until_ready(&mut self, address: SocketAddr) {
        let started_at = Instant::now();
        while TcpStream::connect(address).is_err() || self.client.get("/readyz").await.status != 200 {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && started_at.elapsed() < SERVER_TIMEOUT, "{ended:?}: {}", self.read_log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn read_log(&self) -> String {
        String::from_utf8(fs::read(self.directory.path().join("log")).unwrap()).unwrap()
    }

    /// Shuts the server down gracefully, so that it exports the last spans.
    pub(crate) async fn shut_down(mut self) -> (CapturedTelemetry, TestDatabase) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let started_at = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started_at.elapsed() < SERVER_TIMEOUT, "{}", self.read_log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let exported_spans = self.spans.lock().unwrap().clone();
        // Concatenated protobuf messages decode as one message that contains the items of all messages.
        let traced = ExportTraceServiceRequest::decode(exported_spans.as_slice()).unwrap();
        let spans = String::from_utf8_lossy(&exported_spans).into_owned();
        let files = read_files(&self.directory.path().join("data"));
        (CapturedTelemetry { log: self.read_log(), spans, trace_request: traced, files }, self.database)
    }
}

impl CapturedTelemetry {
    /// Every log line. Each line is one JSON object.
    #[track_caller]
    pub(crate) fn log_lines(&self) -> Vec<Value> {
        let parse_line = |line: &str| match serde_json::from_str(line) {
            Ok(Value::Object(members)) => Value::Object(members),
            other => panic!("not a JSON log line: {line:?}: {other:?}"),
        };
        self.log.lines().map(parse_line).collect()
    }
}

/// Every file below a folder, with its content.
fn read_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(read_files(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

/// Starts a collector that accepts every export. Returns its address and the received bytes. The collector ends with
/// the test's process.
fn start_collector() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let spans = Arc::new(Mutex::new(Vec::new()));
    let stored_spans = Arc::clone(&spans);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            stored_spans.lock().unwrap().extend_from_slice(&body);
            let response = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\
                Connection: close\r\n\r\n";
            reader.get_mut().write_all(response.as_bytes()).unwrap();
        }
    });
    (address, spans)
}
