//! `cargo xtask check-api`: runs external tools against the API and its OpenAPI document. A linter checks the
//! document, a property-based testing tool sends generated requests, and two generated clients run the first chapter
//! of the guide.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use tempfile::TempDir;

use crate::children;
use crate::demo_server::DemoServer;
use crate::external_tools::{self, NpmInstallation, PythonEnvironment};
use crate::paths::Paths;
use crate::signals::Signals;
use crate::step::{Steps, run_checked};

/// The folder with configuration, client scripts and lock files of the external tools.
const TOOLS_FOLDER: &str = "tools/api";
/// Number of generated requests for each operation and test phase in CI.
const EXAMPLES: u32 = 24;
/// Number of generated requests for each operation and test phase with `--long`.
const LONG_EXAMPLES: u32 = 200;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Generate many times as many requests
    #[arg(long)]
    long: bool,
    /// The seed of the property-based tests; without it a new seed each time, which is printed
    #[arg(long)]
    seed: Option<u64>,
}

impl Arguments {
    /// Arguments whose seed is derived from the OpenAPI document. The same API receives the same requests, so that the
    /// result depends only on the change under test. `cargo xtask check-api` uses new seeds.
    pub(crate) fn for_required_checks(paths: &Paths) -> Result<Self> {
        let document = fs::read(document_path(paths)).context("reading the OpenAPI document")?;
        let mut hasher = DefaultHasher::new();
        document.hash(&mut hasher);
        Ok(Self { long: false, seed: Some(hasher.finish()) })
    }
}

pub(crate) fn run(paths: &Paths, arguments: &Arguments) -> Result<ExitCode> {
    let mut steps = Steps::default();
    check(paths, arguments, &mut steps)?;
    Ok(steps.finish())
}

pub(crate) fn check(paths: &Paths, arguments: &Arguments, steps: &mut Steps) -> Result<()> {
    let files = paths.root.join(TOOLS_FOLDER);
    let npm = external_tools::install_npm_packages(paths, &files)?;
    let python = external_tools::install_python_packages(paths, &files)?;
    steps.run("lint of the OpenAPI document", || lint(paths, &npm, &files));
    let work = tempfile::tempdir().context("creating the output directory")?;
    let signals = Signals::catch()?;
    let built = children::run(paths.checked_programs_build_command(), &signals)?;
    if !built.success() {
        bail!("the server does not build ({built})");
    }
    let server = DemoServer::start(paths, &signals, &[])?;
    steps.run("a generated TypeScript client", || typescript_client(paths, &npm, &files, &work, server.address));
    steps.run("a generated Python client", || python_client(paths, &python, &files, &work, server.address));
    steps.run("properties of every operation", || property_tests(&python, &files, &work, server.address, arguments));
    drop(server);
    Ok(())
}

fn document_path(paths: &Paths) -> PathBuf {
    paths.root.join("docs/openapi.json")
}

fn lint(paths: &Paths, npm: &NpmInstallation, files: &Path) -> Result<()> {
    let mut command = npm.program("redocly");
    command.arg("lint").arg("--config").arg(files.join("redocly.yaml")).args(["--max-problems", "50"]);
    command.arg(document_path(paths)).env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    run_checked(command)
}

/// Generates TypeScript types from the document, compiles the client script against them, and runs it.
fn typescript_client(
    paths: &Paths,
    npm: &NpmInstallation,
    files: &Path,
    work: &TempDir,
    server: SocketAddr,
) -> Result<()> {
    let folder = work.path().join("typescript");
    fs::create_dir(&folder)?;
    for name in ["guide_client.ts", "tsconfig.json"] {
        fs::copy(files.join(name), folder.join(name)).with_context(|| format!("copying {name}"))?;
    }
    fs::write(folder.join("package.json"), "{\"type\": \"module\"}")?;
    std::os::unix::fs::symlink(&npm.modules, folder.join("node_modules"))?;
    let mut generate = npm.program("openapi-typescript");
    generate.arg(document_path(paths)).arg("--output").arg(folder.join("fairway.d.ts"));
    run_checked(generate)?;
    let mut compile = npm.program("tsc");
    compile.arg("--project").arg(&folder);
    run_checked(compile)?;
    let mut run_client = Command::new(&npm.node);
    run_client.arg(folder.join("guide_client.js")).arg(format!("http://{server}"));
    run_checked(run_client)
}

/// Generates a Python package from the document, and runs the client script with it.
fn python_client(
    paths: &Paths,
    python: &PythonEnvironment,
    files: &Path,
    work: &TempDir,
    server: SocketAddr,
) -> Result<()> {
    let package = work.path().join("python/fairway_client");
    let mut generate = python.program("openapi-python-client");
    generate.args(["generate", "--fail-on-warning", "--meta", "none", "--path"]).arg(document_path(paths));
    generate.arg("--output-path").arg(&package).arg("--config").arg(files.join("python-client.yaml"));
    fs::create_dir_all(package.parent().context("the package has a parent")?)?;
    run_checked(generate)?;
    let mut run_client = Command::new(&python.interpreter);
    run_client
        .arg(files.join("guide_client.py"))
        .arg(format!("http://{server}"))
        .env("PYTHONPATH", work.path().join("python"));
    run_client.env("PYTHONDONTWRITEBYTECODE", "1");
    run_checked(run_client)
}

/// Sends generated valid and invalid requests to the server with Schemathesis, and applies all its checks.
fn property_tests(
    python: &PythonEnvironment,
    files: &Path,
    work: &TempDir,
    server: SocketAddr,
    arguments: &Arguments,
) -> Result<()> {
    let mut command = python.program("schemathesis");
    command.arg("--config-file").arg(files.join("schemathesis.toml")).args(["run", "--no-color"]);
    command.arg(format!("http://{server}/openapi.json"));
    let seed = arguments.seed.map_or_else(fresh_seed, Ok)?;
    println!("seed {seed}: `cargo xtask check-api --seed {seed}` sends the same requests");
    command.args(generation_arguments(arguments.long, seed)).current_dir(work.path());
    // `hooks.py` defines the codec `visible`, which schemathesis.toml names.
    command.env("SCHEMATHESIS_HOOKS", files.join("hooks.py"));
    run_checked(command)
}

/// A new seed from the current time.
fn fresh_seed() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// The command-line arguments for the number of examples and the seed. Runs with different seeds cover more requests.
fn generation_arguments(is_long: bool, seed: u64) -> [String; 4] {
    let examples = if is_long { LONG_EXAMPLES } else { EXAMPLES };
    ["--max-examples".to_owned(), examples.to_string(), "--seed".to_owned(), seed.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;
    use toml::{Table, Value};

    const READS: [&str; 2] = ["2xx", "404"];

    fn schemathesis_configuration() -> Table {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::read_to_string(root.join(TOOLS_FOLDER).join("schemathesis.toml")).unwrap().parse().unwrap()
    }

    fn accepted(checks: &Value) -> Option<Vec<&str>> {
        let statuses = checks.get("positive_data_acceptance")?.get("expected-statuses")?;
        Some(statuses.as_array().unwrap().iter().map(|status| status.as_str().unwrap()).collect())
    }

    #[test]
    fn generation_has_a_seed_and_enough_examples() {
        let short = generation_arguments(false, 7);
        assert_eq!(short, ["--max-examples", "24", "--seed", "7"]);
        assert_eq!(generation_arguments(true, 7)[1], "200");
        let seed = fresh_seed().unwrap();
        assert!(seed > 1_700_000_000, "{seed}");
    }

    #[test]
    fn generates_all_visible_unicode() {
        let configuration = schemathesis_configuration();
        assert_eq!(configuration["generation"]["codec"].as_str(), Some("visible"));
        assert!(configuration["generation"].get("deterministic").is_none());
    }

    /// The codec excludes exactly the characters that the server refuses and that patterns in the OpenAPI document
    /// cannot exclude.
    #[test]
    fn codec_excludes_hidden_characters_beyond_the_bmp() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let source = read("crates/domain/src/text.rs");
        let table = source.split_once("const fn is_hidden").unwrap().1.split_once("\n}").unwrap().0;
        let points: Vec<u32> = table
            .split("\\u{")
            .skip(1)
            .map(|rest| u32::from_str_radix(rest.split_once('}').unwrap().0, 16).unwrap())
            .filter(|point| *point > 0xffff)
            .collect();
        let ranges: Vec<String> =
            points.chunks(2).map(|ends| format!("range(0x{:X}, 0x{:X})", ends[0], ends[1] + 1)).collect();
        assert_eq!(ranges.len(), 3);
        assert!(read("tools/api/hooks.py").contains(&format!("HIDDEN = [{}]", ranges.join(", "))), "{ranges:?}");
    }

    /// Every operation with a precondition may respond 412, because a schema cannot express the current revision.
    #[test]
    fn operations_with_a_precondition_may_refuse_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let document = fs::read_to_string(root.join("docs/openapi.json")).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let configuration = schemathesis_configuration();
        let groups = configuration["operations"].as_array().unwrap();
        let mut conditional = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                if !parameters.clone().any(|parameter| parameter["name"] == "If-Match") {
                    continue;
                }
                conditional += 1;
                let name = format!("{} {path}", method.to_uppercase());
                let statuses: Vec<_> = groups.iter().filter(|group| includes(group, &name)).collect();
                let [group] = statuses[..] else { panic!("{name} belongs to {} groups", statuses.len()) };
                assert!(accepted(&group["checks"]).is_some_and(|list| list.contains(&"412")), "{name}");
            }
        }
        assert!(conditional > 20, "{conditional}");
    }

    fn includes(group: &Value, operation: &str) -> bool {
        let text = |key: &str| group.get(key).and_then(Value::as_str);
        let pattern = text("include-name-regex").map(|pattern| Regex::new(pattern).unwrap());
        text("include-name") == Some(operation) || pattern.is_some_and(|pattern| pattern.is_match(operation))
    }

    /// Only success may be a status class (`2xx`), because other classes would hide changed statuses.
    #[test]
    fn expected_statuses_are_specific() {
        let configuration = schemathesis_configuration();
        assert_eq!(accepted(&configuration["checks"]).unwrap(), READS);
        for group in configuration["operations"].as_array().unwrap() {
            let Some(statuses) = group.get("checks").and_then(accepted) else { continue };
            let is_specific = |status: &&str| *status == "2xx" || status.parse::<u16>().is_ok();
            assert!(statuses.iter().all(is_specific), "{group}");
            let operations = ["include-name", "include-name-regex"].iter().find_map(|key| group.get(*key)?.as_str());
            let asks_generator = operations.is_some_and(|name| name.contains("/generate"));
            assert!(asks_generator || statuses.iter().all(|status| !status.starts_with('5')), "{group}");
            let is_read =
                group.get("include-name-regex").and_then(Value::as_str).is_some_and(|name| name.starts_with("^GET"));
            assert!(!is_read || !statuses.contains(&"409") && !statuses.contains(&"412"), "{group}");
        }
    }
}
