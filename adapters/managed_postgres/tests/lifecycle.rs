//! Lifecycle of real managed PostgreSQL servers: started, stopped, abandoned by their owner, and taken over by a new
//! owner.

#![expect(clippy::unwrap_used, reason = "a test fails at the first error")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use fairway_managed_postgres::{Binaries, ClusterLifetime, ManagedServer, Options, StartError, state_directories};

fn binaries() -> Binaries {
    Binaries::find(&state_directories::directory().unwrap()).unwrap()
}

/// A temporary folder that the account of the PostgreSQL server can enter.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

fn durable(folder: &Path) -> Options {
    let settings = vec![("max_connections".to_owned(), "20".to_owned())];
    Options {
        binaries: binaries(),
        server_directory: folder.join("postgres"),
        port: None,
        settings,
        durability: ClusterLifetime::Default,
    }
}

/// The type and code of the server's first message after a startup packet. `R` requests authentication (code 10 for
/// SASL) or confirms it (code 0). `E` is an error.
fn greeting(port: u16) -> (u8, u32) {
    let mut packet = Vec::from(196_608_u32.to_be_bytes());
    packet.extend_from_slice(b"user\0fairway\0database\0postgres\0\0");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let length = u32::try_from(packet.len() + 4).unwrap();
    stream.write_all(&length.to_be_bytes()).unwrap();
    stream.write_all(&packet).unwrap();
    let mut message = [0_u8; 9];
    stream.read_exact(&mut message).unwrap();
    (message[0], u32::from_be_bytes([message[5], message[6], message[7], message[8]]))
}

/// A separate process that owns a managed server.
struct Owner {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Owner {
    fn start(directory: &Path) -> Owner {
        let mut child = Command::new(env!("CARGO_BIN_EXE_managed-postgres"))
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Owner { child, stdout }
    }

    /// Waits for the line in which the owner reports that its server runs.
    fn ready(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("postgres://fairway:"), "{line}");
        line
    }
}

#[test]
fn durable_server_requires_its_password_and_survives_a_restart() {
    let folder = open_folder();
    let server = ManagedServer::start(durable(folder.path())).unwrap();
    assert_eq!(greeting(server.port()), (b'R', 10));
    let password = fs::read_to_string(server.server_directory().join("password")).unwrap();
    assert_eq!(password.len(), 48);
    let expected = format!("postgres://fairway:{password}@127.0.0.1:{}/postgres", server.port());
    assert_eq!(server.url("postgres"), expected);
    assert!(!format!("{server:?}").contains(&password));
    let mode = server.server_directory().join("password").metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let inode = fs::metadata(server.server_directory().join("cluster/PG_VERSION")).unwrap().ino();
    let port = server.port();
    server.stop().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());

    let restarted = ManagedServer::start(Options { port: Some(port), ..durable(folder.path()) }).unwrap();
    assert_eq!(restarted.url("postgres"), expected);
    assert_eq!(fs::metadata(restarted.server_directory().join("cluster/PG_VERSION")).unwrap().ino(), inode);
}

#[test]
fn a_server_recovers_from_an_immediate_stop() {
    let folder = open_folder();
    let server = ManagedServer::start(durable(folder.path())).unwrap();
    server.stop_immediately().unwrap();
    let mut restarted = ManagedServer::start(durable(folder.path())).unwrap();
    assert!(restarted.is_running());
    assert_eq!(greeting(restarted.port()), (b'R', 10));
}

#[test]
fn temporary_server_has_no_password_and_leaves_no_files() {
    let server = ManagedServer::start_temporary(binaries(), Vec::new()).unwrap();
    assert_eq!(greeting(server.port()), (b'R', 0));
    assert_eq!(server.url("a b"), format!("postgres://fairway@127.0.0.1:{}/a%20b", server.port()));
    let directory = server.server_directory().to_owned();
    assert!(directory.exists());
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn temporary_server_refuses_a_directory_with_data() {
    let folder = open_folder();
    ManagedServer::start(durable(folder.path())).unwrap().stop().unwrap();
    let refusal =
        ManagedServer::start(Options { durability: ClusterLifetime::Temporary, ..durable(folder.path()) }).unwrap_err();
    assert_eq!(refusal.code(), "private_postgres_not_empty");
    assert!(folder.path().join("postgres/cluster/PG_VERSION").exists());
}

#[test]
fn second_owner_of_a_directory_is_refused() {
    let folder = open_folder();
    let mut owner = Owner::start(&folder.path().join("postgres"));
    owner.ready();
    let refusal = ManagedServer::start(durable(folder.path())).unwrap_err();
    let expected = Some(owner.child.id());
    assert!(matches!(refusal, StartError::InUse { owner, .. } if owner == expected), "{refusal}");
    drop(owner.child.stdin.take());
    assert!(owner.child.wait().unwrap().success());
    ManagedServer::start(durable(folder.path())).unwrap();
}

#[test]
fn finds_the_url_of_another_owners_server() {
    let folder = open_folder();
    let directory = folder.path().join("postgres");
    let mut owner = Owner::start(&directory);
    let line = owner.ready();
    assert_eq!(ManagedServer::url_of_running(&directory, "postgres").unwrap(), line.split_whitespace().next().unwrap());
    drop(owner.child.stdin.take());
    owner.child.wait().unwrap();
    let refusal = ManagedServer::url_of_running(&directory, "postgres").unwrap_err();
    assert!(matches!(refusal, StartError::NotAccepting(_)), "{refusal}");
    ManagedServer::start_existing(durable(folder.path())).unwrap();
}

#[test]
fn lookups_create_no_cluster() {
    let folder = open_folder();
    let directory = folder.path().join("postgres");
    let refusals = || {
        [
            ManagedServer::start_existing(durable(folder.path())).unwrap_err(),
            ManagedServer::url_of_running(&directory, "postgres").unwrap_err(),
        ]
    };
    assert!(refusals().iter().all(|refusal| matches!(refusal, StartError::NoCluster(_))));
    assert!(!directory.exists());
    fs::create_dir(&directory).unwrap();
    assert!(refusals().iter().all(|refusal| matches!(refusal, StartError::NoCluster(_))));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn takes_over_the_directory_of_a_killed_owner() {
    let folder = open_folder();
    let mut owner = Owner::start(&folder.path().join("postgres"));
    let line = owner.ready();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    let server = ManagedServer::start(durable(folder.path())).unwrap();
    assert_eq!(greeting(server.port()), (b'R', 10));
    let before: u32 = line.split_whitespace().last().unwrap().parse().unwrap();
    assert_ne!(server.process_id(), before);
}

#[test]
fn stops_a_live_server_without_an_owner_first() {
    let folder = open_folder();
    let server = ManagedServer::start(durable(folder.path())).unwrap();
    let cluster = server.server_directory().join("cluster");
    let port = server.port();
    server.stop().unwrap();
    // Starts a server without this crate, so that no process owns it.
    let owner = cluster.metadata().unwrap();
    let mut command = Command::new(binaries().directory().join("pg_ctl"));
    command.current_dir("/").arg("-D").arg(&cluster).args(["-s", "-w", "-l", "/dev/null", "-o"]);
    command.arg(format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''")).arg("start");
    if owner.uid() != nix::unistd::geteuid().as_raw() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    assert!(command.status().unwrap().success());
    assert_eq!(greeting(port), (b'R', 10));

    let server = ManagedServer::start(durable(folder.path())).unwrap();
    assert_ne!(server.port(), port);
    assert_eq!(greeting(server.port()), (b'R', 10));
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

#[test]
fn refuses_data_of_another_major_version() {
    let folder = open_folder();
    let cluster = folder.path().join("postgres/cluster");
    fs::create_dir_all(&cluster).unwrap();
    fs::write(cluster.join("PG_VERSION"), "14\n").unwrap();
    let refusal = ManagedServer::start(durable(folder.path())).unwrap_err();
    assert!(matches!(refusal, StartError::OtherMajor { written_by: 14, .. }), "{refusal}");
}

#[test]
fn requested_port_that_is_taken_is_an_error() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = Some(listener.local_addr().unwrap().port());
    let folder = open_folder();
    let refusal = ManagedServer::start(Options { port, ..durable(folder.path()) }).unwrap_err();
    assert!(refusal.to_string().contains("could not bind"), "{refusal}");
}
