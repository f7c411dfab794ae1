//! `cargo xtask up`: starts a server with the demo from a checkout.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use fairway_managed_postgres::binaries::BIN_VARIABLE;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use nix::sys::signal::Signal;

use crate::children::{self, ChildEvent};
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::{demo, postgres};

/// Timeout of the start, which includes the first `initdb` and the migrations.
const READY_TIMEOUT: Duration = Duration::from_secs(180);

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build with optimizations
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(place: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let profile = if arguments.release { Profile::Release } else { Profile::Dev };
    let address = address()?;
    let command = with_database(serve_command(place, profile))?;
    let built = children::run(place.build_programs(profile), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    // Checked after the build, which may take minutes. The server would also fail, but later and within its log.
    if TcpListener::bind(address).is_err() {
        bail!("{address} is in use: stop what listens there, or set FAIRWAY_BIND to another address");
    }
    let mut server = Server { child: with_quiet_log(command).spawn().context("starting fairway-server")? };
    match server.wait_until_ready(address, &signals)? {
        ChildEvent::Exited(status) => bail!("fairway-server exited during startup ({status})"),
        ChildEvent::StopRequested => return server.drain(&signals),
        ChildEvent::Running => {}
    }
    let url = format!("http://{address}");
    let seeded =
        with_database(demo::seed(place, profile)).and_then(|seed| children::run(with_quiet_log(seed), &signals));
    match seeded {
        Ok(status) if status.success() => {}
        Ok(status) => {
            server.drain(&signals)?;
            bail!("`fairway-server seed` failed ({status})");
        }
        Err(error) => {
            server.drain(&signals)?;
            return Err(error.context("seeding the demo"));
        }
    }
    println!(
        "\nFairway listens on {url}; the API documentation is at {url}/docs. Ctrl-C stops the server and keeps its data."
    );
    loop {
        match children::poll(&mut server.child, &signals)? {
            ChildEvent::Exited(status) => bail!("fairway-server exited unexpectedly ({status})"),
            ChildEvent::StopRequested => return server.drain(&signals),
            ChildEvent::Running => {}
        }
    }
}

/// The address that the server will listen on.
pub(crate) fn address() -> Result<SocketAddr> {
    let bind = env::var("FAIRWAY_BIND").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let address = bind.to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = address.with_context(|| format!("FAIRWAY_BIND is `{bind}`, which is not an address with a port"))?;
    if address.port() == 0 {
        bail!("FAIRWAY_BIND must have a port other than 0, because the demo's commands use it");
    }
    Ok(address)
}

/// Adds a managed PostgreSQL to the command, unless the environment sets another database.
pub(crate) fn with_database(mut command: Command) -> Result<Command> {
    if uses_managed_postgres() {
        command.env("FAIRWAY_DATABASE_URL", "embedded").env(BIN_VARIABLE, postgres::ensure()?.directory());
    }
    Ok(command)
}

/// Limits the log to warnings, because request logs would hide the demo's messages.
fn with_quiet_log(mut command: Command) -> Command {
    if env::var_os("FAIRWAY_LOG").is_none() {
        command.env("FAIRWAY_LOG", "warn");
    }
    command
}

fn uses_managed_postgres() -> bool {
    env::var("FAIRWAY_DATABASE_URL").map_or(true, |url| url.is_empty() || url == "embedded")
}

/// The server command in a separate process group, so that Ctrl-C reaches only this process, which forwards it once.
pub(crate) fn serve_command(place: &Paths, profile: Profile) -> Command {
    let mut command = parent_death::command(place.server(profile), DeathSignal::Terminate);
    command.arg("serve").current_dir(&place.root).process_group(0);
    command
}

/// A running server that receives SIGTERM when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
}

impl Server {
    pub(crate) fn wait_until_ready(&mut self, address: SocketAddr, signals: &Signals) -> Result<ChildEvent> {
        let since = Instant::now();
        while since.elapsed() < READY_TIMEOUT {
            match children::poll(&mut self.child, signals)? {
                ChildEvent::Running if is_ready(address) => return Ok(ChildEvent::Running),
                ChildEvent::Running => {}
                event @ (ChildEvent::Exited(_) | ChildEvent::StopRequested) => return Ok(event),
            }
        }
        bail!("fairway-server did not get ready within {} s", READY_TIMEOUT.as_secs())
    }

    /// Sends SIGTERM and waits for the server, however long active work takes; a second request kills it.
    fn drain(mut self, signals: &Signals) -> Result<ExitCode> {
        println!("xtask: shutting down; press Ctrl-C again to kill the server");
        children::send(&self.child, Signal::SIGTERM);
        loop {
            match children::poll(&mut self.child, signals)? {
                ChildEvent::Exited(status) => return Ok(exit_code_of(status)),
                ChildEvent::StopRequested => self.child.kill().context("killing fairway-server")?,
                ChildEvent::Running => {}
            }
        }
    }
}

fn exit_code_of(status: ExitStatus) -> ExitCode {
    if status.success() {
        return ExitCode::SUCCESS;
    }
    eprintln!("xtask: fairway-server exited with an error ({status})");
    ExitCode::FAILURE
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            children::send(&self.child, Signal::SIGTERM);
            // The original error is the one to report.
            let _ = self.child.wait();
        }
    }
}

/// Requests the readiness route; anything except 200 means not ready.
fn is_ready(address: SocketAddr) -> bool {
    let patience = Duration::from_secs(2);
    let answer = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        // Sent in one write, because a server that responds early and closes would fail a second write.
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut start = vec![0; b"HTTP/1.1 200".len()];
        stream.read_exact(&mut start)?;
        Ok(start)
    };
    answer().is_ok_and(|start| start == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends this response to one connection.
    fn server_with_response(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /readyz"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn only_status_200_is_ready() {
        assert!(is_ready(server_with_response("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")));
        assert!(!is_ready(server_with_response("HTTP/1.1 503 Service Unavailable\r\n\r\n")));
        assert!(!is_ready(server_with_response("")));
    }
}
