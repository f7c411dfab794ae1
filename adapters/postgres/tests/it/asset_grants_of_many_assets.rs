//! Reads the asset grants of several assets in one query.

use crate::fixture::{Fixture, actor, fresh, scope, stamp};
use fairway_domain::{
    access::rights::VisibleScopes,
    asset::{
        grant::{AssetGrant, AssetGrantStore, Grantee},
        kind::AssetKind,
    },
    id::AssetId,
    tenant::{DEFAULT_NAMESPACE_ID, DEFAULT_WORKSPACE_ID},
};
use std::collections::BTreeSet;

#[tokio::test]
async fn returns_the_granted_ones_of_many_assets() {
    let fixture = Fixture::new().await;
    let mut assets = Vec::new();
    for grantee in
        [None, Some(Grantee::Principal(actor())), Some(Grantee::Workspace(DEFAULT_WORKSPACE_ID.into())), None]
    {
        let asset = fixture.asset(AssetKind::Skill).await;
        if let Some(grantee) = grantee {
            let change = AssetGrant::create(fresh(), &asset, grantee, &stamp()).unwrap();
            fixture.store.commit_grant(scope(), change, None).await.unwrap();
        }
        assets.push(asset.asset_id);
    }
    let nobody = VisibleScopes::default();
    let workspace = VisibleScopes { workspaces: vec![DEFAULT_WORKSPACE_ID.into()], ..VisibleScopes::default() };
    let namespace = VisibleScopes { namespaces: vec![DEFAULT_NAMESPACE_ID.into()], ..VisibleScopes::default() };
    let (principal, none) = ([actor()], []);
    for (principals, visible_scopes, expected) in [
        (&none[..], &nobody, vec![]),
        (&principal[..], &nobody, vec![assets[1]]),
        (&none[..], &workspace, vec![assets[2]]),
        (&none[..], &namespace, vec![assets[2]]),
        (&principal[..], &namespace, vec![assets[1], assets[2]]),
    ] {
        let granted_assets: Vec<AssetId> =
            fixture.store.select_granted_assets(scope(), &assets, principals, visible_scopes).await.unwrap();
        assert_eq!(BTreeSet::from_iter(granted_assets), BTreeSet::from_iter(expected.clone()));
        for asset in &assets {
            let granted = fixture.store.is_granted(scope(), *asset, principals, visible_scopes).await.unwrap();
            assert_eq!(granted, expected.contains(asset));
        }
    }
}
