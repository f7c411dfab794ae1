//! Versions are ordered by their commit, independently of their identifiers.

use crate::{
    fixture::{Fixture, content_with_attachments, fresh, scope, stamp},
    indexes::measure,
};
use fairway_domain::{
    asset::{
        Asset, AssetVersion, NewVersion, VersionContent, VersionLabel,
        canonical::Canonical,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    id::AssetVersionId,
    store::{Change, PageRequest, PageStart},
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Two identifiers in ascending order.
fn ascending_ids() -> (AssetVersionId, AssetVersionId) {
    let (one, other): (AssetVersionId, AssetVersionId) = (fresh(), fresh());
    (one.min(other), one.max(other))
}

fn plain(content: &Value) -> VersionContent {
    Canonical::of(content).unwrap().into()
}

fn adding(asset: &Asset, id: AssetVersionId, said: VersionContent) -> Change<NewVersion> {
    asset.add_version(id, None, said, &stamp()).unwrap()
}

impl Fixture {
    async fn add_version(&self, asset: &Asset, id: AssetVersionId, content: &Value) -> AssetVersion {
        self.store.commit_version(scope(), adding(asset, id, plain(content)), None).await.unwrap()
    }

    /// The identifiers of the asset's versions, newest first, read page by page.
    async fn newest_first(&self, asset: &Asset) -> Vec<AssetVersionId> {
        let (mut found, mut page) = (Vec::new(), PageRequest::first(1));
        loop {
            let listed = self.store.list_versions(scope(), asset.asset_id, page).await.unwrap();
            found.extend(listed.rows.iter().map(|version| version.asset_version_id));
            match listed.next {
                Some(next) => page.start = PageStart::After(next),
                None => return found,
            }
        }
    }

    async fn newest(&self, asset: &Asset) -> AssetVersionId {
        let found = self.store.find_by_slug(scope(), &asset.slug, None).await.unwrap().unwrap();
        found.1.unwrap().asset_version_id
    }
}

#[tokio::test]
async fn last_committed_version_is_the_newest() {
    let stage = Fixture::new().await;
    for beside in [false, true] {
        let asset = stage.asset(AssetKind::Skill).await;
        let (smaller, bigger) = ascending_ids();
        let content = || if beside { content_with_attachments() } else { plain(&json!({})) };
        for (id, label) in [(bigger, "v1"), (smaller, "v2")] {
            let made = stage.store.commit_version(scope(), adding(&asset, id, content()), None).await.unwrap();
            assert_eq!(made.version_label.as_str(), label);
        }
        assert_eq!(stage.newest(&asset).await, smaller);
        assert_eq!(stage.newest_first(&asset).await, [smaller, bigger]);
    }
}

#[tokio::test]
async fn first_version_of_a_flow_is_older_than_its_second() {
    let stage = Fixture::new().await;
    let (smaller, bigger) = ascending_ids();
    let new = crate::fixture::new_asset(AssetKind::OrchestrationFlow);
    let change = Asset::create_flow(new, bigger, VersionLabel::parse("first"), content_with_attachments(), &stamp());
    let flow = change.next.0.clone();
    stage.store.commit_flow(scope(), change, None).await.unwrap();
    stage.add_version(&flow, smaller, &json!({})).await;
    assert_eq!(stage.newest(&flow).await, smaller);
    assert_eq!(stage.newest_first(&flow).await, [smaller, bigger]);
}

#[tokio::test]
async fn batched_versions_get_ordinals() {
    const MANY: usize = 40;
    let stage = Arc::new(Fixture::new().await);
    let mut expected = Vec::new();
    for _ in 0..MANY {
        let asset = stage.asset(AssetKind::Skill).await;
        let (smaller, bigger) = ascending_ids();
        stage.add_version(&asset, bigger, &json!({})).await;
        expected.push((asset, [smaller, bigger]));
    }
    let facts = "SELECT count(DISTINCT xmin::text) FROM fact WHERE kind = 'asset_version.created'";
    let before = stage.query_number(facts).await;
    let mut makers = JoinSet::new();
    for (asset, [smaller, _]) in expected.clone() {
        let stage = Arc::clone(&stage);
        makers.spawn(async move {
            stage.add_version(&asset, smaller, &json!({})).await;
        });
    }
    makers.join_all().await;
    assert!(stage.query_number(facts).await - before < 20, "the versions were not committed in batches");
    for (asset, order) in expected {
        assert_eq!(stage.newest_first(&asset).await, order);
    }
}

fn route(id: &str, state: &str) -> Value {
    json!({ "route_id": id, "provider": "local", "model": "m", "account_slot": "local", "state": state })
}

#[tokio::test]
async fn later_committed_version_withdraws_a_route() {
    let stage = Fixture::new().await;
    let asset = stage.asset(AssetKind::ModelPolicy).await;
    let (smaller, bigger) = ascending_ids();
    stage.add_version(&asset, bigger, &json!({ "provider_route": route("primary", "approved") })).await;
    stage.add_version(&asset, smaller, &json!({ "provider_route": route("primary", "suspended") })).await;
    let withdrawn = async |version, route: &str| {
        !stage.store.is_route_effective(scope(), asset.asset_id, version, route).await.unwrap()
    };
    assert!(withdrawn(bigger, "primary").await);
    assert!(!withdrawn(smaller, "primary").await, "a version does not withdraw its own routes");
    assert!(!withdrawn(bigger, "other").await);
}

#[tokio::test]
async fn only_routes_of_model_policies_are_withdrawn() {
    let stage = Fixture::new().await;
    let asset = stage.asset(AssetKind::ModelPolicy).await;
    let first = stage.add_version(&asset, fresh(), &json!({ "provider_route": route("a", "approved") })).await;
    let after = async |route: &str| {
        let store = &stage.store;
        !store.is_route_effective(scope(), asset.asset_id, first.asset_version_id, route).await.unwrap()
    };
    let harmless = json!({
        "provider_route": route("b", "approved"),
        "fallback_routes": [route("c", "pending"), route("d", "active")],
        "labels": { "route_id": "a", "state": "retired" },
    });
    stage.add_version(&asset, fresh(), &harmless).await;
    for route in ["a", "b", "c", "d"] {
        assert!(!after(route).await, "{route}");
    }
    let retiring = json!({
        "provider_route": route("a", "approved"),
        "fallback_routes": [route("b", "suspended"), route("c", "approved"), route("d", "retired")],
    });
    let retiring = stage.add_version(&asset, fresh(), &retiring).await;
    for (route, expected) in [("a", false), ("b", true), ("c", false), ("d", true)] {
        assert_eq!(after(route).await, expected, "{route}");
    }
    let sql = format!(
        "SELECT string_agg(route_id || ' ' || state, ', ' ORDER BY route_id) FROM withdrawn_route
         WHERE asset_version_id = '{}'",
        retiring.asset_version_id
    );
    let rows = stage.owner.query_one(&sql, &[]).await.unwrap();
    assert_eq!(rows.get::<_, String>(0), "b suspended, d retired");
    // Only versions of model policies withdraw routes. The same content in another kind does not.
    let skill = stage.asset(AssetKind::Skill).await;
    stage.add_version(&skill, fresh(), &json!({ "provider_route": route("a", "retired") })).await;
    assert_eq!(stage.query_number("SELECT count(*) FROM withdrawn_route").await, 2);
}

/// Adds versions to an asset in one statement, with the rows that the store's own statements would write.
async fn fill(stage: &Fixture, asset: &Asset, versions: i64) {
    let client = stage.database.connect_as_owner().await.unwrap();
    let sql = format!(
        "INSERT INTO asset_version SELECT tenant_id, gen_random_uuid(), asset_id, 'n' || n, last_ordinal + n, '{{}}', 'x',
            'blake3:' || repeat('0', 64), now(), 'user:eve'
        FROM asset, generate_series(1, {versions}) AS n WHERE asset_id = '{id}';
        UPDATE asset SET last_ordinal = last_ordinal + {versions} WHERE asset_id = '{id}';
        ANALYZE asset_version",
        id = asset.asset_id
    );
    client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn first_page_of_many_versions_reads_as_many_blocks_as_that_of_few() {
    let stage = Fixture::new().await;
    let (few, many) = (stage.asset(AssetKind::Skill).await, stage.asset(AssetKind::Skill).await);
    fill(&stage, &few, 20).await;
    fill(&stage, &many, 20_000).await;
    for (asset, expected) in [(&few, 20), (&many, 10_001)] {
        let page = stage.store.list_versions(scope(), asset.asset_id, PageRequest::first(10)).await.unwrap();
        assert_eq!((page.rows.len(), page.total), (10, expected));
    }
    let mut database = stage.into_database();
    let mut blocks_of = Vec::new();
    for id in [few.asset_id, many.asset_id] {
        let (same, counts) = measure(database, async |_, store| {
            let page = store.list_versions(scope(), id, PageRequest::first(10)).await.unwrap();
            assert_eq!(page.rows.len(), 10);
        })
        .await;
        database = same;
        blocks_of.push(counts["asset_version"].blocks);
    }
    assert!(blocks_of[1] * 10 <= blocks_of[0] * 13, "blocks of few and of many versions: {blocks_of:?}");
}
