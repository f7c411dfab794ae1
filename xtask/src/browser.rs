//! `cargo xtask browser`: tests the portal in Chromium against a server with the demo.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use fairway_managed_postgres::unused_port::unused_address;

use crate::demo_server::DemoServer;
use crate::paths::{Paths, find_on_path};
use crate::signals::Signals;
use crate::step::{Steps, run_checked};
use crate::{apt, children, portal};

/// Names of the Chromium executable in different distributions.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The long form: runtime pages in every combination of presentation mode, output display and access mode, a list
    /// of 100,000 runs, and the forms of every kind of asset
    #[arg(long)]
    long: bool,
    /// Names of tests (states) or of their modules; without names, all tests run
    states: Vec<String>,
}

/// Selects the browser tests that run. A state is one test in a module of `portal/browser`.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    /// Every state, and a subset of the combinations of runtime pages (the matrix).
    Required,
    /// Only the full matrix of the runtime pages, and the largest lists and forms.
    Long,
    /// The named states.
    States(&'a [String]),
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let selection = match arguments {
        Arguments { long: true, .. } => Selection::Long,
        Arguments { states, .. } if states.is_empty() => Selection::Required,
        Arguments { states, .. } => Selection::States(states),
    };
    let mut steps = Steps::default();
    check(paths, &mut steps, selection)?;
    Ok(steps.finish())
}

/// Runs the tests. Screenshots are stored in `browser` of the target directory.
pub(crate) fn check(paths: &Paths, steps: &mut Steps, selection: Selection<'_>) -> Result<()> {
    let npm = portal::install_packages(paths)?;
    portal::ensure_built(paths)?;
    let browser = ensure_chromium()?;
    let signals = Signals::catch()?;
    let built = children::run(paths.checked_programs_build_command(), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let lanes: &[Option<&str>] = match selection {
        Selection::Required => &LANES.map(Some),
        Selection::Long | Selection::States(_) => &[None],
    };
    let lanes = lanes.iter().map(|lane| Lane::start(paths, &signals, *lane)).collect::<Result<Vec<_>>>()?;
    let program = Program { paths, node: &npm.node, modules: &npm.modules, browser: &browser, selection };
    steps.run("pages in Chromium", || program.test_in_parallel(&lanes));
    Ok(())
}

/// The parts of the required tests, as `portal/browser/run.mjs` names them. They run in parallel, because each mostly
/// waits for its browser and server.
const LANES: [&str; 2] = ["pages", "console"];

/// A part of the tests with its own demo server. Parts share no server, because tests compare complete lists.
struct Lane {
    name: Option<&'static str>,
    server: DemoServer,
    /// Address of the page that embeds a workload. It is chosen early, because it is a setting of the server.
    host: SocketAddr,
    /// Address of the stub of a model provider.
    provider: SocketAddr,
}

impl Lane {
    fn start(paths: &Paths, signals: &Signals, name: Option<&'static str>) -> Result<Self> {
        let (host, provider) = (unused_address()?, unused_address()?);
        let settings = [
            ("FAIRWAY_EMBED_ANCESTORS", format!("'self' http://{host}")),
            ("SERVICE_EMBED_ROOT_SLUGS", "browser-embed, browser-link".to_owned()),
            ("FAIRWAY_PROVIDERS__STUB__KIND", "openai".to_owned()),
            ("FAIRWAY_PROVIDERS__STUB__BASE_URL", format!("http://{provider}/v1")),
            ("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "30".to_owned()),
        ];
        Ok(Self { name, server: DemoServer::start(paths, signals, &settings)?, host, provider })
    }
}

/// The Node program `portal/browser/run.mjs`, which runs the tests in the browser.
struct Program<'a> {
    paths: &'a Paths,
    node: &'a Path,
    modules: &'a Path,
    browser: &'a Path,
    selection: Selection<'a>,
}

impl Program<'_> {
    /// Tests all lanes in parallel; the error contains the failures of all lanes.
    fn test_in_parallel(&self, lanes: &[Lane]) -> Result<()> {
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let running: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| self.test(lane))).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                handle.join().unwrap_or_else(|_| bail!("a lane of the browser tests panicked"))
            };
            running.into_iter().map(join).collect()
        });
        let failed: Vec<String> =
            results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
    }

    fn test(&self, lane: &Lane) -> Result<()> {
        let screenshots = self.paths.target.join("browser");
        let failures = screenshots.join(format!("failures-{}.txt", lane.name.unwrap_or("all")));
        let mut command = Command::new(self.node);
        command.arg(self.paths.root.join("portal/browser/run.mjs"));
        match self.selection {
            Selection::Required => {}
            Selection::Long => {
                command.env("PORTAL_LONG", "1");
            }
            Selection::States(states) => {
                command.args(states);
            }
        }
        if let Some(name) = lane.name {
            command.env("PORTAL_LANE", name).env("PORTAL_LANES", LANES.join(" "));
        }
        command.env("PORTAL_MODULES", self.modules).env("PORTAL_SERVER", format!("http://{}", lane.server.address));
        command.env("PORTAL_CHROMIUM", self.browser).env("PORTAL_HOST", format!("http://{}", lane.host));
        command.env("PORTAL_PROVIDER", format!("http://{}", lane.provider));
        command.env("PORTAL_PICTURES", &screenshots).env("PORTAL_FAILURES", &failures);
        // Removes the failures of an earlier run, which would otherwise appear in the error of this run.
        let _ = fs::remove_file(&failures);
        run_checked(command).with_context(|| fs::read_to_string(&failures).unwrap_or_default())
    }
}

/// The path of the distribution's Chromium; installs the package when missing.
pub(crate) fn ensure_chromium() -> Result<PathBuf> {
    let find = || PROGRAMS.iter().find_map(|program| find_on_path(program));
    if let Some(program) = find() {
        return Ok(program);
    }
    println!("xtask: installing chromium");
    apt::install("chromium")?;
    find().context("Chromium is missing: install your distribution's `chromium`")
}
