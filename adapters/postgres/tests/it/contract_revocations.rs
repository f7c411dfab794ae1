//! Access contracts of knowledge bases: revoked by a version or by a revocation, and permanently.

use crate::fixture::{
    Fixture, fresh,
    knowledge::{content_with_contract, knowledge_base},
    scope, stamp,
};
use fairway_domain::{
    asset::{Asset, canonical::Canonical, ports::VersionStore},
    knowledge::{contract::ContractState, contract_revocation::ContractRevocation, ports::ContractRevocationStore},
    store::CommitError,
};
use serde_json::{Value, json};

#[tokio::test]
async fn versions_and_revocations_revoke_a_contract_permanently() {
    let stage = Fixture::new().await;
    let ((one, by_row), (two, by_version)) = (knowledge_base(&stage).await, knowledge_base(&stage).await);
    let standings = async || {
        let asked = [
            (one.asset_id, by_row.clone()),
            (two.asset_id, by_version.clone()),
            (two.asset_id, by_row.clone()),
            (one.asset_id, String::new()),
        ];
        stage.store.contract_states(scope(), &asked).await.unwrap()
    };
    use ContractState::{InForce, Revoked, Unknown};
    assert_eq!(standings().await, [InForce, InForce, Unknown, Unknown]);
    let change = ContractRevocation::create(fresh(), &one, &by_row, "It is over.", &stamp()).unwrap();
    stage.store.commit_contract_revocation(scope(), change.clone(), None).await.unwrap();
    assert_eq!(standings().await, [Revoked, InForce, Unknown, Unknown]);
    let mut over = content_with_contract(&by_version, true);
    over["access_contract"]["revoked_at"] = json!("2026-01-01T00:00:00Z");
    let change_of = |asset: &Asset, content: &Value| {
        asset.add_version(fresh(), None, Canonical::of(content).unwrap().into(), &stamp()).unwrap()
    };
    stage.store.commit_version(scope(), change_of(&two, &over), None).await.unwrap();
    assert_eq!(standings().await, [Revoked, Revoked, Unknown, Unknown]);
    // A revocation is final, and the stored revocation remains the first one.
    let restored =
        stage.store.commit_version(scope(), change_of(&one, &content_with_contract(&by_row, false)), None).await;
    let revoked = fairway_domain::store::Conflict::ContractRevoked;
    assert!(matches!(restored, Err(CommitError::Conflict(conflict)) if conflict == revoked), "{restored:?}");
    let again = ContractRevocation::create(fresh(), &one, &by_row, "Again.", &stamp()).unwrap();
    assert!(matches!(stage.store.commit_contract_revocation(scope(), again, None).await, Err(CommitError::Stale)));
    let kept = stage.store.find_revocation(scope(), one.asset_id, &by_row).await.unwrap().unwrap();
    assert_eq!(kept, change.next);
    assert_eq!(stage.store.find_revocation(scope(), two.asset_id, &by_row).await.unwrap(), None);
}
