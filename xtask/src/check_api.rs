//! `cargo xtask check-api`: programs that others wrote, living on the API and its document: a linter reads the document, a
//! property-testing tool asks everything that it allows and forbids, and two clients that are generated from it walk the
//! guide's first chapter.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use fairway_private_postgres::PrivateServer;
use fairway_private_postgres::binaries::BIN_VARIABLE;
use tempfile::TempDir;

use crate::children::{self, Event};
use crate::foreign::{self, Npm, Python};
use crate::place::{Place, Profile};
use crate::signals::Signals;
use crate::step::{Steps, succeed};
use crate::up::Server;
use crate::{demo, postgres};

/// Where the tools' own files lie.
const FOLDER: &str = "tools/api";
/// Requests that the property-testing tool makes of each operation and kind of question, in CI.
const FEW: u32 = 8;

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Ask many times as much, from another seed each time
    #[arg(long)]
    long: bool,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(place, arguments, &mut steps)?;
    Ok(steps.finish())
}

pub(crate) fn check(place: &Place, arguments: &Arguments, steps: &mut Steps) -> Result<()> {
    let files = place.root.join(FOLDER);
    let npm = foreign::npm(place, &files)?;
    let python = foreign::python(place, &files)?;
    steps.step("the document, linted", || lint(place, &npm, &files));
    let work = tempfile::tempdir().context("making a directory to generate into")?;
    let signals = Signals::catch()?;
    let built = children::run(place.build_programs(Profile::Dev), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let running = Running::start(place, &signals)?;
    steps.step("a generated TypeScript client", || typescript(place, &npm, &files, &work, running.address));
    steps.step("a generated Python client", || generated_python(place, &python, &files, &work, running.address));
    steps.step("properties of every operation", || properties(&python, &files, &work, running.address, arguments));
    drop(running);
    Ok(())
}

fn document(place: &Place) -> PathBuf {
    place.root.join("docs/openapi.json")
}

fn lint(place: &Place, npm: &Npm, files: &Path) -> Result<()> {
    let mut command = npm.program("redocly");
    command.arg("lint").arg("--config").arg(files.join("redocly.yaml")).args(["--max-problems", "50"]);
    command.arg(document(place)).env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    succeed(command)
}

/// Types out of the document, the walk compiled against them, and walked.
fn typescript(place: &Place, npm: &Npm, files: &Path, work: &TempDir, server: SocketAddr) -> Result<()> {
    let folder = work.path().join("typescript");
    fs::create_dir(&folder)?;
    for name in ["walk.ts", "tsconfig.json"] {
        fs::copy(files.join(name), folder.join(name)).with_context(|| format!("copying {name}"))?;
    }
    fs::write(folder.join("package.json"), "{\"type\": \"module\"}")?;
    std::os::unix::fs::symlink(&npm.modules, folder.join("node_modules"))?;
    let mut generate = npm.program("openapi-typescript");
    generate.arg(document(place)).arg("--output").arg(folder.join("fairway.d.ts"));
    succeed(generate)?;
    let mut compile = npm.program("tsc");
    compile.arg("--project").arg(&folder);
    succeed(compile)?;
    let mut walk = Command::new(&npm.node);
    walk.arg(folder.join("walk.js")).arg(format!("http://{server}"));
    succeed(walk)
}

/// A package out of the document, and the walk over it.
fn generated_python(place: &Place, python: &Python, files: &Path, work: &TempDir, server: SocketAddr) -> Result<()> {
    let package = work.path().join("python/fairway_client");
    let mut generate = python.program("openapi-python-client");
    generate.args(["generate", "--fail-on-warning", "--meta", "none", "--path"]).arg(document(place));
    generate.arg("--output-path").arg(&package).arg("--config").arg(files.join("python-client.yaml"));
    fs::create_dir_all(package.parent().context("the package has a parent")?)?;
    succeed(generate)?;
    let mut walk = Command::new(&python.interpreter);
    walk.arg(files.join("walk.py")).arg(format!("http://{server}")).env("PYTHONPATH", work.path().join("python"));
    walk.env("PYTHONDONTWRITEBYTECODE", "1");
    succeed(walk)
}

/// Everything that the document allows and forbids, asked of the server with all of the tool's checks.
fn properties(python: &Python, files: &Path, work: &TempDir, server: SocketAddr, arguments: &Arguments) -> Result<()> {
    let mut ask = python.program("schemathesis");
    ask.arg("--config-file").arg(files.join("schemathesis.toml")).args(["run", "--no-color"]);
    ask.arg(format!("http://{server}/openapi.json"));
    // A short run asks the same each time, so that it fails where something has changed and nowhere else.
    if arguments.long {
        ask.args(["--max-examples", "200"]);
    } else {
        ask.args(["--max-examples", &FEW.to_string(), "--seed", "1", "--generation-deterministic"]);
    }
    ask.current_dir(work.path());
    succeed(ask)
}

/// A server with the demo, over a PostgreSQL that goes with it.
struct Running {
    address: SocketAddr,
    // In this order: the server ends before what it stands on.
    _server: Server,
    _database: PrivateServer,
    _home: TempDir,
}

impl Running {
    fn start(place: &Place, signals: &Signals) -> Result<Self> {
        let binaries = postgres::ensure()?;
        let database = PrivateServer::throwaway(binaries.clone(), Vec::new()).context("starting PostgreSQL")?;
        let home = tempfile::tempdir()?;
        // Free a moment ago; whoever takes it in between makes the server say so.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let configured = |mut command: Command| {
            command
                .env("FAIRWAY_BIND", address.to_string())
                .env("FAIRWAY_DATABASE_URL", database.url("postgres"))
                .env("FAIRWAY_DATA_DIR", home.path())
                .env("FAIRWAY_LOG", "error")
                .env(BIN_VARIABLE, binaries.directory());
            command
        };
        let mut serve = configured(crate::up::serve(place, Profile::Dev));
        let mut server = Server { child: serve.spawn().context("starting fairway-server")? };
        match server.wait_until_ready(address, signals)? {
            Event::NothingYet => {}
            Event::Ended(status) => bail!("fairway-server ended while starting ({status})"),
            Event::Asked => bail!("stopped"),
        }
        succeed(configured(demo::seed(place, Profile::Dev)))?;
        Ok(Self { address, _server: server, _database: database, _home: home })
    }
}
