//! The limit of the reverse lookup of references.

use crate::fixture::{Fixture, content_with_attachments, fresh, scope, stamp};
use fairway_domain::{
    asset::{
        impact::{ImpactStore, ReferenceTarget},
        kind::AssetKind,
        ports::VersionStore,
    },
    id::AssetVersionId,
};

#[tokio::test]
async fn known_versions_do_not_count_against_the_limit() {
    let stage = Fixture::new().await;
    let asset = stage.asset(AssetKind::Skill).await;
    let content = content_with_attachments();
    let target = ReferenceTarget { slug: content.references[0].slug.clone(), labels: None };
    let mut made: Vec<AssetVersionId> = Vec::new();
    for _ in 0..3 {
        let change = asset.add_version(fresh(), None, content.clone(), &stamp()).unwrap();
        made.push(stage.store.commit_version(scope(), change, None).await.unwrap().asset_version_id);
    }
    let mut found = Vec::new();
    for _ in 0..4 {
        let referrers = stage.store.referrers(scope(), std::slice::from_ref(&target), &found, 1).await.unwrap();
        found.extend(referrers.iter().map(|referrer| referrer.asset_version_id));
    }
    assert_eq!(found, [made[2], made[1], made[0]]);
}
