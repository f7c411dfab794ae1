//! A private S3 server: moto, serialized so that put-if-absent is atomic.

use anyhow::Context as _;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStderr, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The Python interpreter in whose environment `cargo xtask test` installed the server.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_S3_PYTHON";
/// The Python program of the server.
const SERVER: &str = include_str!("s3_server/server.py");
/// Timeout of the server's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The access key. The server accepts any credentials, but the client sends no request without one.
pub const S3_ACCESS_KEY: &str = "fairway-tests";

/// An S3 server without buckets; stopped when dropped.
pub struct S3Server {
    child: Child,
    endpoint: String,
}

impl S3Server {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When the server is not installed or does not start.
    pub fn start() -> anyhow::Result<Self> {
        crate::install_crypto_provider();
        let python = env::var_os(PYTHON_VARIABLE).context("no S3 server; run the tests by `cargo xtask test`")?;
        let mut command = parent_death::command(python, DeathSignal::Terminate);
        command.args(["-c", SERVER]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().context("starting the S3 server")?;
        let stderr = child.stderr.take().context("the S3 server's standard error")?;
        // If the start fails from here on, dropping the value stops the process.
        let mut server = Self { child, endpoint: String::new() };
        server.endpoint = wait_for_address(stderr).context("failed to start the S3 server")?;
        Ok(server)
    }

    /// Creates a bucket, and returns its location in the form of the artifact setting.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn create_bucket(&self, name: &str) -> anyhow::Result<String> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        client.put(format!("{}/{name}", self.endpoint)).send().await?.error_for_status()?;
        Ok(format!("s3://{name}/artifacts?endpoint={}&region=us-east-1&path_style=true", self.endpoint))
    }

    /// Writes bytes to a bucket directly, bypassing Fairway.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn overwrite(&self, bucket: &str, path: &str, bytes: &'static [u8]) -> anyhow::Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let address = format!("{}/{bucket}/artifacts/{path}", self.endpoint);
        // The server requires a signature, but does not verify it.
        let credential = format!("Credential={S3_ACCESS_KEY}/20260101/us-east-1/s3/aws4_request");
        let signed = format!("AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0");
        client.put(address).header("Authorization", signed).body(bytes).send().await?.error_for_status()?;
        Ok(())
    }
}

/// Waits for the output line with the address. Its thread continues to read, so that the pipe never fills up.
fn wait_for_address(stderr: ChildStderr) -> anyhow::Result<String> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("s3-server".to_owned()).spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("Running on http://") {
                // After startup, the receiver no longer exists.
                let _ = sender.send(format!("http://{}", address.trim()));
            }
        }
    })?;
    Ok(receiver.recv_timeout(START_TIMEOUT)?)
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
