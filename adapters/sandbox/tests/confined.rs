//! The confinement of sandbox children, tested from inside. The test starts its own program as a child that attempts
//! one action. In a confined child, the kernel kills the process. In an unconfined child, the action succeeds, which
//! proves that the attempt itself works.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails at the first error, helpers included")]

use nix::{
    libc,
    sys::{
        mman::{MapFlags, ProtFlags, mmap_anonymous},
        resource::{Resource, getrlimit},
        signal::{SigHandler, SigSet, Signal, signal},
    },
};
use std::{
    env, fs,
    io::{self, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    num::NonZero,
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    process::{self, Command, Stdio},
    thread,
};

/// Environment variables that tell a child which action to attempt, and whether to confine itself first.
const ACTION: &str = "FAIRWAY_TEST_ACTION";
const CONFINED: &str = "FAIRWAY_TEST_CONFINED";

/// Performs an action in the child process.
fn attempt(action: &str) {
    match action {
        "read a file" => drop(fs::read("/etc/hostname").unwrap()),
        "write a file" => fs::write("/dev/null", "x").unwrap(),
        "list a folder" => drop(fs::read_dir("/").unwrap()),
        "remove a file" => drop(fs::remove_file("/nowhere")),
        "read a link" => drop(fs::read_link("/proc/self/exe").unwrap()),
        "connect" => drop(TcpStream::connect("127.0.0.1:9")),
        "listen" => drop(TcpListener::bind("127.0.0.1:0").unwrap()),
        "send" => drop(UdpSocket::bind("127.0.0.1:0").unwrap()),
        "pair sockets" => drop(UnixStream::pair().unwrap()),
        "start a program" => drop(Command::new("/bin/true").status().unwrap()),
        "start a thread" => thread::spawn(|| {}).join().unwrap(),
        "sleep" => thread::sleep(std::time::Duration::from_millis(1)),
        "signal its parent" => drop(nix::sys::signal::kill(nix::unistd::getppid(), None)),
        "make a pipe" => drop(nix::unistd::pipe().unwrap()),
        "read another descriptor" => drop(nix::unistd::read(std::io::stderr(), &mut [0; 1])),
        "change its limits" => drop(getrlimit(Resource::RLIMIT_NOFILE).unwrap()),
        "share memory" => map(MapFlags::MAP_SHARED),
        "take memory as a stack" => map(MapFlags::MAP_PRIVATE | MapFlags::MAP_GROWSDOWN),
        "ignore its alarm" => ignore(Signal::SIGALRM),
        "take memory" => map(MapFlags::MAP_PRIVATE),
        "think" => assert_eq!((0..100_000_u64).map(|n| n.to_string().len()).sum::<usize>(), 488_890),
        other => panic!("unknown action: {other}"),
    }
}

#[expect(unsafe_code, reason = "no safe API requests such memory, and it is never used")]
fn map(flags: MapFlags) {
    let mapping = unsafe { mmap_anonymous(None, NonZero::new(4096).unwrap(), ProtFlags::PROT_WRITE, flags) };
    mapping.unwrap();
}

#[expect(unsafe_code, reason = "the signal has no handler")]
fn ignore(ignored_signal: Signal) {
    unsafe { signal(ignored_signal, SigHandler::SigIgn) }.unwrap();
}

const FORBIDDEN: [&str; 19] = [
    "read a file",
    "write a file",
    "list a folder",
    "remove a file",
    "read a link",
    "connect",
    "listen",
    "send",
    "pair sockets",
    "start a program",
    "start a thread",
    "sleep",
    "signal its parent",
    "make a pipe",
    "read another descriptor",
    "change its limits",
    "share memory",
    "take memory as a stack",
    "ignore its alarm",
];

/// The part of a test that runs in the child process.
fn run_attempt(action: &str) -> ! {
    if action == "start one that stays" {
        // The grandchild inherits the pipes of this process.
        child("stay", true).status().unwrap();
    }
    if env::var_os(CONFINED).is_some() {
        fairway_sandbox::confine().unwrap();
    }
    match action {
        "stay" => stay(),
        _ => attempt(action),
    }
    process::exit(0);
}

/// Blocks every signal, reports this, and waits until its input pipe is closed.
fn stay() {
    SigSet::all().thread_block().unwrap();
    let mut out = io::stdout();
    writeln!(out, "stays").unwrap();
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    writeln!(out, "outlived its parent").unwrap();
}

/// The command for a child that attempts an action.
fn child(action: &str, is_confined: bool) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST, "--test-threads=1", "--nocapture"]).env(ACTION, action).env_remove(CONFINED);
    if is_confined {
        command.env(CONFINED, "yes");
    }
    command
}

/// The exit status of a child: its exit code, or the signal that killed it.
fn exit_of(action: &str, is_confined: bool) -> (Option<i32>, Option<i32>) {
    let mut command = child(action, is_confined);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    (status.code(), status.signal())
}

/// Reads output until a child reports that it waits.
fn wait_for_stay(output: &mut impl io::BufRead) {
    let mut line = String::new();
    // The test harness may print the test's name on the same line, so only the end of the line is compared.
    while !line.trim_end().ends_with("stays") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended before it reported");
    }
}

const TEST: &str = "forbidden_actions_end_a_confined_process";

#[test]
fn forbidden_actions_end_a_confined_process() {
    if let Ok(action) = env::var(ACTION) {
        run_attempt(&action);
    }
    for permitted_action in ["think", "take memory"] {
        assert_eq!(exit_of(permitted_action, true), (Some(0), None), "{permitted_action}");
    }
    for action in FORBIDDEN {
        assert_eq!(exit_of(action, false), (Some(0), None), "{action}, unconfined");
        assert_eq!(exit_of(action, true), (None, Some(libc::SIGSYS)), "{action}");
    }
}

#[test]
fn confined_process_has_low_limits_and_priority() {
    let mut child = child("stay", true).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    wait_for_stay(&mut output);
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let limits = read("limits");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let soft_and_hard: Vec<u64> = line.split_whitespace().take(2).map(|value| value.parse().unwrap()).collect();
        assert_eq!(soft_and_hard[0], soft_and_hard[1], "{name}: a soft limit could be raised");
        soft_and_hard[0]
    };
    for (name, maximum) in [
        ("Max cpu time", 6),
        ("Max file size", 0),
        ("Max stack size", 8 << 20),
        ("Max core file size", 0),
        ("Max processes", 0),
        ("Max open files", 0),
        ("Max locked memory", 0),
        ("Max msgqueue size", 0),
    ] {
        assert_eq!(limit(name), maximum, "{name}");
    }
    assert!((64 << 20..256 << 20).contains(&limit("Max data size")), "{limits}");
    assert_eq!(read("oom_score_adj").trim(), "1000");
    // The harness runs a test in a separate thread, which lowers its own priority, so all threads are checked. The
    // priority is the nineteenth field. The second field may contain spaces and ends at the last parenthesis.
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let priorities: Vec<String> = threads
        .map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).unwrap())
        .map(|stat| stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned())
        .collect();
    assert!(priorities.contains(&"19".to_owned()), "{priorities:?}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A child whose server dies could wait forever, because it blocks every signal. The kernel must kill it.
#[test]
fn confined_process_does_not_outlive_its_parent() {
    let parent = child("start one that stays", false).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut parent = parent.unwrap();
    let mut output = BufReader::new(parent.stdout.take().unwrap());
    let input = parent.stdin.take();
    wait_for_stay(&mut output);
    parent.kill().unwrap();
    parent.wait().unwrap();
    // When a parent process can be waited for, its children have already received the kill signal and read no more.
    drop(input);
    let mut remaining_output = String::new();
    output.read_to_string(&mut remaining_output).unwrap();
    assert_eq!(remaining_output, "");
}
