//! A real S3 server of one's own: moto, made to keep put-if-absent.

use anyhow::Context as _;
use fairway_private_postgres::deathbound::{self, Farewell};
use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStderr, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Names the Python that `cargo xtask test` installed the server for.
const PYTHON: &str = "FAIRWAY_TEST_S3_PYTHON";
/// What it runs.
const SERVER: &str = include_str!("bucket/server.py");
/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);
/// Any credentials will do, but without some nothing is sent.
pub const ACCESS_KEY: &str = "fairway-tests";

/// A server with no buckets; killed when dropped.
pub struct BucketServer {
    child: Child,
    endpoint: String,
}

impl BucketServer {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub fn start() -> anyhow::Result<Self> {
        crate::init();
        let python = env::var_os(PYTHON).context("no S3 server; run the tests by `cargo xtask test`")?;
        let mut command = deathbound::command(python, Farewell::Terminate);
        command.args(["-c", SERVER]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().context("starting the S3 server")?;
        let said = child.stderr.take().context("the S3 server's standard error")?;
        // From here on it is stopped when it does not get ready.
        let mut server = Self { child, endpoint: String::new() };
        server.endpoint = announced(said).context("the S3 server does not start")?;
        Ok(server)
    }

    /// Makes a bucket, and answers with its location as the setting for artifacts takes it.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn bucket(&self, name: &str) -> anyhow::Result<String> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        client.put(format!("{}/{name}", self.endpoint)).send().await?.error_for_status()?;
        Ok(format!("s3://{name}/artifacts?endpoint={}&region=us-east-1&path_style=true", self.endpoint))
    }

    /// Stores bytes in a bucket past everything that Fairway does.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn overwrite(&self, bucket: &str, path: &str, bytes: &'static [u8]) -> anyhow::Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let address = format!("{}/{bucket}/artifacts/{path}", self.endpoint);
        // It asks for a signature and does not check it.
        let credential = format!("Credential={ACCESS_KEY}/20260101/us-east-1/s3/aws4_request");
        let signed = format!("AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0");
        client.put(address).header("Authorization", signed).body(bytes).send().await?.error_for_status()?;
        Ok(())
    }
}

/// Waits for the line with the address, and reads on behind it: nobody else empties the pipe.
fn announced(said: ChildStderr) -> anyhow::Result<String> {
    let (tell, heard) = mpsc::channel();
    thread::Builder::new().name("s3-server".to_owned()).spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("Running on http://") {
                // Nobody listens any more once the server is up.
                let _ = tell.send(format!("http://{}", address.trim()));
            }
        }
    })?;
    Ok(heard.recv_timeout(START)?)
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        // One that has ended refuses both, rightly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
