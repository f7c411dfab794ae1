//! `cargo xtask up`: starts a server with the demo from a checkout.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::{fs::symlink, process::CommandExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use fairway_managed_postgres::binaries::BIN_VARIABLE;
use fairway_managed_postgres::parent_death::{self, DeathSignal};
use nix::sys::signal::Signal;

use crate::children::{self, ChildEvent};
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::{demo, install_postgres, portal};

/// Timeout for the start of the server, including `initdb` at the first start and all migrations.
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// The address that the command line uses without `--server`.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build with optimizations
    #[arg(long)]
    release: bool,
    /// Settings file of the server; by default `fairway.toml` in the checkout, if it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let signals = Signals::catch()?;
    let profile = if arguments.release { Profile::Release } else { Profile::Dev };
    // The server's working directory is the checkout, so a path relative to this process is made absolute.
    let config = arguments
        .config
        .as_deref()
        .map(|file| file.canonicalize().with_context(|| format!("{} cannot be read", file.display())));
    let config = config.transpose()?;
    portal::ensure_built(paths).context("building the portal")?;
    let built = children::run(paths.programs_build_command(profile), &signals)?;
    if !built.success() {
        return Ok(children::exit_code(built));
    }
    let with_settings_file = |command| with_config(command, config.as_deref());
    let settings = ServerSettings::load(with_settings_file(check_command(paths, profile)))?;
    let address = settings.address()?;
    let command = settings.add_managed_database(with_settings_file(serve_command(paths, profile)))?;
    // Checks the address after the build, which may take minutes. The server would also report a used address, but
    // later and among its log lines.
    if TcpListener::bind(address).is_err() {
        bail!("{address} is in use: stop what listens there, or set `bind` (FAIRWAY_BIND) to another address");
    }
    let mut server =
        Server { child: settings.limit_log_to_warnings(command).spawn().context("starting fairway-server")? };
    match server.wait_until_ready(address, &signals)? {
        ChildEvent::Exited(status) => bail!("fairway-server exited during startup ({status})"),
        ChildEvent::StopRequested => return server.drain(&signals),
        ChildEvent::Running => {}
    }
    let seeded =
        settings.add_managed_database(with_settings_file(demo::seed_command(paths, profile))).and_then(|mut seed| {
            seed.stdout(Stdio::null());
            children::run(settings.limit_log_to_warnings(seed), &signals)
        });
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
    let data = paths.root.join(settings.value("data_dir")?.0);
    let program = link_command_line(&data.join("bin"), &paths.command_line_executable(profile))?;
    println!("{}", ready_message(address, &program, &data));
    loop {
        match children::poll(&mut server.child, &signals)? {
            ChildEvent::Exited(status) => bail!("fairway-server exited unexpectedly ({status})"),
            ChildEvent::StopRequested => return server.drain(&signals),
            ChildEvent::Running => {}
        }
    }
}

/// Creates a link to `fairway` in this directory, and returns the link's path. The message to the user shows the link,
/// because the path of the build directory is long and differs between machines.
fn link_command_line(directory: &Path, program: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let link = directory.join("fairway");
    // The new link replaces an old one atomically, because another terminal may start `fairway` at this moment.
    let temporary_link = directory.join(format!("fairway.{}", std::process::id()));
    symlink(program, &temporary_link)
        .and_then(|()| std::fs::rename(&temporary_link, &link))
        .with_context(|| format!("linking {}", link.display()))?;
    Ok(link)
}

/// The message to the user when the server is ready: its address, a command to try, and how to stop.
fn ready_message(address: SocketAddr, program: &Path, data: &Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    let displayed = |path: &Path| path.strip_prefix(&current).unwrap_or(path).display().to_string();
    let server = if address == DEFAULT_ADDRESS { String::new() } else { format!(" --server http://{address}") };
    format!(
        "Fairway listens on http://{address} (documentation: http://{address}/docs)\n\
         Try: {} run ticket-classifier --env dev --input ticket='I was charged twice'{server}\n\
         Stop: Ctrl-C; the data stays in {}",
        displayed(program),
        displayed(data),
    )
}

/// Adds the option `--config` to a command of the server, if a settings file is given.
fn with_config(mut command: Command, config: Option<&Path>) -> Command {
    if let Some(file) = config {
        command.arg("--config").arg(file);
    }
    command
}

/// The command that validates and prints the settings.
pub(crate) fn check_command(paths: &Paths, profile: Profile) -> Command {
    let mut command = Command::new(paths.server_executable(profile));
    command.args(["config", "check"]).current_dir(&paths.root);
    command
}

/// The effective settings of the server, as `fairway-server` prints them.
pub(crate) struct ServerSettings {
    /// Lines of the form `key = value (origin)`.
    text: String,
}

impl ServerSettings {
    /// Runs the command that validates and prints the settings. The command reports invalid settings on standard error.
    pub(crate) fn load(mut command: Command) -> Result<Self> {
        let output = command.stderr(Stdio::inherit()).output().context("starting fairway-server")?;
        if !output.status.success() {
            bail!("the settings are invalid");
        }
        Ok(Self { text: String::from_utf8(output.stdout).context("the settings are not UTF-8")? })
    }

    /// The value of a setting, and its origin such as `default`.
    fn value(&self, key: &str) -> Result<(&str, &str)> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        let value = line.and_then(|line| line.strip_suffix(')')?.rsplit_once(" ("));
        value.with_context(|| format!("`fairway-server config check` does not print `{key}`"))
    }

    /// The address that the server will listen on.
    fn address(&self) -> Result<SocketAddr> {
        let (bind, _) = self.value("bind")?;
        let address: SocketAddr = bind.parse().with_context(|| format!("`bind` is `{bind}`"))?;
        if address.port() == 0 {
            bail!("`bind` must have a port other than 0, because the demo's commands use it");
        }
        Ok(address)
    }

    /// Adds a managed PostgreSQL to the command, unless the settings name another database.
    pub(crate) fn add_managed_database(&self, mut command: Command) -> Result<Command> {
        if self.value("database_url")?.0 == "embedded" {
            command.env(BIN_VARIABLE, install_postgres::ensure()?.directory());
        }
        Ok(command)
    }

    /// Limits the server's log to warnings, because a log of requests would hide the demo's messages. A log filter
    /// in the settings stays unchanged.
    fn limit_log_to_warnings(&self, mut command: Command) -> Command {
        if self.value("log.filter").is_ok_and(|(_, origin)| origin == "default") {
            command.env("FAIRWAY_LOG", "warn");
        }
        command
    }
}

/// The command that starts the server in a separate process group. Ctrl-C then reaches only this process, which
/// forwards it once.
pub(crate) fn serve_command(paths: &Paths, profile: Profile) -> Command {
    let mut command = parent_death::command(paths.server_executable(profile), DeathSignal::Terminate);
    command.arg("serve").current_dir(&paths.root).process_group(0);
    command
}

/// A running server that receives SIGTERM when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
}

impl Server {
    pub(crate) fn wait_until_ready(&mut self, address: SocketAddr, signals: &Signals) -> Result<ChildEvent> {
        let start = Instant::now();
        while start.elapsed() < READY_TIMEOUT {
            match children::poll(&mut self.child, signals)? {
                ChildEvent::Running if is_ready(address) => return Ok(ChildEvent::Running),
                ChildEvent::Running => {}
                event @ (ChildEvent::Exited(_) | ChildEvent::StopRequested) => return Ok(event),
            }
        }
        bail!("fairway-server did not get ready within {} s", READY_TIMEOUT.as_secs())
    }

    /// Sends SIGTERM to the server, and waits without a timeout while it completes active work. A second stop signal
    /// kills the server.
    fn drain(mut self, signals: &Signals) -> Result<ExitCode> {
        println!("xtask: shutting down; press Ctrl-C again to kill the server");
        children::send_signal(&self.child, Signal::SIGTERM);
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
            children::send_signal(&self.child, Signal::SIGTERM);
            // Ignores an error of `wait`, because `drop` cannot return it.
            let _ = self.child.wait();
        }
    }
}

/// Requests `/readyz`; any result except status 200 means that the server is not ready.
fn is_ready(address: SocketAddr) -> bool {
    let timeout = Duration::from_secs(2);
    let read_status = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        // One write sends the whole request, because a second write would fail if the server responds and closes early.
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut status = vec![0; b"HTTP/1.1 200".len()];
        stream.read_exact(&mut status)?;
        Ok(status)
    };
    read_status().is_ok_and(|status| status == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of a server that sends this response to its first connection, then stops.
    fn server_with_response(response: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /readyz"));
            stream.write_all(response.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn settings_come_from_file_and_environment() {
        let text = "bind = 127.0.0.1:8081 (file)\ndatabase_url = postgres (environment)\nlog.filter = info (default)\n";
        let settings = ServerSettings { text: text.to_owned() };
        assert_eq!(settings.address().unwrap(), "127.0.0.1:8081".parse().unwrap());
        assert_eq!(settings.value("database_url").unwrap(), ("postgres", "environment"));
        let variable_names =
            |command: &Command| command.get_envs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert!(variable_names(&settings.add_managed_database(Command::new("x")).unwrap()).is_empty());
        assert_eq!(variable_names(&settings.limit_log_to_warnings(Command::new("x"))), ["FAIRWAY_LOG"]);
        assert!(settings.value("data_dir").is_err());
        let without_port = ServerSettings { text: "bind = 127.0.0.1:0 (file)\n".to_owned() };
        assert!(without_port.address().is_err());
    }

    #[test]
    fn message_has_three_lines_and_names_a_program_that_exists() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("built");
        std::fs::write(&program, "").unwrap();
        let data = root.path().join("data");
        // The second iteration replaces the link of the first.
        for _ in 0..2 {
            let link = link_command_line(&data.join("bin"), &program).unwrap();
            assert_eq!(std::fs::read_link(&link).unwrap(), program);
            let message = ready_message(DEFAULT_ADDRESS, &link, &data);
            assert_eq!(message.lines().count(), 3, "{message}");
            let command_line = message.lines().nth(1).unwrap();
            assert_eq!(command_line.split(' ').nth(1), link.to_str());
            assert!(!command_line.contains("--server"), "{command_line}");
            let other_message = ready_message("127.0.0.1:9".parse().unwrap(), &link, &data);
            assert!(other_message.contains("twice' --server http://127.0.0.1:9\n"), "{other_message}");
        }
    }

    #[test]
    fn names_the_settings_file() {
        let arguments = |config| with_config(Command::new("x"), config).get_args().count();
        assert_eq!((arguments(None), arguments(Some(Path::new("/a.toml")))), (0, 2));
    }

    #[test]
    fn only_status_200_is_ready() {
        assert!(is_ready(server_with_response("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")));
        assert!(!is_ready(server_with_response("HTTP/1.1 503 Service Unavailable\r\n\r\n")));
        assert!(!is_ready(server_with_response("")));
    }
}
