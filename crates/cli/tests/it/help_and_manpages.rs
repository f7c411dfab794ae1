//! Help, scripts for shell completion, and manual pages, which need no server.

use crate::{Terminal, path_text};
use std::time::{Duration, Instant};

#[test]
fn generates_help_completions_and_manual_pages() {
    let terminal = Terminal::offline();
    assert!(terminal.run_ok(&["--help"]).contains("Exit codes"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = terminal.run_ok(&["completions", shell]);
        assert!(script.contains("COMPLETE") && script.contains("fairway"), "{shell}");
    }
    let folder = terminal.home.path().join("man");
    terminal.run_ok(&["man", path_text(&folder)]);
    let page = std::fs::read_to_string(folder.join("fairway-run.1")).unwrap();
    assert!(page.contains("Ctrl") && folder.join("fairway-sync-plan.1").exists(), "{page}");
    assert_common_options_are_separate(&terminal.run_ok(&["run", "--help"]), "\nOptions:\n", "\nCommon options:\n");
    assert_common_options_are_separate(&page.replace("\\-", "-"), ".SH OPTIONS\n", "COMMON OPTIONS");
    // A shell can load the completion script without errors.
    let script = terminal.home.path().join("fairway.bash");
    std::fs::write(&script, terminal.run_ok(&["completions", "bash"])).unwrap();
    let load_script = "source \"$0\" && complete -p fairway";
    let output = std::process::Command::new("bash").args(["-ec", load_script]).arg(&script).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The options that all commands share follow the command's own options, under a separate heading.
fn assert_common_options_are_separate(text: &str, own_heading: &str, common_heading: &str) {
    let (_, options) = text.split_once(own_heading).unwrap();
    let (own_options, common_options) = options.split_once(common_heading).unwrap();
    assert!(own_options.contains("--idempotency-key") && !own_options.contains("--workspace"), "{text}");
    assert!(common_options.contains("--workspace") && !common_options.contains("--idempotency-key"), "{text}");
}

/// The time bound is the same for all builds. Using the best of several runs reduces the influence of other load.
#[test]
fn help_prints_within_the_time_bound() {
    let terminal = Terminal::offline();
    let help = || {
        let started = Instant::now();
        terminal.run_ok(&["--help"]);
        started.elapsed()
    };
    let best = (0..20).map(|_| help()).min().unwrap();
    assert!(best < Duration::from_millis(20), "{best:?}");
}
