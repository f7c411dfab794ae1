use super::*;
use crate::connect;

/// Whether the client receives a response to the statement through the proxy.
async fn is_answered(line: &FaultProxy, sql: &str) -> bool {
    let Ok(client) = connect(line.url()).await else { return false };
    client.batch_execute(sql).await.is_ok()
}

async fn row_count(database: &TestDatabase) -> i64 {
    database.connect_as_owner().await.unwrap().query_one("SELECT count(*) FROM tried", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn each_fault_point_has_its_documented_effect() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute("CREATE TABLE tried (time int)").await.unwrap();
    let mut met = HashMap::new();
    for seed in 0..24 {
        let line = FaultProxy::to_database(&database, seed);
        assert!(is_answered(&line, "SELECT 1").await, "a new proxy has no fault");
        let before = row_count(&database).await;
        line.set_fault(ProxyFault::Drawn(10_000));
        assert!(!is_answered(&line, "INSERT INTO tried VALUES (1)").await, "a cut connection has no response");
        line.wait_until_idle().await;
        let made = line.injected();
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(made[0].statement, "INSERT INTO tried VALUES (1)");
        let happened = row_count(&database).await - before;
        assert_eq!(happened, i64::from(made[0].point != FaultPoint::Before), "{:?}", made[0].point);
        *met.entry(made[0].point).or_insert(0) += 1;
    }
    assert_eq!(met.len(), FAULT_POINTS.len(), "{met:?}");
}

#[tokio::test]
async fn drawn_faults_are_reproducible_and_match_the_odds() {
    let database = TestDatabase::create().await.unwrap();
    let mut by_seed = Vec::new();
    for seed in [7, 7, 8] {
        let line = FaultProxy::to_database(&database, seed);
        line.set_fault(ProxyFault::Drawn(500));
        let mut answers = Vec::new();
        for _ in 0..200 {
            answers.push(is_answered(&line, "SELECT 1").await);
        }
        by_seed.push(answers);
    }
    assert_eq!(by_seed[0], by_seed[1]);
    assert_ne!(by_seed[0], by_seed[2]);
    let refused = by_seed[0].iter().filter(|answered| !**answered).count();
    assert!((1..40).contains(&refused), "{refused} of 200 at 5 %");
}

#[tokio::test]
async fn once_fault_occurs_exactly_once() {
    let database = TestDatabase::create().await.unwrap();
    let line = FaultProxy::to_database(&database, 1);
    for cut in FAULT_POINTS {
        let client = connect(line.url()).await.unwrap();
        line.set_fault(ProxyFault::Once("meant", cut));
        client.query("SELECT 1", &[]).await.unwrap();
        let meant = client.prepare("SELECT 2 AS meant").await.expect("preparing does not execute the statement");
        assert!(client.query(&meant, &[]).await.is_err());
        assert!(is_answered(&line, "SELECT 2 AS meant").await);
        assert_eq!(line.injected().last().map(|made| made.point), Some(cut));
    }
    assert_eq!(line.injected().len(), FAULT_POINTS.len());
}

#[tokio::test]
async fn matches_prepared_statements_by_their_text() {
    let database = TestDatabase::create().await.unwrap();
    let line = FaultProxy::to_database(&database, 1);
    let client = connect(line.url()).await.unwrap();
    let (harmless, meant) =
        (client.prepare("SELECT 1").await.unwrap(), client.prepare("SELECT 2 AS meant").await.unwrap());
    line.set_fault(ProxyFault::Matching("meant"));
    client.query(&harmless, &[]).await.unwrap();
    assert!(client.query(&meant, &[]).await.is_err());
    assert!(client.query(&harmless, &[]).await.is_err(), "the connection is closed");
    assert!(connect(line.url()).await.is_ok());
    line.set_fault(ProxyFault::Down);
    let refused = tokio::time::timeout(Duration::from_secs(5), connect(line.url())).await;
    assert!(refused.unwrap().is_err(), "connections fail while the proxy is down");
}
