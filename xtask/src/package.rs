//! `cargo xtask package`: builds the portal, and the distribution of `fairway` with completions and manual pages.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::portal;
use crate::step::run_checked;

/// Maximum size of the executable in bytes, because CI pipelines download it.
const MAX_BYTES: u64 = 15 << 20;

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    portal::ensure_built(paths)?;
    let mut build = paths.cargo();
    build.args(["build", "--profile", "small", "--package", "fairway-cli", "--bin", "fairway"]);
    run_checked(build)?;
    let built = paths.target.join("small/fairway");
    check_size(&built, MAX_BYTES)?;
    let folder = paths.target.join("package");
    fs::create_dir_all(folder.join("completions"))?;
    let program = folder.join("fairway");
    fs::copy(&built, &program).context("copying the program")?;
    for shell in ["bash", "zsh", "fish"] {
        let script = File::create(folder.join("completions").join(format!("fairway.{shell}")))?;
        let mut write = Command::new(&program);
        write.args(["completions", shell]).stdout(script);
        run_checked(write)?;
    }
    let mut pages = Command::new(&program);
    pages.arg("man").arg(folder.join("man"));
    run_checked(pages)?;
    println!("{} contains the executable, its completions and its manual pages", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Fails if the executable exceeds the limit in bytes.
fn check_size(program: &Path, limit: u64) -> Result<()> {
    let size = fs::metadata(program).context("reading the executable's size")?.len();
    println!("{} has {size} bytes", program.display());
    if size > limit {
        bail!("the executable exceeds the maximum of {limit} bytes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_an_oversized_executable() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("fairway");
        fs::write(&program, [0; 100]).unwrap();
        assert!(check_size(&program, 100).is_ok());
        assert!(check_size(&program, 99).is_err());
    }
}
