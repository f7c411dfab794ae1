//! What is left to a process that was confined. Each test starts itself again as a child that tries one thing: confined, the
//! kernel ends it; not confined, the thing works, so that a test that could not fail would show.

#![cfg(target_os = "linux")]

use nix::{
    libc,
    sys::resource::{Resource, getrlimit},
};
use std::{
    env, fs,
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    process::{Command, ExitStatus, Stdio},
    thread,
};

/// Says to a child what it tries, and whether it is confined first.
const TRIES: &str = "FAIRWAY_TEST_TRIES";
const CONFINED: &str = "FAIRWAY_TEST_CONFINED";

/// What a child tries; it is ended in the middle of it, or comes to its end.
fn attempt(what: &str) {
    match what {
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
        "think" => assert_eq!((0..100_000_u64).map(|n| n.to_string().len()).sum::<usize>(), 488_890),
        other => panic!("nobody tries to {other}"),
    }
}

const FORBIDDEN: [&str; 16] = [
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
];

/// The child's side: a test like any other when nobody says what to try.
#[test]
fn child() {
    let Ok(what) = env::var(TRIES) else { return };
    if env::var_os(CONFINED).is_some() {
        fairway_sandbox::confine().unwrap();
    }
    attempt(&what);
    // The runner of tests does more than a confined process may.
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap_or_else(|_| std::process::exit(0));
}

fn tried(what: &str, confined: bool) -> ExitStatus {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child", "--test-threads=1", "--nocapture"]).env(TRIES, what);
    if confined {
        command.env(CONFINED, "yes");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}

#[test]
fn whoever_is_confined_is_ended_by_what_it_may_not_do() {
    for what in FORBIDDEN {
        assert_eq!(tried(what, true).signal(), Some(libc::SIGSYS), "{what}: {:?}", tried(what, true));
        // It is the filter that ends it, and nothing else.
        assert_eq!(tried(what, false).signal(), Some(libc::SIGKILL), "{what}, at large");
    }
}

#[test]
fn thinking_is_left() {
    assert_eq!(tried("think", true).signal(), Some(libc::SIGKILL));
}
