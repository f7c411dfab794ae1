//! A real gateway of models of one's own: LiteLLM, which answers for models by itself and speaks both protocols.

use anyhow::Context as _;
use fairway_private_postgres::deathbound::{self, Farewell};
use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStderr, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Names the Python that `cargo xtask test` installed the gateway for.
const PYTHON: &str = "FAIRWAY_TEST_GATEWAY_PYTHON";
/// Its models. `PORT` is its own port: one model asks another of its models, by the other's protocol.
const SETTINGS: &str = include_str!("gateway/settings.yaml");
/// How long the gateway may take to start. It takes a quarter of a minute where nothing else runs.
const START: Duration = Duration::from_secs(120);
/// What opens it.
pub const GATEWAY_KEY: &str = "sk-fairway-tests";

/// A gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    port: u16,
    _home: TempDir,
}

impl Gateway {
    /// Starts one on a free port. Blocks until it answers.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn start() -> anyhow::Result<Self> {
        crate::init();
        let python = env::var_os(PYTHON).context("no gateway; run the tests by `cargo xtask test`")?;
        let python = PathBuf::from(python);
        let home = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = home.path().join("settings.yaml");
        fs::write(&settings, SETTINGS.replace("PORT", &port.to_string()))?;
        let mut command = deathbound::command(&python, Farewell::Terminate);
        command.arg(python.with_file_name("litellm")).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.arg("--config").arg(settings).current_dir(home.path()).env("HOME", home.path());
        // It would ask others for prices otherwise.
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_MASTER_KEY", GATEWAY_KEY).env("NO_PROXY", "*");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting the gateway")?;
        let said = child.stderr.take().context("the gateway's standard error")?;
        // From here on it is stopped when it does not get ready.
        let gateway = Self { child, port, _home: home };
        wait(said).context("the gateway does not start")?;
        Ok(gateway)
    }

    /// The address of a path, such as `/v1`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Waits for the line that says that it listens, and reads on behind it: nobody else empties the pipe.
fn wait(said: ChildStderr) -> anyhow::Result<()> {
    let (tell, heard) = mpsc::channel();
    thread::Builder::new().name("gateway".to_owned()).spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if line.contains("Uvicorn running on") {
                // Nobody listens any more once the gateway is up.
                let _ = tell.send(());
            }
        }
    })?;
    Ok(heard.recv_timeout(START)?)
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended refuses both, rightly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
