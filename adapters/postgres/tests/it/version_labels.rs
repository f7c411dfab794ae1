//! Labels of versions: unique, and numbered by the store if none is requested.

use crate::fixture::{Fixture, content, content_with_attachments, fresh, scope, stamp};
use fairway_domain::asset::{VersionLabel, kind::AssetKind, ports::VersionStore};
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;

const VERSIONS: usize = 20;

#[tokio::test]
async fn concurrent_versions_get_consecutive_unique_labels() {
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::Skill).await;
    let mut tasks = JoinSet::new();
    for _ in 0..VERSIONS {
        let (store, asset) = (Arc::clone(&fixture.store), asset.clone());
        tasks.spawn(async move {
            let change = asset.add_version(fresh(), None, content().into(), &stamp()).unwrap();
            store.commit_version(scope(), change, None).await.unwrap().version_label.to_string()
        });
    }
    let labels: BTreeSet<String> = tasks.join_all().await.into_iter().collect();
    let expected: BTreeSet<String> = (1..=VERSIONS).map(|number| format!("v{number}")).collect();
    assert_eq!(labels, expected);
}

#[tokio::test]
async fn explicit_label_advances_the_counter_only_if_it_is_numeric() {
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::Skill).await;
    let mut labels = Vec::new();
    // The requested labels. For `None`, the store assigns the label.
    for requested in [None, Some("v5"), None, Some("v3"), Some("spring"), None, Some("v07"), Some("V9"), None] {
        labels.push(fixture.version(&asset, requested).await.version_label.to_string());
    }
    assert_eq!(labels, ["v1", "v5", "v6", "v3", "spring", "v7", "v07", "V9", "v8"]);
}

#[tokio::test]
async fn labels_with_ten_or_more_digits_advance_the_counter() {
    let fixture = Fixture::new().await;
    let asset = fixture.asset(AssetKind::Skill).await;
    let mut labels = Vec::new();
    for requested in [Some("v1000000000"), Some("v999999999"), None, Some("v99999999999999999"), None] {
        labels.push(fixture.version(&asset, requested).await.version_label.to_string());
    }
    let expected = ["v1000000000", "v999999999", "v1000000001", "v99999999999999999", "v100000000000000000"];
    assert_eq!(labels, expected);
}

#[tokio::test]
async fn first_label_of_a_flow_starts_the_counter() {
    let fixture = Fixture::new().await;
    for (requested, first, second) in [
        (None, "v1", "v2"),
        (Some("v4"), "v4", "v5"),
        (Some("v1000000000"), "v1000000000", "v1000000001"),
        (Some("first"), "first", "v1"),
    ] {
        let new = crate::fixture::new_asset(AssetKind::OrchestrationFlow);
        let label = requested.map(|text| VersionLabel::parse(text).unwrap());
        let change =
            fairway_domain::asset::Asset::create_flow(new, fresh(), label, content_with_attachments(), &stamp());
        let asset = change.next.0.clone();
        let version = fixture.store.commit_flow(scope(), change, None).await.unwrap();
        assert_eq!(version.version_label.as_str(), first);
        assert_eq!(fixture.version(&asset, None).await.version_label.as_str(), second);
    }
}
