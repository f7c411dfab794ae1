//! T36 of docs/security.md: each connection resolves its name once, checks every address, and connects to a checked
//! one.

use crate::counting_listener::{CountingListener, Reply, ScriptedResolver, get};
use async_trait::async_trait;
use fairway_egress::{
    Allowance, EgressError, EgressRefusal, EgressRequest, EndpointClient, Guard, Resolver, ResponseLimits, ServerMode,
};
use std::{
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

/// A guard that allows only 127.0.0.1.
fn guard(resolver: Arc<dyn Resolver>) -> Guard {
    Guard::new(ServerMode::Local, vec![Allowance::parse("127.0.0.1").unwrap()]).with_resolver(resolver)
}

fn endpoint(guard: &Guard, port: u16) -> EndpointClient {
    guard.endpoint(&format!("http://moving.example:{port}/base"), ResponseLimits::default()).unwrap()
}

const NETWORK: EgressError = EgressError::Refused(EgressRefusal::Network);

#[tokio::test]
async fn connects_to_the_checked_address() {
    let (allowed, refused) = CountingListener::pair().await;
    let guard = guard(ScriptedResolver::of(&[&["127.0.0.1"]]));
    let call = EgressRequest { path: "a b/../c?d#e".to_owned(), ..get() };
    let response = endpoint(&guard, allowed.address.port()).send(call).await.unwrap();
    assert_eq!((response.status().as_u16(), response.read_all().await.unwrap().as_ref()), (200, &b"fine"[..]));
    assert_eq!((allowed.connection_count(), refused.connection_count()), (1, 0));
    let received = allowed.received_text();
    assert!(received.contains(&format!("host: moving.example:{}\r\n", allowed.address.port())), "{received}");
    assert!(received.starts_with("GET /base/") && received.contains("%3Fd%23e HTTP/1.1\r\n"), "{received}");
}

#[tokio::test]
async fn one_refused_address_refuses_the_name() {
    let (allowed, refused) = CountingListener::pair().await;
    for set in [&["127.0.0.1", "127.0.0.2"][..], &["127.0.0.2", "127.0.0.1"], &["127.0.0.1", "::1"], &["127.0.0.2"]] {
        let guard = guard(ScriptedResolver::of(&[set]));
        assert_eq!(endpoint(&guard, allowed.address.port()).send(get()).await.unwrap_err(), NETWORK, "{set:?}");
    }
    // Each set contains a public and a private address. The requests use TLS on a default port.
    for set in [&["1.1.1.1", "10.0.0.1"][..], &["2606:4700::1111", "fd00:ec2::254"], &["1.1.1.1", "64:ff9b::a00:1"]] {
        let guard = Guard::new(ServerMode::Remote, Vec::new()).with_resolver(ScriptedResolver::of(&[set]));
        let endpoint = guard.endpoint("https://moving.example/", ResponseLimits::default()).unwrap();
        assert_eq!(endpoint.send(get()).await.unwrap_err(), NETWORK, "{set:?}");
    }
    assert_eq!((allowed.connection_count(), refused.connection_count()), (0, 0));
}

#[tokio::test]
async fn checks_a_name_again_for_each_connection() {
    let (allowed, refused) = CountingListener::pair().await;
    let guard = guard(ScriptedResolver::of(&[&["127.0.0.1"], &["127.0.0.2"]]));
    let endpoint = endpoint(&guard, allowed.address.port());
    // The listener closes each connection, so that the next request opens another one.
    assert_eq!(endpoint.send(get()).await.unwrap().read_all().await.unwrap().as_ref(), b"fine");
    assert_eq!(endpoint.send(get()).await.unwrap_err(), NETWORK);
    assert_eq!((allowed.connection_count(), refused.connection_count()), (1, 0));
}

#[tokio::test]
async fn refuses_names_without_addresses_or_with_thousands() {
    let canary = CountingListener::start(Reply::fine()).await;
    let port = canary.address.port();
    let error = endpoint(&guard(ScriptedResolver::of(&[&[]])), port).send(get()).await.unwrap_err();
    assert_eq!(error, EgressError::Unresolved);
    let addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST); 10_000];
    let error = endpoint(&guard(ScriptedResolver::many(addresses)), port).send(get()).await.unwrap_err();
    assert_eq!(error, EgressError::Refused(EgressRefusal::TooManyAddresses));
    assert_eq!(canary.connection_count(), 0);
}

/// A resolver that never responds.
struct HangingResolver;

#[async_trait]
impl Resolver for HangingResolver {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        pending().await
    }
}

#[tokio::test]
async fn slow_resolver_times_out_with_the_request() {
    let limits = ResponseLimits { timeout: Duration::from_millis(200), ..ResponseLimits::default() };
    let endpoint = guard(Arc::new(HangingResolver)).endpoint("https://moving.example/", limits).unwrap();
    assert_eq!(endpoint.send(get()).await.unwrap_err(), EgressError::TimedOut);
}

#[tokio::test]
async fn tls_verifies_the_host_name() {
    let canary = CountingListener::start(Reply::fine()).await;
    let guard = guard(ScriptedResolver::of(&[&["127.0.0.1"]]));
    let address = format!("https://moving.example:{}/", canary.address.port());
    let endpoint = guard.endpoint(&address, ResponseLimits::default()).unwrap();
    // The listener does not speak TLS, so no response arrives; the client's first message contains the name.
    assert_eq!(endpoint.send(get()).await.unwrap_err(), EgressError::Tls);
    assert_eq!(canary.connection_count(), 1);
    assert!(canary.received_text().contains("moving.example"), "{}", canary.received_text());
}
