//! A private SMTP server (aiosmtpd). It accepts messages from one authenticated user and records them.

use anyhow::Context as _;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};
use tokio::sync::watch;

/// The Python interpreter in whose environment `cargo xtask test` installed the server.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_RECEIVERS_PYTHON";
/// The Python program of the server.
const SERVER: &str = include_str!("smtp_server/server.py");
/// Timeout of the server's start, and of the arrival of a message.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The password of the user `fairway`. Its characters require percent-encoding in a URL.
const PASSWORD: &str = "p:w/@1";
const ENCODED_PASSWORD: &str = "p%3Aw%2F%401";

/// A message that the server accepted.
#[derive(Clone, Debug, Deserialize)]
pub struct ReceivedMail {
    /// The envelope sender.
    pub from: String,
    /// The envelope recipients.
    pub to: Vec<String>,
    headers: Vec<(String, String)>,
    /// The decoded content of each part, by media type.
    pub parts: BTreeMap<String, String>,
}

impl ReceivedMail {
    /// The decoded values of a header. `name` is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// An SMTP server on the loopback interface; stopped when dropped. The local part of a recipient selects the
/// response: `refused` is rejected with 550, and `busy` is deferred with 451 once for each message.
pub struct SmtpServer {
    child: Child,
    url: String,
    received: watch::Receiver<Vec<ReceivedMail>>,
}

impl SmtpServer {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When the server is not installed or does not start.
    pub fn start() -> anyhow::Result<Self> {
        let python = env::var_os(PYTHON_VARIABLE).context("no SMTP server; run the tests by `cargo xtask test`")?;
        let mut command = parent_death::command(python, DeathSignal::Terminate);
        command.args(["-W", "ignore", "-c", SERVER, PASSWORD]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting the SMTP server")?;
        let stdout = child.stdout.take().context("the SMTP server's standard output")?;
        let (sender, received) = watch::channel(Vec::new());
        // If the start fails from here on, dropping the value stops the process.
        let mut server = Self { child, url: String::new(), received };
        let port = read_output(stdout, sender).context("failed to start the SMTP server")?;
        server.url = format!("smtp://fairway:{ENCODED_PASSWORD}@127.0.0.1:{port}");
        Ok(server)
    }

    /// The server's URL with user name and password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until the server has accepted this many messages, and returns all of them.
    ///
    /// # Panics
    /// When the messages do not arrive within a minute.
    pub async fn wait_for_mails(&self, count: usize) -> Vec<ReceivedMail> {
        let mut received = self.received.clone();
        let result = tokio::time::timeout(TIMEOUT, received.wait_for(|mails| mails.len() >= count)).await;
        // The inner error means that the server has ended, so no further message arrives.
        let have_arrived = result.is_ok_and(|mails| mails.is_ok());
        let mails = self.received.borrow().clone();
        assert!(have_arrived, "{count} mails do not arrive: {mails:?}");
        mails
    }
}

/// Reads the port from the first output line. Its thread continues to read the accepted messages.
fn read_output(stdout: ChildStdout, received: watch::Sender<Vec<ReceivedMail>>) -> anyhow::Result<u16> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("smtp-server".to_owned()).spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let Some(Ok(port)) = lines.next().map(|line| line.trim().parse()) else { return };
        // The receiver no longer exists if the start timed out.
        let _ = sender.send(port);
        for line in lines {
            match serde_json::from_str(&line) {
                Ok(mail) => received.send_modify(|mails| mails.push(mail)),
                // Returning drops the sender, so that a waiting test fails at once.
                Err(_) => return,
            }
        }
    })?;
    Ok(receiver.recv_timeout(TIMEOUT)?)
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
