//! Tests of the search with an in-memory store and small limits.

use super::*;
use async_trait::async_trait;
use fairway_domain::{
    access::{ActorRef, BoundLanes, Grant, GrantScope, OwnerRef, Rights, Role},
    asset::{AssetRecord, Lifecycle, OwnershipTier, kind::AssetKind},
    release::StateName,
    store::{Revision, StoreError},
    tenant::DEFAULT_TENANT_ID,
    time::Timestamp,
};
use futures_util::FutureExt as _;
use uuid::Uuid;

fn asset(slug: &str) -> Asset {
    Asset::restore(AssetRecord {
        asset_id: Uuid::from_u128(slug.bytes().fold(7, |bits, byte| bits << 8 | u128::from(byte))).into(),
        slug: Slug::parse(slug).unwrap(),
        kind: AssetKind::Skill,
        owner_ref: OwnerRef::parse("team:x").unwrap(),
        lifecycle: Lifecycle::Active,
        ownership_tier: OwnershipTier::Workspace,
        workspace_id: Uuid::nil().into(),
        namespace_id: Uuid::nil().into(),
        created_at: serde_json::from_value::<Timestamp>("2026-01-01T00:00:00Z".into()).unwrap(),
        created_by: ActorRef::parse("user:ada").unwrap(),
        revision: Revision::FIRST,
    })
}

/// In-memory versions, newest first, each with its only reference.
struct InMemoryStore(Vec<Referrer>);

impl InMemoryStore {
    /// Parses versions `slug@label` with their targets `slug` or `slug@label`. A target without a label refers to any
    /// version.
    fn of(lines: &[(String, &str)]) -> Self {
        let referrer = |(index, (version, target)): (usize, &(String, &str))| {
            let (slug, label) = version.split_once('@').unwrap();
            let (target, target_label) =
                target.split_once('@').map_or((*target, None), |(target, label)| (target, Some(label)));
            Referrer {
                asset: asset(slug),
                asset_version_id: Uuid::from_u128(u128::MAX - index as u128).into(),
                version_label: VersionLabel::parse(label).unwrap(),
                target_slug: Slug::parse(target).unwrap(),
                target_label: target_label.and_then(VersionLabel::parse),
                pointer: "/a".to_owned(),
            }
        };
        Self(lines.iter().enumerate().map(referrer).collect())
    }

    /// Runs the search; returns `slug@label > target` for each version found, and whether more exist.
    fn search(&self, limits: SearchLimits) -> (Vec<String>, bool) {
        let scope = TenantScope::for_background_task(DEFAULT_TENANT_ID.into());
        let base = asset("base");
        let (hops, truncated) = find_referrers(self, scope, &base, limits).now_or_never().unwrap().unwrap();
        let name = |referrer: &Referrer| format!("{}@{}", referrer.asset.slug, referrer.version_label);
        let found = hops.iter().map(|hop| {
            let towards = hops.iter().find(|nearer| Some(nearer.referrer.asset_version_id) == hop.towards);
            format!("{} > {}", name(&hop.referrer), towards.map_or("base".to_owned(), |hop| name(&hop.referrer)))
        });
        (found.collect(), truncated)
    }
}

#[async_trait]
impl ImpactStore for InMemoryStore {
    async fn referrers(
        &self,
        _: TenantScope,
        targets: &[ReferenceTarget],
        visited: &[AssetVersionId],
        limit: u32,
    ) -> Result<Vec<Referrer>, StoreError> {
        let matches_target = |referrer: &&Referrer| {
            targets.iter().any(|target| {
                let label = |labels: &Vec<VersionLabel>| {
                    referrer.target_label.as_ref().is_none_or(|label| labels.contains(label))
                };
                target.slug == referrer.target_slug && target.labels.as_ref().is_none_or(label)
            })
        };
        let is_unvisited = |referrer: &&Referrer| !visited.contains(&referrer.asset_version_id);
        Ok(self.0.iter().filter(matches_target).filter(is_unvisited).take(limit as usize).cloned().collect())
    }

    async fn binding_releases(
        &self,
        _: TenantScope,
        _: BindingTarget<'_>,
        _: u32,
    ) -> Result<Vec<BindingRelease>, StoreError> {
        Ok(Vec::new())
    }
}

fn reference(version: &str, target: &'static str) -> (String, &'static str) {
    (version.to_owned(), target)
}

fn limits(versions: u32, depth: usize) -> SearchLimits {
    SearchLimits { versions, depth, total: 100 }
}

#[test]
fn search_continues_from_found_versions_beyond_a_limit() {
    let versions = (0..10).map(|number| (format!("many@v{}", 10 - number), "base"));
    let further = [reference("top@v1", "many@v9"), reference("top@v2", "many@v1"), reference("roof@v1", "top")];
    let store = InMemoryStore::of(&versions.chain(further).collect::<Vec<_>>());
    let (found, truncated) = store.search(limits(3, 32));
    assert!(truncated);
    let expected = ["many@v10 > base", "many@v9 > base", "many@v8 > base", "top@v1 > many@v9", "roof@v1 > top@v1"];
    assert_eq!(found, expected);
    let (found, truncated) = store.search(SEARCH_LIMITS);
    assert!(!truncated);
    assert_eq!(found.len(), 13);
}

#[test]
fn known_versions_do_not_count_against_the_limit() {
    let lines = [
        reference("a@v1", "base"),
        reference("d@v1", "a"),
        reference("e@v1", "a"),
        reference("a@v2", "e"),
        reference("f@v1", "a@v2"),
    ];
    // `a@v1` and `a@v2` share the slug `a`, so the reference to `a` without a label matches a second time at `a@v2`.
    let (found, _) = InMemoryStore::of(&lines).search(limits(2, 32));
    assert_eq!(found, ["a@v1 > base", "d@v1 > a@v1", "e@v1 > a@v1", "a@v2 > e@v1", "f@v1 > a@v2"]);
}

#[test]
fn versions_of_the_asset_are_not_listed() {
    let lines = [
        reference("ring@v1", "base"),
        reference("base@v2", "ring"),
        reference("base@v1", "ring"),
        reference("top@v1", "ring@v1"),
    ];
    let (found, truncated) = InMemoryStore::of(&lines).search(SEARCH_LIMITS);
    assert_eq!(found, ["ring@v1 > base", "top@v1 > ring@v1"]);
    assert!(!truncated);
}

#[test]
fn search_ends_at_its_depth_and_reports_truncation() {
    let chain = [reference("a@v1", "base"), reference("b@v1", "a"), reference("c@v1", "b@v1")];
    let store = InMemoryStore::of(&chain);
    assert_eq!(store.search(limits(10, 2)), (vec!["a@v1 > base".into(), "b@v1 > a@v1".into()], true));
    assert!(!store.search(limits(10, 4)).1);
    // The search reaches its maximum depth before it reads the referrers of the last version.
    assert!(store.search(limits(10, 3)).1);
}

/// The chain is as long as a release can resolve: each version refers to the previous one.
#[test]
fn finds_the_longest_chain_that_a_release_can_resolve() {
    let slugs: Vec<String> = (0..MAX_REFERENCES).map(|number| format!("a{number}")).collect();
    let target = |number: usize| number.checked_sub(1).map_or("base", |previous| slugs[previous].as_str());
    let chain: Vec<_> = (0..slugs.len()).map(|number| (format!("{}@v1", slugs[number]), target(number))).collect();
    // Resolution refuses a release with `MAX_REFERENCES` references, so the longest chain has one fewer.
    let (found, truncated) = InMemoryStore::of(&chain[..MAX_REFERENCES - 1]).search(SEARCH_LIMITS);
    assert_eq!((found.len(), truncated), (MAX_REFERENCES - 1, false));
}

#[test]
fn search_ends_at_its_total() {
    let mut lines: Vec<(String, &str)> = (0..4).map(|number| (format!("wide@v{number}"), "base")).collect();
    lines.extend([reference("top@v1", "wide"), reference("roof@v1", "top")]);
    let store = InMemoryStore::of(&lines);
    let (found, truncated) = store.search(SearchLimits { total: 5, ..SEARCH_LIMITS });
    assert_eq!((found.len(), truncated), (5, true));
    assert_eq!(store.search(SEARCH_LIMITS).0.len(), 6);
}

/// Returns the hops of a chain that ends at `base`, with as many references as a release can resolve.
fn longest_chain() -> Vec<Arc<ReferenceHop>> {
    let slugs: Vec<String> = (0..MAX_REFERENCES - 1).map(|number| format!("a{number}")).collect();
    let target = |number: usize| number.checked_sub(1).map_or("base", |previous| slugs[previous].as_str());
    let chain: Vec<_> = (0..slugs.len()).map(|number| (format!("{}@v1", slugs[number]), target(number))).collect();
    let scope = TenantScope::for_background_task(DEFAULT_TENANT_ID.into());
    let store = InMemoryStore::of(&chain);
    let (hops, _) = find_referrers(&store, scope, &asset("base"), SEARCH_LIMITS).now_or_never().unwrap().unwrap();
    hops.into_iter().map(Arc::new).collect()
}

fn operator() -> Caller {
    Caller {
        tenant: DEFAULT_TENANT_ID.into(),
        actor: ActorRef::parse("user:ada").unwrap(),
        groups: Vec::new(),
        rights: Arc::new(Rights::new(vec![Grant::of_role(
            Role::Operator,
            GrantScope::Tenant(DEFAULT_TENANT_ID.into()),
        )])),
        lanes: Arc::new(BoundLanes::default()),
        access_revision: Revision::FIRST,
        request_id: Uuid::nil().into(),
    }
}

#[test]
fn limits_path_hops_in_total_and_reports_truncation() {
    let hops = longest_chain();
    let [nearest, farthest] = [hops[0].referrer.asset_version_id, hops[hops.len() - 1].referrer.asset_version_id];
    let release = |number: u128, version| BindingRelease {
        release_id: Uuid::from_u128(number).into(),
        state: StateName::Draft,
        environment: Slug::parse("dev").unwrap(),
        workload_id: Uuid::from_u128(number % 3).into(),
        workload_slug: Slug::parse("main").unwrap(),
        workspace_id: Uuid::nil().into(),
        namespace_id: Uuid::nil().into(),
        asset_version_id: version,
        version_label: VersionLabel::parse("v1").unwrap(),
    };
    // The oldest release has a short path. The newest release binds both the nearest and the farthest version.
    let mut bound: Vec<BindingRelease> = (1..=1_000).map(|number| release(number, farthest)).collect();
    bound.extend([release(0, nearest), release(1_000, nearest)]);
    let (releases, workloads, omits_releases) = visible_impact(&operator(), bound.clone(), &hops, |_| true);
    let lengths: Vec<usize> = releases.iter().map(|release| release.path.len()).collect();
    assert_eq!((lengths, omits_releases), (vec![1, 499, 499, 499, 499, 1], true));
    let ids: Vec<u128> = releases.iter().map(|found| found.release.release_id.uuid().as_u128()).collect();
    assert_eq!(ids, [1_000, 999, 998, 997, 996, 0]);
    let listed: usize = workloads.iter().map(|workload| workload.releases.len()).sum();
    assert_eq!((workloads.len(), listed), (3, 6), "workloads contain the listed releases");
    let (releases, _, omits_releases) = visible_impact(&operator(), bound.split_off(1_000), &hops, |_| true);
    assert_eq!((releases.len(), omits_releases), (2, false));
}
