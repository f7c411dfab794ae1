//! Executes reads of the stores whose rows the fixture does not create. The keys are absent, because PostgreSQL
//! uses the same plan for present and absent keys.

use crate::fixture::{actor, environment, fresh, scope};
use fairway_domain::{
    access::{ActorRef, identity::IdentityStore, session::SessionStore},
    connection::ConnectionStore,
    memory::{
        ConversationKey, ConversationSessionId, MemoryScope, PersonalDataPolicy,
        ports::{MemoryStore, RecallQuery},
    },
    notification::{
        destination::DestinationScope,
        ports::{
            AnnouncementStore, DeliveryFilter, DeliveryStore, DestinationStore, InboxFilter, InboxStore,
            PreferenceStore, ProfileStore, ProjectionStore,
        },
        preference::PreferenceScope,
    },
    share_link::{ShareLinkStore, TokenHash},
    slug::Slug,
    store::PageRequest,
    tenant::DEFAULT_WORKSPACE_ID,
    transparency_log::TreeStore,
    use_case::ports::{UseCaseFilter, UseCaseStore},
};
use fairway_postgres::Database;
use std::slice::from_ref;
use uuid::Uuid;

/// Executes reads of sign-in, share links, conversations, connections, use cases, the log and notifications.
pub(super) async fn execute_reads_of_absent_rows(store: &Database) {
    read_people(store).await;
    read_resources(store).await;
    read_notifications(store).await;
}

async fn read_people(store: &Database) {
    let absent = TokenHash::from_hash_bytes([7; 32]);
    assert!(SessionStore::find(store, scope(), &absent).await.unwrap().is_none());
    SessionStore::record_use(store, scope(), fresh()).await.unwrap();
    assert_eq!(store.find_tenant(&Slug::parse("no-tenant").unwrap()).await.unwrap(), None);
    store.find_tenant_slug(scope().tenant()).await.unwrap().unwrap();
    assert_eq!(store.groups_of(scope(), &actor()).await.unwrap(), []);
    assert!(ShareLinkStore::find(store, scope(), fresh(), fresh()).await.unwrap().is_none());
    assert!(store.find_by_token(scope(), &absent).await.unwrap().is_none());
    store.is_run_revoked(scope(), fresh()).await.unwrap();
    assert_eq!(store.result_token(scope(), fresh()).await.unwrap(), None);
    let conversation =
        ConversationKey { workload: fresh(), owner: actor(), session: ConversationSessionId::parse("absent").unwrap() };
    assert_eq!(store.list_turns(scope(), &conversation).await.unwrap(), []);
    for memory_scope in [MemoryScope::Session, MemoryScope::User] {
        let query = RecallQuery {
            asset: fresh(),
            scope: memory_scope,
            limit: 10,
            max_age_days: 7,
            personal_data: PersonalDataPolicy::Allow,
        };
        assert_eq!(store.recall(scope(), &conversation, &query).await.unwrap().turns, []);
    }
}

async fn read_resources(store: &Database) {
    let workspace = DEFAULT_WORKSPACE_ID.into();
    assert_eq!(ConnectionStore::find(store, scope(), fresh()).await.unwrap(), None);
    assert_eq!(store.find_named(scope(), workspace, &["absent".to_owned()]).await.unwrap(), []);
    assert_eq!(store.checks(scope(), fresh(), 5).await.unwrap(), []);
    assert_eq!(UseCaseStore::find(store, scope(), fresh()).await.unwrap(), None);
    assert_eq!(store.find_by_workload(scope(), fresh()).await.unwrap(), None);
    assert!(store.find_refinement(scope(), workspace, "absent").await.unwrap().is_none());
    store.find_log(scope()).await.unwrap();
    assert_eq!(store.leaves(scope(), 1_000_000, 5).await.unwrap(), []);
    assert!(store.entries(scope(), 1_000_000, 5).await.unwrap().is_empty());
    assert!(store.facts_about(scope(), &[Uuid::now_v7()], &["asset.created"], 5).await.unwrap().is_empty());
    assert!(store.find_logged_fact(scope(), fresh()).await.unwrap().is_none());
}

async fn read_notifications(store: &Database) {
    let absent = absent_user();
    assert!(InboxStore::find(store, scope(), &absent, fresh()).await.unwrap().is_none());
    assert_eq!(store.list_from(scope(), &absent, 0, 5).await.unwrap(), []);
    assert_eq!(store.count_unread(scope(), &absent).await.unwrap(), 0);
    assert!(DeliveryStore::find(store, scope(), fresh()).await.unwrap().is_none());
    assert!(DestinationStore::find(store, scope(), DestinationScope::Organization, fresh()).await.unwrap().is_none());
    assert!(AnnouncementStore::find(store, scope(), fresh()).await.unwrap().is_none());
    assert!(ProfileStore::find(store, scope(), &absent).await.unwrap().is_none());
}

fn absent_user() -> ActorRef {
    ActorRef::parse("user:absent").unwrap()
}

/// Executes lists, and reads of many keys.
pub(super) async fn execute_lists_of_absent_rows(store: &Database) {
    let (page, absent) = (PageRequest::first(5), absent_user());
    let filter = UseCaseFilter { workspace: DEFAULT_WORKSPACE_ID.into(), status: None, is_activation_ready: false };
    UseCaseStore::list(store, scope(), filter, page).await.unwrap();
    let filter = InboxFilter { status: None, category: None };
    assert_eq!(InboxStore::list(store, scope(), &absent, filter, page).await.unwrap().rows, []);
    let filter = DeliveryFilter { workspace: None, status: None, destination: None };
    DeliveryStore::list(store, scope(), filter, None, page).await.unwrap();
    assert!(store.find_many(scope(), from_ref(&absent)).await.unwrap().is_empty());
    let scopes = [
        PreferenceScope::Global,
        PreferenceScope::Project(fresh()),
        PreferenceScope::Environment(fresh(), environment()),
    ];
    assert_eq!(store.find_sets(scope(), &absent, &scopes).await.unwrap(), []);
    store.preferences(scope(), from_ref(&absent), &[], &[fresh()], &["dev"]).await.unwrap();
    store.people_with_mailbox(scope(), from_ref(&absent)).await.unwrap();
    store.destinations(scope(), &[DEFAULT_WORKSPACE_ID.into()]).await.unwrap();
}
