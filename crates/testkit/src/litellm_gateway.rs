//! A private LiteLLM gateway with mock models, which speaks both provider protocols.

use anyhow::Context as _;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use fairway_managed_postgres::unused_port::unused_address;
use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ChildStderr, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The Python interpreter in whose environment `cargo xtask test` installed the gateway.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_GATEWAY_PYTHON";
/// The gateway's configuration. `PORT` is replaced by the gateway's port, because one model forwards to another
/// over HTTP.
const SETTINGS: &str = include_str!("litellm_gateway/settings.yaml");
/// Timeout of the gateway's start, which takes about 15 s on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The API key that the gateway requires.
pub const LITELLM_API_KEY: &str = "sk-fairway-tests";

/// A gateway process; stopped when dropped.
pub struct LiteLlmGateway {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl LiteLlmGateway {
    /// Starts a gateway on a free port, and blocks until it is ready.
    ///
    /// # Errors
    /// When the gateway is not installed or does not start.
    pub fn start() -> anyhow::Result<Self> {
        crate::install_crypto_provider();
        let python = env::var_os(PYTHON_VARIABLE).context("no gateway; run the tests by `cargo xtask test`")?;
        let python = PathBuf::from(python);
        let directory = tempfile::tempdir()?;
        let port = unused_address()?.port();
        let settings = directory.path().join("settings.yaml");
        fs::write(&settings, SETTINGS.replace("PORT", &port.to_string()))?;
        let mut command = parent_death::command(&python, DeathSignal::Terminate);
        command.arg(python.with_file_name("litellm")).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.arg("--config").arg(settings).current_dir(directory.path()).env("HOME", directory.path());
        // Prevents LiteLLM from downloading model prices.
        command
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_MASTER_KEY", LITELLM_API_KEY)
            .env("NO_PROXY", "*");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting the gateway")?;
        let stderr = child.stderr.take().context("the gateway's standard error")?;
        // If the start fails from here on, dropping the value stops the process.
        let gateway = Self { child, port, _directory: directory };
        wait_until_ready(stderr).context("failed to start the gateway")?;
        Ok(gateway)
    }

    /// The URL of a path, such as `/v1`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Waits for the output line that reports readiness. Its thread continues to read, so that the pipe never fills up.
fn wait_until_ready(stderr: ChildStderr) -> anyhow::Result<()> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if line.contains("Uvicorn running on") {
                // After startup, the receiver no longer exists.
                let _ = sender.send(());
            }
        }
    })?;
    Ok(receiver.recv_timeout(START_TIMEOUT)?)
}

impl Drop for LiteLlmGateway {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
