use super::*;
use crate::connect;

/// Whether the client receives a response to the statement through the proxy.
async fn is_answered(proxy: &FaultProxy, sql: &str) -> bool {
    let Ok(client) = connect(proxy.url()).await else { return false };
    client.batch_execute(sql).await.is_ok()
}

async fn row_count(database: &TestDatabase) -> i64 {
    database.connect_as_owner().await.unwrap().query_one("SELECT count(*) FROM tried", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn each_fault_point_has_its_documented_effect() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute("CREATE TABLE tried (time int)").await.unwrap();
    let mut fault_point_counts = HashMap::new();
    for seed in 0..24 {
        let proxy = FaultProxy::start_for_database(&database, seed);
        assert!(is_answered(&proxy, "SELECT 1").await, "a new proxy has no fault");
        let before = row_count(&database).await;
        proxy.set_fault(ProxyFault::Drawn(10_000));
        assert!(!is_answered(&proxy, "INSERT INTO tried VALUES (1)").await, "a cut connection has no response");
        proxy.wait_for_cut_statements().await;
        let injected = proxy.injected();
        assert_eq!(injected.len(), 1, "{injected:?}");
        assert_eq!(injected[0].statement, "INSERT INTO tried VALUES (1)");
        let added_rows = row_count(&database).await - before;
        assert_eq!(added_rows, i64::from(injected[0].point != FaultPoint::Before), "{:?}", injected[0].point);
        *fault_point_counts.entry(injected[0].point).or_insert(0) += 1;
    }
    assert_eq!(fault_point_counts.len(), FAULT_POINTS.len(), "{fault_point_counts:?}");
}

#[tokio::test]
async fn drawn_faults_are_reproducible_and_match_the_odds() {
    let database = TestDatabase::create().await.unwrap();
    let mut by_seed = Vec::new();
    for seed in [7, 7, 8] {
        let proxy = FaultProxy::start_for_database(&database, seed);
        proxy.set_fault(ProxyFault::Drawn(500));
        let mut outcomes = Vec::new();
        for _ in 0..200 {
            outcomes.push(is_answered(&proxy, "SELECT 1").await);
        }
        by_seed.push(outcomes);
    }
    assert_eq!(by_seed[0], by_seed[1]);
    assert_ne!(by_seed[0], by_seed[2]);
    let refused = by_seed[0].iter().filter(|answered| !**answered).count();
    assert!((1..40).contains(&refused), "{refused} of 200 at 5 %");
}

#[tokio::test]
async fn once_fault_occurs_exactly_once() {
    let database = TestDatabase::create().await.unwrap();
    let proxy = FaultProxy::start_for_database(&database, 1);
    for fault_point in FAULT_POINTS {
        let client = connect(proxy.url()).await.unwrap();
        proxy.set_fault(ProxyFault::Once("matching", fault_point));
        client.query("SELECT 1", &[]).await.unwrap();
        let matching = client.prepare("SELECT 2 AS matching").await.expect("preparing does not execute the statement");
        assert!(client.query(&matching, &[]).await.is_err());
        assert!(is_answered(&proxy, "SELECT 2 AS matching").await);
        assert_eq!(proxy.injected().last().map(|injected| injected.point), Some(fault_point));
    }
    assert_eq!(proxy.injected().len(), FAULT_POINTS.len());
}

#[tokio::test]
async fn matches_prepared_statements_by_their_text() {
    let database = TestDatabase::create().await.unwrap();
    let proxy = FaultProxy::start_for_database(&database, 1);
    let client = connect(proxy.url()).await.unwrap();
    let (other, matching) =
        (client.prepare("SELECT 1").await.unwrap(), client.prepare("SELECT 2 AS matching").await.unwrap());
    proxy.set_fault(ProxyFault::Matching("matching"));
    client.query(&other, &[]).await.unwrap();
    assert!(client.query(&matching, &[]).await.is_err());
    assert!(client.query(&other, &[]).await.is_err(), "the connection is closed");
    assert!(connect(proxy.url()).await.is_ok());
    proxy.set_fault(ProxyFault::Down);
    let refused = tokio::time::timeout(Duration::from_secs(5), connect(proxy.url())).await;
    assert!(refused.unwrap().is_err(), "connections fail while the proxy is down");
}
