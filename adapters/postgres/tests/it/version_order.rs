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

fn new_version(asset: &Asset, id: AssetVersionId, content: VersionContent) -> Change<NewVersion> {
    asset.add_version(id, None, content, &stamp()).unwrap()
}

impl Fixture {
    async fn add_version(&self, asset: &Asset, id: AssetVersionId, content: &Value) -> AssetVersion {
        self.store.commit_version(scope(), new_version(asset, id, plain(content)), None).await.unwrap()
    }

    /// The identifiers of the asset's versions, newest first, read page by page.
    async fn newest_first(&self, asset: &Asset) -> Vec<AssetVersionId> {
        let (mut found, mut page) = (Vec::new(), PageRequest::first(1));
        loop {
            let version_page = self.store.list_versions(scope(), asset.asset_id, page).await.unwrap();
            found.extend(version_page.rows.iter().map(|version| version.asset_version_id));
            match version_page.next {
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
    let fixture = Fixture::new().await;
    for has_attachments in [false, true] {
        let asset = fixture.asset(AssetKind::Skill).await;
        let (smaller, bigger) = ascending_ids();
        let content = || if has_attachments { content_with_attachments() } else { plain(&json!({})) };
        for (id, label) in [(bigger, "v1"), (smaller, "v2")] {
            let version =
                fixture.store.commit_version(scope(), new_version(&asset, id, content()), None).await.unwrap();
            assert_eq!(version.version_label.as_str(), label);
        }
        assert_eq!(fixture.newest(&asset).await, smaller);
        assert_eq!(fixture.newest_first(&asset).await, [smaller, bigger]);
    }
}

#[tokio::test]
async fn first_version_of_a_flow_is_older_than_its_second() {
    let fixture = Fixture::new().await;
    let (smaller, bigger) = ascending_ids();
    let new = crate::fixture::new_asset(AssetKind::OrchestrationFlow);
    let change = Asset::create_flow(new, bigger, VersionLabel::parse("first"), content_with_attachments(), &stamp());
    let flow = change.next.0.clone();
    fixture.store.commit_flow(scope(), change, None).await.unwrap();
    fixture.add_version(&flow, smaller, &json!({})).await;
    assert_eq!(fixture.newest(&flow).await, smaller);
    assert_eq!(fixture.newest_first(&flow).await, [smaller, bigger]);
}

#[tokio::test]
async fn batched_versions_get_ordinals() {
    const MANY: usize = 40;
    let fixture = Arc::new(Fixture::new().await);
    let mut expected = Vec::new();
    for _ in 0..MANY {
        let asset = fixture.asset(AssetKind::Skill).await;
        let (smaller, bigger) = ascending_ids();
        fixture.add_version(&asset, bigger, &json!({})).await;
        expected.push((asset, [smaller, bigger]));
    }
    let facts = "SELECT count(DISTINCT xmin::text) FROM fact WHERE kind = 'asset_version.created'";
    let before = fixture.query_number(facts).await;
    let mut tasks = JoinSet::new();
    for (asset, [smaller, _]) in expected.clone() {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            fixture.add_version(&asset, smaller, &json!({})).await;
        });
    }
    tasks.join_all().await;
    assert!(fixture.query_number(facts).await - before < 20, "the versions were not committed in batches");
    for (asset, order) in expected {
        assert_eq!(fixture.newest_first(&asset).await, order);
    }
}

fn route(id: &str, state: &str) -> Value {
    json!({ "route_id": id, "provider": "local", "model": "m", "account_slot": "local", "state": state })
}

#[tokio::test]
async fn later_committed_version_withdraws_a_route() {
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::ModelPolicy).await;
    let (smaller, bigger) = ascending_ids();
    fixture.add_version(&asset, bigger, &json!({ "provider_route": route("primary", "approved") })).await;
    fixture.add_version(&asset, smaller, &json!({ "provider_route": route("primary", "suspended") })).await;
    let withdrawn = async |version, route: &str| {
        !fixture.store.is_route_effective(scope(), asset.asset_id, version, route).await.unwrap()
    };
    assert!(withdrawn(bigger, "primary").await);
    assert!(!withdrawn(smaller, "primary").await, "a version does not withdraw its own routes");
    assert!(!withdrawn(bigger, "other").await);
}

#[tokio::test]
async fn only_routes_of_model_policies_are_withdrawn() {
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::ModelPolicy).await;
    let first = fixture.add_version(&asset, fresh(), &json!({ "provider_route": route("a", "approved") })).await;
    let is_withdrawn = async |route: &str| {
        let store = &fixture.store;
        !store.is_route_effective(scope(), asset.asset_id, first.asset_version_id, route).await.unwrap()
    };
    let other_content = json!({
        "provider_route": route("b", "approved"),
        "fallback_routes": [route("c", "pending"), route("d", "active")],
        "labels": { "route_id": "a", "state": "retired" },
    });
    fixture.add_version(&asset, fresh(), &other_content).await;
    for route in ["a", "b", "c", "d"] {
        assert!(!is_withdrawn(route).await, "{route}");
    }
    let withdrawing = json!({
        "provider_route": route("a", "approved"),
        "fallback_routes": [route("b", "suspended"), route("c", "approved"), route("d", "retired")],
    });
    let withdrawing = fixture.add_version(&asset, fresh(), &withdrawing).await;
    for (route, expected) in [("a", false), ("b", true), ("c", false), ("d", true)] {
        assert_eq!(is_withdrawn(route).await, expected, "{route}");
    }
    let sql = format!(
        "SELECT string_agg(route_id || ' ' || state, ', ' ORDER BY route_id) FROM withdrawn_route
         WHERE asset_version_id = '{}'",
        withdrawing.asset_version_id
    );
    let rows = fixture.owner.query_one(&sql, &[]).await.unwrap();
    assert_eq!(rows.get::<_, String>(0), "b suspended, d retired");
    // Only versions of model policies withdraw routes. The same content in another kind does not.
    let skill = fixture.asset(AssetKind::Skill).await;
    fixture.add_version(&skill, fresh(), &json!({ "provider_route": route("a", "retired") })).await;
    assert_eq!(fixture.query_number("SELECT count(*) FROM withdrawn_route").await, 2);
}

/// Adds versions to an asset in one statement, with the rows that the store's own statements would write.
async fn fill(fixture: &Fixture, asset: &Asset, versions: i64) {
    let client = fixture.database.connect_as_owner().await.unwrap();
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
    let fixture = Fixture::new().await;
    let (small_asset, large_asset) = (fixture.asset(AssetKind::Skill).await, fixture.asset(AssetKind::Skill).await);
    fill(&fixture, &small_asset, 20).await;
    fill(&fixture, &large_asset, 20_000).await;
    for (asset, expected) in [(&small_asset, 20), (&large_asset, 10_001)] {
        let page = fixture.store.list_versions(scope(), asset.asset_id, PageRequest::first(10)).await.unwrap();
        assert_eq!((page.rows.len(), page.total), (10, expected));
    }
    let mut database = fixture.into_database();
    let mut blocks_of = Vec::new();
    for id in [small_asset.asset_id, large_asset.asset_id] {
        let (returned_database, counts) = measure(database, async |_, store| {
            let page = store.list_versions(scope(), id, PageRequest::first(10)).await.unwrap();
            assert_eq!(page.rows.len(), 10);
        })
        .await;
        database = returned_database;
        blocks_of.push(counts["asset_version"].blocks);
    }
    assert!(blocks_of[1] * 10 <= blocks_of[0] * 13, "blocks of few and of many versions: {blocks_of:?}");
}
