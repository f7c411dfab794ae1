//! Tests of the state machine of use cases against a model, which is a table of the permitted operations in each
//! status.

use super::{
    bundle::{BundlePlan, tests::plan},
    *,
};
use crate::{
    access::OwnerRef,
    access_request::{AccessRequest, AccessRequestStatus, GrantedSettings},
    asset::{Lifecycle, VersionLabel, canonical::Checksum, kind::AssetKind},
    connection::{Connection, ConnectionStatus, ConnectorKind, NewConnection, SecretBindings},
    id::{ConnectionId, FactId, RequestId},
    release::BindableVersion,
    slug::Slug,
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use uuid::Uuid;

#[path = "../../../testkit/src/long_form.rs"]
mod long_form;

const CONNECTIONS: [&str; 2] = ["crm", "mail"];

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish { may_create: bool },
    Activate,
    Archive,
    Reopen,
    Refine,
    Grant(usize),
    Deny(usize),
    Create(usize),
    Disable(usize),
    Expire(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<bool>().prop_map(|may_create| Step::Publish { may_create }),
        Just(Step::Activate),
        Just(Step::Archive),
        Just(Step::Reopen),
        Just(Step::Refine),
        (0..2_usize).prop_map(Step::Grant),
        (0..2_usize).prop_map(Step::Deny),
        (0..2_usize).prop_map(Step::Create),
        (0..2_usize).prop_map(Step::Disable),
        (0..2_usize).prop_map(Step::Expire),
    ];
    prop::collection::vec(step, 0..20)
}

/// The state of a history: the current use case, its archived predecessors, the connections and the access requests.
struct History {
    current: UseCase,
    archived: Vec<UseCase>,
    connections: Vec<ConnectionWithExpiryState>,
    requests: Vec<AccessRequest>,
    ids: u128,
}

impl History {
    fn new() -> Self {
        let mut document = plan();
        document["connections"] = json!(CONNECTIONS);
        let plan = BundlePlan::parse(&document).unwrap();
        let mut ids = 10;
        let stamp = stamp(&mut ids);
        let current = UseCase::create(
            Uuid::from_u128(1).into(),
            Uuid::from_u128(2).into(),
            "Sort tickets by their urgency".to_owned(),
            plan,
            &stamp,
        );
        let current = current.into_record().next;
        Self { current, archived: Vec::new(), connections: Vec::new(), requests: Vec::new(), ids }
    }

    fn stamp(&mut self) -> Stamp {
        stamp(&mut self.ids)
    }

    fn id<T: From<Uuid>>(&mut self) -> T {
        self.ids += 1;
        Uuid::from_u128(self.ids).into()
    }

    fn is_connection_usable(&self, name: &str) -> bool {
        self.connections.iter().any(|snapshot| snapshot.connection.name == name && snapshot.is_usable())
    }

    fn all_usable(&self) -> bool {
        CONNECTIONS.iter().all(|name| self.is_connection_usable(name))
    }

    fn publication_context(&self, may_create_connections: bool) -> PublicationContext {
        PublicationContext {
            namespace_id: Uuid::from_u128(3).into(),
            owner_ref: OwnerRef::parse("user:ada").unwrap(),
            model_policy: BindableVersion {
                asset_version_id: Uuid::from_u128(4).into(),
                checksum: Checksum::blake3_of(b"x"),
                version_label: VersionLabel::parse("v1").unwrap(),
                asset_id: Uuid::from_u128(5).into(),
                asset_slug: Slug::parse("main-model").unwrap(),
                kind: AssetKind::ModelPolicy,
                lifecycle: Lifecycle::Active,
            },
            policy_bundle: None,
            connections: self.connections.clone(),
            may_create_connections,
        }
    }

    fn ids(&mut self) -> PublicationIds {
        PublicationIds {
            flow: (self.id(), self.id()),
            prompt: (self.id(), self.id()),
            policy: (self.id(), self.id()),
            workload: self.id(),
            release: self.id(),
            bindings: [self.id(), self.id(), self.id(), self.id()],
            requests: vec![self.id(), self.id()],
        }
    }

    fn withdraw(&mut self) {
        for request in &mut self.requests {
            if request.status == AccessRequestStatus::Pending {
                request.0.status = AccessRequestStatus::Withdrawn;
            }
        }
    }

    fn publish(&mut self, may_create: bool) {
        let (ids, stamp, context) = (self.ids(), self.stamp(), self.publication_context(may_create));
        let before = self.current.clone();
        let result = self.current.publish(ids, &context, &stamp);
        match (before.status, self.all_usable(), may_create) {
            (UseCaseStatus::Draft, false, true) => {
                assert!(matches!(result, Err(UseCaseRefusal::ConnectionsMissing(_))));
            }
            (UseCaseStatus::Draft, all_usable, _) => {
                let publication = result.unwrap().into_record().next;
                let expected = if all_usable { UseCaseStatus::Active } else { UseCaseStatus::PendingAccess };
                assert_eq!(publication.use_case.status, expected);
                let missing = CONNECTIONS.iter().filter(|name| !self.is_connection_usable(name)).count();
                assert_eq!(publication.requests.len(), missing);
                // Only the first publication creates resources; later publications keep them.
                assert_eq!(publication.created.is_some(), before.pieces.is_none());
                assert!(before.workload_id.is_none() || publication.use_case.workload_id == before.workload_id);
                if let Some(created) = &publication.created {
                    assert_eq!((created.assets.len(), created.release.bindings.len()), (3, 4));
                    assert_eq!(created.release.environment.as_str(), "dev");
                }
                self.current = publication.use_case;
                self.requests.extend(publication.requests);
            }
            (from, _, _) => assert_eq!(result.unwrap_err(), UseCaseRefusal::InvalidTransition { from }),
        }
    }

    fn grant(&mut self, index: usize) {
        let pending = |request: &AccessRequest| request.status == AccessRequestStatus::Pending;
        let Some(position) =
            self.requests.iter().position(|item| pending(item) && item.connection_name == CONNECTIONS[index])
        else {
            return;
        };
        let (id, stamp): (ConnectionId, _) = (self.id(), self.stamp());
        let request = self.requests[position].clone();
        let settings = GrantedSettings::default();
        let change = request.grant(id, settings.clone(), &self.connections, &self.current, &stamp);
        let grant = change.unwrap().into_record().next;
        assert!(grant.request.grant(id, settings, &[], &self.current, &stamp).is_err(), "granted twice");
        self.connections.retain(|item| item.connection.name != CONNECTIONS[index]);
        self.connections.push(snapshot(grant.connection));
        self.requests[position] = grant.request;
        if grant.use_case.status == UseCaseStatus::Active {
            self.withdraw();
        }
        let is_ready = self.current.status == UseCaseStatus::PendingAccess && self.all_usable();
        let expected = if is_ready { UseCaseStatus::Active } else { self.current.status };
        assert_eq!(grant.use_case.status, expected);
        assert!(grant.use_case.revision > self.current.revision);
        self.current = grant.use_case;
    }

    fn deny(&mut self, index: usize) {
        let stamp = self.stamp();
        let status = self.current.status;
        for request in &mut self.requests {
            let is_pending = request.status == AccessRequestStatus::Pending;
            if is_pending && request.connection_name == CONNECTIONS[index] {
                *request = request.deny(None, &stamp).unwrap().into_record().next;
                assert!(request.deny(None, &stamp).is_err(), "denied twice");
            }
        }
        assert_eq!(self.current.status, status, "a denial changes no use case");
    }

    fn apply(&mut self, step: Step) {
        let from = self.current.status;
        let refusal = UseCaseRefusal::InvalidTransition { from };
        let stamp = self.stamp();
        match step {
            Step::Publish { may_create } => self.publish(may_create),
            Step::Activate => match (self.current.activate(&self.connections, &stamp), from, self.all_usable()) {
                (result, UseCaseStatus::PendingAccess, true) => {
                    self.current = result.unwrap().into_record().next;
                    self.withdraw();
                    assert_eq!(self.current.status, UseCaseStatus::Active);
                }
                (result, UseCaseStatus::PendingAccess, false) => {
                    assert!(matches!(result, Err(UseCaseRefusal::ConnectionsUnresolved(_))));
                }
                (result, _, _) => assert_eq!(result.unwrap_err(), refusal),
            },
            Step::Archive => match (self.current.archive(&stamp), from) {
                (result, UseCaseStatus::Archived) => assert_eq!(result.unwrap_err(), refusal),
                (result, _) => {
                    self.current = result.unwrap().into_record().next;
                    self.withdraw();
                }
            },
            Step::Reopen => match (self.current.reopen(&stamp), from) {
                (result, UseCaseStatus::PendingAccess) => {
                    self.current = result.unwrap().into_record().next;
                    self.withdraw();
                    assert_eq!(self.current.status, UseCaseStatus::Draft);
                }
                (result, _) => assert_eq!(result.unwrap_err(), refusal),
            },
            Step::Refine => {
                let (id, plan) = (self.id(), self.current.plan.clone());
                match (self.current.refine(id, plan, &stamp), from) {
                    (result, UseCaseStatus::Draft) => {
                        let refined = result.unwrap().into_record().next;
                        assert_eq!(refined.predecessor.superseded_by, Some(id));
                        assert_eq!(refined.successor.supersedes, Some(self.current.use_case_id));
                        self.archived.push(refined.predecessor);
                        self.current = refined.successor;
                    }
                    (result, _) => assert_eq!(result.unwrap_err(), refusal),
                }
            }
            Step::Grant(index) => self.grant(index),
            Step::Deny(index) => self.deny(index),
            Step::Create(index) => {
                self.connections.retain(|snapshot| snapshot.connection.name != CONNECTIONS[index]);
                let id = self.id();
                let workspace = self.current.workspace_id;
                let created = Connection::create(id, workspace, connection(CONNECTIONS[index]), &stamp).unwrap();
                self.connections.push(snapshot(created.into_record().next));
            }
            Step::Disable(index) => {
                for snapshot in
                    self.connections.iter_mut().filter(|snapshot| snapshot.connection.name == CONNECTIONS[index])
                {
                    snapshot.connection.0.status = ConnectionStatus::Disabled;
                }
            }
            Step::Expire(index) => {
                for snapshot in
                    self.connections.iter_mut().filter(|snapshot| snapshot.connection.name == CONNECTIONS[index])
                {
                    snapshot.is_expired = true;
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        // Exactly one use case of the chain is current. All others are archived, and each of them names its successor.
        assert!(
            self.archived.iter().all(|item| item.status == UseCaseStatus::Archived && item.superseded_by.is_some())
        );
        // Access requests are pending only while the use case awaits access.
        let is_pending = self.requests.iter().any(|item| item.status == AccessRequestStatus::Pending);
        assert!(!is_pending || self.current.status == UseCaseStatus::PendingAccess);
        assert_eq!(self.current.workload_id.is_some(), self.current.pieces.is_some());
    }
}

fn stamp(ids: &mut u128) -> Stamp {
    *ids += 1;
    Stamp {
        fact_id: FactId::from(Uuid::from_u128(*ids)),
        at: Timestamp::new(::time::OffsetDateTime::UNIX_EPOCH),
        actor: ActorRef::parse("user:ada").unwrap(),
        request_id: RequestId::from(Uuid::from_u128(7)),
    }
}

fn snapshot(connection: Connection) -> ConnectionWithExpiryState {
    ConnectionWithExpiryState { connection, is_expired: false }
}

fn connection(name: &str) -> NewConnection {
    NewConnection {
        name: name.to_owned(),
        kind: ConnectorKind::Other,
        endpoint: None,
        secret_bindings: SecretBindings::default(),
        expires_at: None,
        status: ConnectionStatus::Active,
    }
}

/// The number of histories that the test runs in its short form and in its long form.
const HISTORIES: [u32; 2] = [2_000, 1_000_000];

#[expect(clippy::disallowed_methods, reason = "only tests read the environment; the domain does not")]
fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs random histories that a seed determines. After a failure, the test prints the shrunk history, and the seed
/// reproduces it.
fn run_histories(seed: u64, worker: u32, count: u32) {
    let mut bytes = [0_u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&worker.to_le_bytes());
    let config = ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&steps(), |steps| {
        let mut history = History::new();
        steps.into_iter().for_each(|step| history.apply(step));
        Ok(())
    });
    assert!(result.is_ok(), "seed {seed}: {}", result.unwrap_err());
}

#[expect(clippy::disallowed_methods, reason = "only tests read their arguments; the domain does not")]
fn is_long() -> bool {
    long_form::is_long(std::env::args(), |name| env_variable(name).is_some())
}

#[test]
fn random_histories_conform_to_the_model() {
    let seed = env_variable("FAIRWAY_TEST_SEED").and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let workers = u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let count = HISTORIES[usize::from(is_long())].div_ceil(workers);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || run_histories(seed, worker, count));
        }
    });
}

#[test]
fn default_policy_is_valid_content() {
    assert!(crate::asset::content::check(AssetKind::PolicyBundle, &dev_only_policy_content()).is_ok());
}
