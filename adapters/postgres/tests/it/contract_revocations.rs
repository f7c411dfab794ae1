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
    let fixture = Fixture::new().await;
    let ((first_base, by_row), (second_base, by_version)) =
        (knowledge_base(&fixture).await, knowledge_base(&fixture).await);
    let contract_states = async || {
        let contracts = [
            (first_base.asset_id, by_row.clone()),
            (second_base.asset_id, by_version.clone()),
            (second_base.asset_id, by_row.clone()),
            (first_base.asset_id, String::new()),
        ];
        fixture.store.contract_states(scope(), &contracts).await.unwrap()
    };
    use ContractState::{InForce, Revoked, Unknown};
    assert_eq!(contract_states().await, [InForce, InForce, Unknown, Unknown]);
    let change = ContractRevocation::create(fresh(), &first_base, &by_row, "It is over.", &stamp()).unwrap();
    fixture.store.commit_contract_revocation(scope(), change.clone(), None).await.unwrap();
    assert_eq!(contract_states().await, [Revoked, InForce, Unknown, Unknown]);
    let mut revoked_content = content_with_contract(&by_version, true);
    revoked_content["access_contract"]["revoked_at"] = json!("2026-01-01T00:00:00Z");
    let change_of = |asset: &Asset, content: &Value| {
        asset.add_version(fresh(), None, Canonical::of(content).unwrap().into(), &stamp()).unwrap()
    };
    fixture.store.commit_version(scope(), change_of(&second_base, &revoked_content), None).await.unwrap();
    assert_eq!(contract_states().await, [Revoked, Revoked, Unknown, Unknown]);
    // A revocation is final, and the stored revocation remains the first one.
    let restored = fixture
        .store
        .commit_version(scope(), change_of(&first_base, &content_with_contract(&by_row, false)), None)
        .await;
    let revoked = fairway_domain::store::ConstraintConflict::ContractRevoked;
    assert!(matches!(restored, Err(CommitError::Conflict(conflict)) if conflict == revoked), "{restored:?}");
    let second_revocation = ContractRevocation::create(fresh(), &first_base, &by_row, "Again.", &stamp()).unwrap();
    assert!(matches!(
        fixture.store.commit_contract_revocation(scope(), second_revocation, None).await,
        Err(CommitError::Stale)
    ));
    let stored = fixture.store.find_revocation(scope(), first_base.asset_id, &by_row).await.unwrap().unwrap();
    assert_eq!(stored, change.next);
    assert_eq!(fixture.store.find_revocation(scope(), second_base.asset_id, &by_row).await.unwrap(), None);
}
