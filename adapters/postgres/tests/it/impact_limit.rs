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
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::Skill).await;
    let content = content_with_attachments();
    let target = ReferenceTarget { slug: content.references[0].slug.clone(), labels: None };
    let mut version_ids: Vec<AssetVersionId> = Vec::new();
    for _ in 0..3 {
        let change = asset.add_version(fresh(), None, content.clone(), &stamp()).unwrap();
        version_ids.push(fixture.store.commit_version(scope(), change, None).await.unwrap().asset_version_id);
    }
    let mut found = Vec::new();
    for _ in 0..4 {
        let referrers = fixture.store.referrers(scope(), std::slice::from_ref(&target), &found, 1).await.unwrap();
        found.extend(referrers.iter().map(|referrer| referrer.asset_version_id));
    }
    assert_eq!(found, [version_ids[2], version_ids[1], version_ids[0]]);
}
