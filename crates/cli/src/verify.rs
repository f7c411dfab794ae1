//! `fairway verify`: checks an evidence bundle offline, with keys from another source than the bundle.

use crate::{
    command_context::CommandContext,
    failure::Failure,
    output::{eprint, print},
    terminal_text::sanitize,
};
use clap::Args;
use fairway_domain::{
    evidence::bundle::{BundleReport, CheckVerdict, MAX_BUNDLE_BYTES, SecondCheckpoint, TrustedInputs, verify_bundle},
    transparency_log::{VerifierKey, WitnessKey},
};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The bundle to verify, and the trusted inputs.
#[derive(Args)]
#[command(
    after_help = "The command opens no connection. Take the key from another source than the bundle and the server \
    that made it: `fairway audit keys`, run by the auditor at another time, or the operator's publication.\n\nExit \
    codes: 0 every check passed, 1 a check failed or no key was given.\n\nExamples:\n  fairway verify evidence.json \
    --key 'logs.example.org/019a...+c74f20a3+ARpc...'\n  fairway verify evidence.json --key-file keys.txt --output json"
)]
pub(crate) struct Arguments {
    /// The bundle, from `fairway evidence bundle`
    file: PathBuf,
    /// A public key of the log, in the form `<name>+<key id>+<base64>`; repeatable
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// A file with one public key on each line
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The public key of a witness that must have cosigned the checkpoint, in the same form; repeatable
    #[arg(long, value_name = "KEY")]
    witness: Vec<String>,
    /// The number of given witnesses that must have cosigned; all by default
    #[arg(long, value_name = "NUMBER", requires = "witness")]
    witnesses_required: Option<usize>,
    /// A checkpoint of the log that somebody else kept, from `GET /v1/audit/checkpoint`
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// The proof from `fairway audit consistency`, if the two checkpoints have different sizes
    #[arg(long, value_name = "FILE", requires = "checkpoint")]
    consistency_proof: Option<PathBuf>,
    /// The recorded input of the policy decision, as JSON in the form of a test's `input`; the policy decides again
    #[arg(long, value_name = "FILE")]
    policy_input: Option<PathBuf>,
}

/// Verifies a bundle and shows each check.
pub(crate) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let mut texts = arguments.key.clone();
    if let Some(path) = &arguments.key_file {
        let bytes = read(path, 1 << 20)?;
        let lines = String::from_utf8_lossy(&bytes);
        texts.extend(lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
    }
    let keys = texts.iter().map(|text| VerifierKey::parse(text).map_err(|refusal| Failure::Usage(refusal.to_string())));
    let keys: Vec<VerifierKey> = keys.collect::<Result<_, _>>()?;
    let witnesses = witness_keys(arguments)?;
    let read_note = |path: &PathBuf| read(path, 1 << 20);
    let checkpoint = arguments.checkpoint.as_ref().map(read_note).transpose()?;
    let proof = arguments.consistency_proof.as_ref().map(read_note).transpose()?;
    let policy_input = arguments.policy_input.as_ref().map(read_note).transpose()?;
    let trusted_inputs = TrustedInputs {
        policy_input: policy_input.as_deref(),
        log_keys: &keys,
        witnesses: &witnesses,
        required_witnesses: arguments.witnesses_required.unwrap_or(witnesses.len()),
        second_checkpoint: checkpoint
            .as_deref()
            .map(|note| SecondCheckpoint { note, consistency_proof: proof.as_deref() }),
    };
    let report = verify_bundle(&read(&arguments.file, MAX_BUNDLE_BYTES + 1)?, trusted_inputs);
    let output = context.offline_output();
    if output.is_for_people() {
        print_report(&report)?;
    } else {
        output.value(&json!({
            "verified": report.has_passed(),
            "checks": report.checks,
            "proven": report.proven_statements(),
            "not_proven": report.limitations(),
        }))?;
    }
    if report.has_passed() {
        return Ok(());
    }
    let failed = report.checks.iter().filter(|check| check.verdict == CheckVerdict::Failed).count();
    let hint = if keys.is_empty() { "; give a key with --key" } else { "" };
    Err(Failure::Failed(format!("{failed} of {} checks failed{hint}", report.checks.len())))
}

/// Parses the keys of the required witnesses.
fn witness_keys(arguments: &Arguments) -> Result<Vec<WitnessKey>, Failure> {
    if arguments.witnesses_required.is_some_and(|required| !(1..=arguments.witness.len()).contains(&required)) {
        let usage = "`--witnesses-required` must be at least 1 and at most the number of `--witness`";
        return Err(Failure::Usage(usage.to_owned()));
    }
    let parse = |text: &String| WitnessKey::parse(text).map_err(|refusal| Failure::Usage(refusal.to_string()));
    arguments.witness.iter().map(parse).collect()
}

/// Reads at most `limit` bytes of a file.
fn read(path: &Path, limit: usize) -> Result<Vec<u8>, Failure> {
    let failure = |cause: io::Error| Failure::Io { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    File::open(path).map_err(failure)?.take(limit).read_to_end(&mut bytes).map_err(failure)?;
    Ok(bytes)
}

fn print_report(report: &BundleReport) -> Result<(), Failure> {
    for check in &report.checks {
        let verdict = match check.verdict {
            CheckVerdict::Passed => "pass",
            CheckVerdict::Failed => "FAIL",
            CheckVerdict::NotIncluded => "skip",
        };
        let part = if check.part.is_empty() { String::new() } else { format!(" ({})", sanitize(&check.part)) };
        print(&format!("{verdict}  {}{part}", check.name))?;
        if check.verdict == CheckVerdict::Passed {
            print(&format!("      {}", sanitize(&check.actual)))?;
        } else {
            print(&format!(
                "      expected {}\n      actual   {}",
                sanitize(&check.expected),
                sanitize(&check.actual)
            ))?;
        }
    }
    if report.has_passed() {
        print("\nThis bundle shows:")?;
        report.proven_statements().iter().try_for_each(|statement| print(&format!("- {statement}")))?;
    } else {
        eprint("this bundle shows nothing, because a check failed");
    }
    print("\nIt does not show:")?;
    report.limitations().iter().try_for_each(|statement| print(&format!("- {statement}")))
}
