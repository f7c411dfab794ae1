//! `cargo xtask verify-page` writes the page that verifies evidence bundles. `cargo xtask verifiers` compares it with
//! `fairway verify` and with a Python program that uses the libraries of in-toto and DSSE.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::demo_server::DemoServer;
use crate::external_tools::{self, NpmInstallation, PythonEnvironment};
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::step::{Steps, run_checked};
use crate::{browser, children};

/// The folder of the page's sources and tests.
const FOLDER: &str = "tools/verify";
/// The private key of the log under test, with which the tests sign changed bundles. The key is public test data.
const TEST_KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
/// The environment variable that passes [`TEST_KEY`] to the tests.
const KEY_VARIABLE: &str = "VERIFY_KEY";

/// Writes docs/verify.html.
pub(crate) fn write_page(paths: &Paths) -> Result<ExitCode> {
    let npm = install(paths)?;
    run_checked(build_command(paths, &npm))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all tests of the verifiers.
pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(paths, &mut steps)?;
    Ok(steps.finish())
}

/// Checks that docs/verify.html matches its sources, then compares the verdicts of all verifiers on changed bundles.
pub(crate) fn check(paths: &Paths, steps: &mut Steps) -> Result<()> {
    let tools = Tools {
        npm: install(paths)?,
        python: external_tools::install_python_packages(paths, &paths.root.join(FOLDER))?,
        browser: browser::ensure_chromium()?,
        bundles: tempfile::tempdir().context("creating the folder of the bundles")?,
    };
    steps.run("docs/verify.html is built from its sources", || {
        let mut compare = build_command(paths, &tools.npm);
        compare.arg("--check");
        run_checked(compare)
    });
    let signals = Signals::catch()?;
    let built = children::run(paths.checked_programs_build_command(), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let settings = [
        ("FAIRWAY_LOG_ORIGIN", "logs.example.org".to_owned()),
        ("FAIRWAY_CHECKPOINT_KEY_REF", format!("env:{KEY_VARIABLE}")),
        (KEY_VARIABLE, TEST_KEY.to_owned()),
    ];
    let server = DemoServer::start(paths, &signals, &settings)?;
    let mut export = script(paths, &tools.npm, "export.mjs");
    export.arg(format!("http://{}", server.address)).arg(tools.bundles.path());
    run_checked(export).context("exporting bundles")?;
    // The server stops here, because the following steps use only the exported bundles.
    drop(server);
    steps.run("verifiers agree on changed bundles", || run_checked(tools.command(paths, "compare_verifiers.mjs")));
    steps.run("docs/verify.html in Chromium", || run_checked(tools.command(paths, "browser.mjs")));
    Ok(())
}

/// Executables, packages and exported bundles that the tests of the verifiers use.
struct Tools {
    npm: NpmInstallation,
    python: PythonEnvironment,
    browser: PathBuf,
    bundles: tempfile::TempDir,
}

impl Tools {
    /// A command that runs a test script with its environment variables.
    fn command(&self, paths: &Paths, name: &str) -> Command {
        let mut command = script(paths, &self.npm, name);
        command.env("VERIFY_MODULES", &self.npm.modules).env("VERIFY_PYTHON", &self.python.interpreter);
        command
            .env("VERIFY_COMMAND", paths.command_line_executable(Profile::Dev))
            .env("VERIFY_BUNDLES", self.bundles.path());
        command.env("VERIFY_CHROMIUM", &self.browser).env("VERIFY_PICTURES", paths.target.join("browser"));
        command.env(KEY_VARIABLE, TEST_KEY);
        command
    }
}

fn install(paths: &Paths) -> Result<NpmInstallation> {
    external_tools::install_npm_packages(paths, &paths.root.join(FOLDER))
}

fn build_command(paths: &Paths, npm: &NpmInstallation) -> Command {
    let mut build = node(npm, &paths.root.join(FOLDER).join("build.mjs"));
    build.arg(&npm.modules);
    build
}

fn script(paths: &Paths, npm: &NpmInstallation, name: &str) -> Command {
    node(npm, &paths.root.join(FOLDER).join("test").join(name))
}

fn node(npm: &NpmInstallation, program: &Path) -> Command {
    let mut command = Command::new(&npm.node);
    command.arg(program);
    command
}
