//! `cargo xtask sign-in`: tests the sign-in of people and programs at a server in OIDC mode with a
//! certified identity provider.
//!
//! The server runs with the settings in `docs/operations/sign-in.md`, so that the document stays correct.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use fairway_managed_postgres::unused_port::unused_address;

use crate::demo_server::DemoServer;
use crate::paths::{Paths, Profile};
use crate::signals::Signals;
use crate::step::{Steps, run_checked};
use crate::{browser, children, external_tools, install_litellm, portal};

/// The folder of the identity provider and of the tests.
const FOLDER: &str = "tools/oidc";
/// The document with the tested settings and commands.
const CHAPTER: &str = "docs/operations/sign-in.md";
/// The addresses of server and identity provider in the document, which each run replaces.
const CHAPTER_SERVER: &str = "https://fairway.example";
const CHAPTER_ISSUER: &str = "https://idp.example/realms/main";
/// The environment variable that contains the secret of the portal's OAuth client. `docs/operations/sign-in.md` uses
/// this name.
const SECRET_VARIABLE: &str = "PORTAL_CLIENT_SECRET";
/// The secret of the portal's OAuth client. Its special characters test the encoding of basic authentication
/// (RFC 6749, 2.3.1).
const SECRET: &str = "portal secret+/%";

pub(crate) fn run(paths: &Paths, states: &[String]) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(paths, states, &mut steps)?;
    Ok(steps.finish())
}

/// Runs all tests (states), or those with the given names. Screenshots are stored in `browser` of the target directory.
pub(crate) fn check(paths: &Paths, states: &[String], steps: &mut Steps) -> Result<()> {
    let provider = external_tools::install_npm_packages(paths, &paths.root.join(FOLDER))?;
    let tools = portal::install_packages(paths)?;
    portal::ensure_built(paths)?;
    let (chromium, python) = (browser::ensure_chromium()?, install_litellm::ensure(paths)?);
    let signals = Signals::catch()?;
    let built = children::run(paths.checked_programs_build_command(), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let (address, issuer) = (unused_address()?, unused_address()?);
    let addresses = Addresses::new(address, issuer);
    let chapter = fs::read_to_string(paths.root.join(CHAPTER)).with_context(|| format!("reading {CHAPTER}"))?;
    let mut settings = addresses.settings(&chapter)?;
    settings.push((SECRET_VARIABLE.to_owned(), SECRET.to_owned()));
    let server = DemoServer::start_at(address, paths, &signals, &settings)?;
    let screenshots = paths.target.join("browser");
    let failures = screenshots.join("failures-sign-in.txt");
    steps.run("sign-in with a certified provider", || {
        let mut command = Command::new(&provider.node);
        command.arg(paths.root.join(FOLDER).join("run.mjs")).args(states);
        command.env("OIDC_SERVER", &addresses.server).env("OIDC_ISSUER", &addresses.issuer);
        command.env("OIDC_MODULES", &provider.modules).env("PORTAL_MODULES", &tools.modules);
        command.env("OIDC_CHROMIUM", &chromium).env("OIDC_PYTHON", &python);
        command.env("OIDC_FAIRWAY", command_line(paths)).env("OIDC_PICTURES", &screenshots);
        command.env("OIDC_FAILURES", &failures).env(SECRET_VARIABLE, SECRET);
        // Removes the failures of an earlier run, which would otherwise appear in the error of this run.
        let _ = fs::remove_file(&failures);
        run_checked(command).with_context(|| fs::read_to_string(&failures).unwrap_or_default())
    });
    drop(server);
    Ok(())
}

fn command_line(paths: &Paths) -> PathBuf {
    paths.command_line_executable(Profile::Dev)
}

/// The addresses of the server and of the identity provider in one run.
struct Addresses {
    bind: String,
    server: String,
    issuer: String,
}

impl Addresses {
    /// The provider's host name differs from the server's, so that browsers treat them as two sites.
    fn new(server: SocketAddr, issuer: SocketAddr) -> Self {
        let issuer = format!("http://localhost:{}", issuer.port());
        Self { bind: server.to_string(), server: format!("http://{server}"), issuer }
    }

    /// The server's settings from the document, with the addresses of this run.
    fn settings(&self, chapter: &str) -> Result<Vec<(String, String)>> {
        let block = chapter.split_once("```ini\n").and_then(|(_, rest)| rest.split_once("```"));
        let (block, _) = block.with_context(|| format!("{CHAPTER} has no block of settings"))?;
        let setting = |line: &str| {
            let (name, value) = line.split_once('=').with_context(|| format!("`{line}` in {CHAPTER} is no setting"))?;
            let value = match name {
                "FAIRWAY_BIND" => self.bind.clone(),
                _ => value.replace(CHAPTER_SERVER, &self.server).replace(CHAPTER_ISSUER, &self.issuer),
            };
            Ok((name.to_owned(), value))
        };
        block.lines().map(setting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn settings_of_the_chapter_get_the_addresses_of_the_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let chapter = fs::read_to_string(root.join(CHAPTER)).unwrap();
        let addresses = Addresses::new("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let settings = addresses.settings(&chapter).unwrap();
        let value = |name: &str| settings.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        assert_eq!(value("FAIRWAY_AUTH_MODE"), Some("oidc"));
        assert_eq!(value("FAIRWAY_BIND"), Some("127.0.0.1:1"));
        assert_eq!(value("FAIRWAY_PUBLIC_URL"), Some("http://127.0.0.1:1"));
        assert_eq!(value("FAIRWAY_OIDC_ISSUER"), Some("http://localhost:2"));
        assert_eq!(value("FAIRWAY_OIDC_CLIENT_SECRET_REF"), Some("env:PORTAL_CLIENT_SECRET"));
        assert!(addresses.settings("no settings").is_err());
    }
}
