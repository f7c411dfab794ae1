//! Applying a directory of resources to a running server, through its API alone.
//!
//! Two people do it, as governance wants it: one makes and submits, the other approves and activates. What is there
//! already is used, so that applying twice changes nothing, and applying again after a failure goes on where it ended.

mod asset;
mod manifest;
mod release;
mod remote;

use anyhow::Context as _;
use asset::Version;
use manifest::{Manifests, ReleaseManifest, WorkloadManifest};
use remote::{Remote, text};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write as _},
    path::Path,
};

/// Who makes things and submits them.
const AUTHOR: &str = "user:demo-author";
/// Who approves and activates what the other made.
const APPROVER: &str = "user:demo-approver";

/// Applies `directory` (its layout is described in `demo/README.md`) to the server at the address `server`, in its
/// default workspace. Says on standard output what was done by whom, and in the end how to run it.
///
/// The process must have a default provider of cryptography installed before.
///
/// # Errors
/// When the directory cannot be read as manifests, or the server cannot be reached or refuses a step. What was done
/// until then stays, and applying again goes on from there.
pub async fn seed(server: &str, directory: &Path) -> anyhow::Result<()> {
    let manifests = Manifests::read(directory)?;
    let remote = Remote::new(server)?;
    let mut versions: BTreeMap<&str, Version<'_>> = BTreeMap::new();
    for asset in &manifests.assets {
        let version = asset::ensure(&remote, asset).await.with_context(|| format!("asset `{}`", asset.slug))?;
        versions.insert(&asset.slug, version);
    }
    for workload in &manifests.workloads {
        ensure_workload(&remote, workload).await.with_context(|| format!("workload `{}`", workload.slug))?;
    }
    for release in &manifests.releases {
        let named = || format!("release of `{}` in `{}`", release.workload, release.environment);
        let workload_id = find_workload(&remote, &release.workload).await.with_context(named)?;
        let workload_id = workload_id.context("there is no such workload").with_context(named)?;
        release::ensure_active(&remote, release, &workload_id, &versions).await.with_context(named)?;
    }
    for release in &manifests.releases {
        show_how_to_run(server.trim_end_matches('/'), release);
    }
    Ok(())
}

/// Tells what was done. When nobody reads any more, the work goes on all the same: half a demo would be worse.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// A workload of that slug is taken as it is: who changed its name or owner since had a reason. One that was never
/// changed and lacks its interface was left behind by an earlier, interrupted attempt.
async fn ensure_workload(remote: &Remote, wanted: &WorkloadManifest) -> anyhow::Result<()> {
    let found = remote.find_by_slug(AUTHOR, &["workloads"], &[], &wanted.slug).await?;
    let (workload, untouched) = match found {
        Some(workload) => {
            say(format_args!("workload `{}` is there already", wanted.slug));
            let untouched = workload.get("updated_at") == workload.get("created_at");
            (workload, untouched)
        }
        None => {
            let made = remote.post(AUTHOR, &["workloads"], &json!(wanted)).await?;
            say(format_args!("{AUTHOR} created workload `{}`", wanted.slug));
            (made, true)
        }
    };
    if let (true, Some(config)) = (untouched, &wanted.interface_config) {
        let path = ["workloads", text(&workload, "workload_id")?];
        remote.patch(AUTHOR, &path, &json!({ "interface_config": config })).await?;
        say(format_args!("{AUTHOR} gave `{}` its interface", wanted.slug));
    }
    Ok(())
}

async fn find_workload(remote: &Remote, slug: &str) -> anyhow::Result<Option<String>> {
    let found = remote.find_by_slug(AUTHOR, &["workloads"], &[], slug).await?;
    found.map(|workload| text(&workload, "workload_id").map(str::to_owned)).transpose()
}

fn show_how_to_run(server: &str, release: &ReleaseManifest) {
    let body = json!({ "environment": release.environment, "inputs": release.example_inputs });
    say(format_args!("\nRun `{}` in `{}`:\n", release.workload, release.environment));
    say(format_args!(
        "curl -sS {} -H 'Content-Type: application/json' -d {}",
        quoted(&format!("{server}/v1/workloads/by-slug/{}/execute", release.workload)),
        quoted(&body.to_string())
    ));
    say(format_args!("\nRead what stands behind the answer, with EXECUTION_ID set to its `execution_id`:\n"));
    say(format_args!("curl -sS {}/v1/executions/\"$EXECUTION_ID\"/evidence-graph", quoted(server)));
}

/// A text as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_one_word_of_the_shell() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quoted("a'b \"$c\" `d` \\"))])
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"a'b \"$c\" `d` \\");
    }
}
