//! T37 of docs/security.md: the client ignores proxies from the environment.

use crate::counting_listener::{CountingListener, Reply, get};
use fairway_egress::{Guard, ResponseLimits, ServerMode, Url};
use std::{env, process::Stdio};
use tokio::process::Command;

/// Environment variable with the address that the child process requests.
const TARGET: &str = "FAIRWAY_TEST_EGRESS_TARGET";

/// A process with proxies in its environment connects directly. The test starts itself as a child process with these
/// variables, because a process cannot safely change its own environment.
#[tokio::test]
async fn proxies_in_the_environment_are_not_used() {
    if let Ok(target) = env::var(TARGET) {
        let guard = Guard::new(ServerMode::Local, Vec::new()).with_allowed_origin(&Url::parse(&target).unwrap());
        let response = guard.endpoint(&target, ResponseLimits::default()).unwrap().send(get()).await.unwrap();
        assert_eq!(response.read_all().await.unwrap().as_ref(), b"fine");
        return;
    }
    let (target, proxy) = (CountingListener::start(Reply::fine()).await, CountingListener::start(Reply::fine()).await);
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "environment_proxies::proxies_in_the_environment_are_not_used"]).stdout(Stdio::null());
    child.env(TARGET, format!("http://{}/", target.address)).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, format!("http://{}", proxy.address));
    }
    assert!(child.status().await.unwrap().success());
    assert_eq!((target.connection_count(), proxy.connection_count()), (1, 0));
}
