//! `cargo xtask openapi`: writes the OpenAPI document from the code.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::step::run_for_output;

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    let mut command = paths.cargo();
    command.args(["run", "--quiet", "--package", "fairway-api", "--bin", "fairway-server", "--", "openapi"]);
    let document = run_for_output(command)?;
    serde_json::from_str::<serde_json::Value>(&document)
        .context("fairway-server printed something that is not JSON")?;
    let path = paths.root.join("docs/openapi.json");
    fs::write(&path, document).with_context(|| format!("writing {}", path.display()))?;
    println!("wrote docs/openapi.json");
    Ok(ExitCode::SUCCESS)
}
