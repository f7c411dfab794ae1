//! T35 of docs/security.md: addresses of this machine and of internal networks are refused in every notation.

use crate::counting_listener::{CountingListener, Reply, ScriptedResolver, get};
use fairway_egress::{Allowance, EgressError, EgressRefusal, Guard, ResponseLimits, ServerMode};

/// Returns the failure of a request to an address, from either the creation of the endpoint or the request.
async fn failure_of(guard: &Guard, address: &str) -> EgressError {
    match guard.endpoint(address, ResponseLimits::default()) {
        Ok(endpoint) => endpoint.send(get()).await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn refuses_every_notation_of_this_machine() {
    let canary = CountingListener::start(Reply::fine()).await;
    let port = canary.address.port();
    let hosts = [
        "127.0.0.1",
        "127.1",
        "0.0.0.0",
        "0",
        "0x7f000001",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "127。0。0。1",
        "１２７.0.0.1",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "localhost",
        "LOCALHOST.",
        "localhost.",
        "ｌｏｃａｌｈｏｓｔ",
    ];
    for mode in [ServerMode::Local, ServerMode::Remote] {
        // Operating systems resolve these names differently, so the test resolves all of them to this machine.
        let guard = Guard::new(mode, Vec::new()).with_resolver(ScriptedResolver::of(&[&["127.0.0.1"]]));
        for scheme in ["http", "https"] {
            for host in hosts {
                let error = failure_of(&guard, &format!("{scheme}://{host}:{port}/hook")).await;
                // Numeric hosts are refused for their network. Names may also be refused for their port, which has no
                // allowance.
                assert!(matches!(error, EgressError::Refused(_)), "{scheme}://{host} {mode:?}: {error:?}");
            }
        }
    }
    assert_eq!(canary.connection_count(), 0);
    // With an allowance, the request reaches the listener.
    let allowed = Guard::new(ServerMode::Local, vec![Allowance::parse("127.0.0.1").unwrap()]);
    let response =
        allowed.endpoint(&format!("http://127.1:{port}/"), ResponseLimits::default()).unwrap().send(get()).await;
    assert_eq!((response.unwrap().read_all().await.unwrap().as_ref(), canary.connection_count()), (&b"fine"[..], 1));
}

#[tokio::test]
async fn refuses_names_that_resolve_to_this_machine() {
    let loopback_resolver = || ScriptedResolver::of(&[&["::1", "127.0.0.1"]]);
    let guard = Guard::new(ServerMode::Remote, Vec::new()).with_resolver(loopback_resolver());
    for name in ["localhost", "localhost.", "LocalHost"] {
        for port in ["", ":8443"] {
            let error = failure_of(&guard, &format!("https://{name}{port}/")).await;
            assert_eq!(error, EgressError::Refused(EgressRefusal::Network), "{name}{port}");
        }
    }
    // Plain HTTP requires an allowance, even for the name `localhost`.
    let local = Guard::new(ServerMode::Local, Vec::new()).with_resolver(loopback_resolver());
    let error = failure_of(&local, "http://localhost:1/").await;
    assert_eq!(error, EgressError::Refused(EgressRefusal::Network));
    // The system's resolver leads to the same refusal.
    let error = failure_of(&Guard::new(ServerMode::Remote, Vec::new()), "https://localhost/").await;
    assert_eq!(error, EgressError::Refused(EgressRefusal::Network));
}

#[tokio::test]
async fn refuses_internal_networks() {
    let guard = Guard::new(ServerMode::Local, Vec::new());
    for host in [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "100.100.100.200",
        "100.64.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "192.0.2.1",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "[2001::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fc00::1]",
        "[ff02::1]",
        "[2001:db8::1]",
    ] {
        let error = failure_of(&guard, &format!("https://{host}/latest/meta-data")).await;
        assert_eq!(error, EgressError::Refused(EgressRefusal::Network), "{host}");
        let error = failure_of(&guard, &format!("http://{host}/latest/meta-data")).await;
        assert_eq!(error, EgressError::Refused(EgressRefusal::Scheme), "{host}");
    }
}

#[tokio::test]
async fn refuses_other_schemes_ports_and_credentials() {
    let canary = CountingListener::start(Reply::fine()).await;
    let address = canary.address;
    let guard = Guard::new(ServerMode::Local, Vec::new());
    for (address, refusal) in [
        ("https://93.184.215.14:22/".to_owned(), EgressRefusal::Port),
        ("https://93.184.215.14:25/".to_owned(), EgressRefusal::Port),
        ("https://93.184.215.14:5432/".to_owned(), EgressRefusal::Port),
        ("https://example.com:80/".to_owned(), EgressRefusal::Port),
        ("file:///etc/passwd".to_owned(), EgressRefusal::Scheme),
        (format!("gopher://{address}/_x"), EgressRefusal::Scheme),
        (format!("ftp://{address}/"), EgressRefusal::Scheme),
        (format!("ws://{address}/"), EgressRefusal::Scheme),
        ("unix:/var/run/docker.sock".to_owned(), EgressRefusal::Scheme),
        ("data:text/plain,x".to_owned(), EgressRefusal::Scheme),
        (format!("https://example.com@{address}/"), EgressRefusal::Credentials),
        (format!("https://user:secret@{address}/"), EgressRefusal::Credentials),
        (format!("http://{address}#@example.com"), EgressRefusal::Network),
        (format!("http://{address}\\@example.com"), EgressRefusal::Network),
        (format!("//{address}/"), EgressRefusal::InvalidAddress),
        (address.to_string(), EgressRefusal::InvalidAddress),
        ("https://".to_owned(), EgressRefusal::InvalidAddress),
        ("https://256.256.256.256/".to_owned(), EgressRefusal::InvalidAddress),
        (String::new(), EgressRefusal::InvalidAddress),
    ] {
        let error = failure_of(&guard, &address).await;
        assert_eq!(error, EgressError::Refused(refusal), "{address}");
        assert!(!format!("{error} {error:?}").contains("127.0.0.1"), "{error}");
    }
    assert_eq!(canary.connection_count(), 0);
}
