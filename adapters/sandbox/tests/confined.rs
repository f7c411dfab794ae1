//! What is left to a process that was confined. The test starts itself again as a child that tries one thing: confined, the
//! kernel ends it; not confined, the child comes to its end, so that a test that could not fail would show.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise, helpers included")]

use nix::{
    libc,
    sys::resource::{Resource, getrlimit},
};
use std::{
    env, fs,
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    process::{self, Command, Stdio},
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

/// The child's side.
fn try_it(what: &str) -> ! {
    if env::var_os(CONFINED).is_some() {
        fairway_sandbox::confine().unwrap();
    }
    attempt(what);
    process::exit(0);
}

/// How a child ends that tries something: by the code that it ends with, or by the signal that ends it.
fn tried(what: &str, confined: bool) -> (Option<i32>, Option<i32>) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST, "--test-threads=1", "--nocapture"]).env(TRIES, what);
    if confined {
        command.env(CONFINED, "yes");
    }
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    (status.code(), status.signal())
}

const TEST: &str = "whoever_is_confined_is_ended_by_what_it_may_not_do";

#[test]
fn whoever_is_confined_is_ended_by_what_it_may_not_do() {
    if let Ok(what) = env::var(TRIES) {
        try_it(&what);
    }
    assert_eq!(tried("think", true), (Some(0), None));
    for what in FORBIDDEN {
        assert_eq!(tried(what, false), (Some(0), None), "{what}, at large");
        assert_eq!(tried(what, true), (None, Some(libc::SIGSYS)), "{what}");
    }
}
