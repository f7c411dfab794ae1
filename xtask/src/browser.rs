//! `cargo xtask browser`: tests the portal in Chromium against a server with the demo.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::demo_server::DemoServer;
use crate::paths::{Paths, Profile, find_on_path};
use crate::signals::Signals;
use crate::step::{Steps, run_checked};
use crate::{apt, children, portal};

/// The names of the browser's program.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The long form: runtime pages in every combination of presentation mode, output display and access mode
    #[arg(long)]
    matrix: bool,
    /// Only these states, or the states of these modules; all without any
    states: Vec<String>,
}

/// Which tests run.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    /// Every state, and a part of the matrix.
    Required,
    /// The whole matrix of the runtime pages, and nothing else.
    Matrix,
    /// The named states.
    States(&'a [String]),
}

pub(crate) fn run(place: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let selection = match arguments {
        Arguments { matrix: true, .. } => Selection::Matrix,
        Arguments { states, .. } if states.is_empty() => Selection::Required,
        Arguments { states, .. } => Selection::States(states),
    };
    let mut steps = Steps::default();
    check(place, &mut steps, selection)?;
    Ok(steps.finish())
}

/// Runs the tests. Screenshots are stored in `browser` of the target directory.
pub(crate) fn check(place: &Paths, steps: &mut Steps, selection: Selection<'_>) -> Result<()> {
    let npm = portal::install_packages(place)?;
    portal::ensure_built(place)?;
    let browser = ensure_chromium()?;
    let signals = Signals::catch()?;
    let built = children::run(place.build_programs(Profile::Dev), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let tests = |server: SocketAddr, host: SocketAddr, provider: SocketAddr| {
        let mut command = Command::new(&npm.node);
        command.arg(place.root.join("portal/browser/run.mjs"));
        match selection {
            Selection::Required => {}
            Selection::Matrix => {
                command.env("PORTAL_MATRIX", "full");
            }
            Selection::States(states) => {
                command.args(states);
            }
        }
        command.env("PORTAL_MODULES", &npm.modules).env("PORTAL_SERVER", format!("http://{server}"));
        command.env("PORTAL_CHROMIUM", &browser).env("PORTAL_HOST", format!("http://{host}"));
        command.env("PORTAL_PROVIDER", format!("http://{provider}"));
        let pictures = place.target.join("browser");
        command.env("PORTAL_PICTURES", &pictures);
        run_checked(command).with_context(|| fs::read_to_string(pictures.join("failures.txt")).unwrap_or_default())
    };
    // The address of the page that embeds a workload; the server must know it before it starts.
    let host = unused_address()?;
    let provider = unused_address()?;
    let settings = [
        ("FAIRWAY_EMBED_ANCESTORS", format!("'self' http://{host}")),
        ("SERVICE_EMBED_ROOT_SLUGS", "browser-embed, browser-link".to_owned()),
        ("FAIRWAY_PROVIDERS__STUB__KIND", "openai".to_owned()),
        ("FAIRWAY_PROVIDERS__STUB__BASE_URL", format!("http://{provider}/v1")),
        ("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "30".to_owned()),
    ];
    let running = DemoServer::start(place, &signals, &settings)?;
    steps.run("pages in Chromium", || tests(running.address, host, provider));
    drop(running);
    Ok(())
}

/// An address on loopback with a port that nothing listens on.
pub(crate) fn unused_address() -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("finding an unused port")?;
    Ok(listener.local_addr()?)
}

/// Chromium of the distribution, which is installed when missing.
pub(crate) fn ensure_chromium() -> Result<PathBuf> {
    let find = || PROGRAMS.iter().find_map(|program| find_on_path(program));
    if let Some(program) = find() {
        return Ok(program);
    }
    println!("xtask: installing chromium");
    apt::install("chromium")?;
    find().context("Chromium is missing: install your distribution's `chromium`")
}
