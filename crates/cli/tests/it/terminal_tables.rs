//! Tables on a terminal: width, colours and times.

use crate::{
    Terminal,
    sample_resources::{create_contents, create_workload},
};
use fairway_testkit::TestApp;
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{fs::File, io::Read as _, process::Stdio, thread};

/// Runs a command whose standard output is a terminal of this width. Returns the displayed text.
fn run_on_terminal(terminal: &Terminal, args: &[&str], columns: u16, variables: &[(&str, &str)]) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal_end = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    tcsetwinsize(&terminal_end, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    // The output may exceed the terminal's buffer, so a thread reads it. The read fails when the last process that
    // uses the terminal exits.
    let reader = thread::spawn(move || {
        let (mut output, mut buffer) = (Vec::new(), [0_u8; 4096]);
        let mut controller = File::from(controller);
        while let Ok(length @ 1..) = controller.read(&mut buffer) {
            output.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8(output).unwrap()
    });
    let mut command = terminal.command(args);
    command
        .envs(variables.iter().copied())
        .env("TERM", variables.iter().find(|(name, _)| *name == "TERM").map_or("xterm", |(_, kind)| kind));
    let status = command.stdout(Stdio::from(terminal_end)).stderr(Stdio::null()).status().unwrap();
    drop(command);
    assert!(status.success(), "{args:?}");
    reader.join().unwrap().replace("\r\n", "\n")
}

#[tokio::test]
async fn tables_fit_a_terminal_and_are_complete_in_a_pipe() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let (ada, _) = create_contents(&app);
    let long = "a-very-long-environment-name-that-alone-takes-more-than-sixty";
    ada.run_ok(&["releases", "create", "sorter", "--env", long, "--bind", "sort-prompt"]);
    let list = ["releases", "list"];
    for columns in [80, 60] {
        let printed = run_on_terminal(&ada, &list, columns, &[("NO_COLOR", "1")]);
        assert!(printed.lines().all(|line| line.chars().count() <= usize::from(columns)), "{columns}: {printed}");
        assert!(printed.contains('…') && !printed.contains('\u{1b}'), "{printed}");
        assert!(!printed.contains(long), "{printed}");
    }
    let wide = run_on_terminal(&ada, &list, 200, &[]);
    assert!(wide.contains(long) && wide.contains("\u{1b}[33mdraft\u{1b}[0m"), "{wide}");
    let dumb = run_on_terminal(&ada, &list, 200, &[("TERM", "dumb")]);
    assert!(!dumb.contains('\u{1b}'), "{dumb}");
    let piped = ada.run_ok(&list);
    assert!(piped.contains(long) && !piped.contains(['…', '\u{1b}']), "{piped}");
    assert!(piped.contains(" ago") || piped.contains("now"), "times are relative: {piped}");
    let json = ada.run_ok(&["releases", "list", "--output", "json"]);
    assert!(json.contains("\"updated_at\": \"20"), "exact for programs: {json}");
    // A record view shows every value. Long values are wrapped, and nested values are not printed as JSON.
    let record = run_on_terminal(&ada, &["workloads", "show", "sorter"], 80, &[]);
    assert!(record.lines().all(|line| line.chars().count() <= 80) && !record.contains(['{', '…']), "{record}");
    let piped = ada.run_ok(&["workloads", "show", "sorter"]);
    assert!(piped.contains("interface_config.input_fields:") && !piped.contains(['{', '[']), "{piped}");
}
