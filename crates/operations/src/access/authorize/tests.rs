//! Compares authorization decisions with an independent model that reads the documented tables and shares no code.

use super::{Operation, authorize};
use crate::Failure;
use decision_model::{DOCUMENT, DecisionModel};
use fairway_domain::{
    access::{ActorRef, BoundLanes, Caller, Grant, GrantScope, ResourcePosition, Rights, Role},
    id::TenantId,
    store::Revision,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};
use uuid::Uuid;

mod decision_model;
#[path = "../../../../testkit/src/long_form.rs"]
mod long_form;

/// Number of questions in a normal test run, and in the long form.
const QUESTIONS: [usize; 2] = [20_000, 1_000_000];
/// Number of questions that the test sends to the model at once.
const BATCH: usize = 20_000;

fn is_long() -> bool {
    long_form::is_long(std::env::args(), |name| std::env::var_os(name).is_some())
}

/// Generator of pseudorandom numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// A grant scope of the generated tree, with its resource position.
#[derive(Clone, Copy)]
struct ScopeEntry {
    scope: GrantScope,
    position: ResourcePosition,
}

fn name(scope: &GrantScope) -> String {
    scope.reference().map_or_else(|| scope.kind().to_owned(), |id| format!("{}:{id}", scope.kind()))
}

/// Two tenants. Each has two namespaces, four workspaces and eight workloads.
struct ScopeTree {
    entries: Vec<ScopeEntry>,
    /// The parent of each scope in the tree; both are names in wire form.
    parents: BTreeMap<String, String>,
}

impl ScopeTree {
    fn new() -> Self {
        let platform = ScopeEntry { scope: GrantScope::Platform, position: ResourcePosition::INSTALLATION };
        let mut scope_tree = Self { entries: vec![platform], parents: BTreeMap::new() };
        for _ in 0..2 {
            let tenant = TenantId::from(scope_tree.fresh_id());
            scope_tree.add(GrantScope::Tenant(tenant), &platform.scope, ResourcePosition::tenant(tenant));
            for _ in 0..2 {
                scope_tree.add_namespace(tenant);
            }
        }
        scope_tree
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::from_u128(u128::try_from(self.entries.len()).unwrap())
    }

    fn add(&mut self, scope: GrantScope, parent: &GrantScope, position: ResourcePosition) {
        self.parents.insert(name(&scope), name(parent));
        self.entries.push(ScopeEntry { scope, position });
    }

    fn add_namespace(&mut self, tenant: TenantId) {
        let namespace = self.fresh_id().into();
        let position = ResourcePosition { namespace: Some(namespace), ..ResourcePosition::tenant(tenant) };
        let scope = GrantScope::Namespace(namespace);
        self.add(scope, &GrantScope::Tenant(tenant), position);
        for _ in 0..2 {
            let workspace = self.fresh_id().into();
            let position = ResourcePosition::workspace(tenant, namespace, workspace);
            self.add(GrantScope::Workspace(workspace), &scope, position);
            for _ in 0..2 {
                let workload = self.fresh_id().into();
                let position = position.for_workload(workload);
                self.add(GrantScope::Workload(workload), &GrantScope::Workspace(workspace), position);
            }
        }
    }

    fn tenants(&self) -> Vec<TenantId> {
        let tenant = |entry: &ScopeEntry| match entry.scope {
            GrantScope::Tenant(id) => Some(id),
            GrantScope::Platform | GrantScope::Namespace(_) | GrantScope::Workspace(_) | GrantScope::Workload(_) => {
                None
            }
        };
        self.entries.iter().filter_map(tenant).collect()
    }

    /// Returns a caller with up to three roles in its tenant and on the platform.
    fn random_caller(&self, random: &mut Random) -> Caller {
        let tenant = *random.one_of(&self.tenants());
        let is_in_tenant = |entry: &&ScopeEntry| entry.position.tenant.is_none_or(|owner| owner == tenant);
        let scopes: Vec<GrantScope> = self.entries.iter().filter(is_in_tenant).map(|entry| entry.scope).collect();
        let count = random.below(4);
        let grants = (0..count).map(|_| {
            let scope = *random.one_of(&scopes);
            let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| role.may_be_bound_at(&scope)).collect();
            Grant::of_role(*random.one_of(&roles), scope)
        });
        Caller {
            tenant,
            actor: ActorRef::parse("user:ada").unwrap(),
            groups: Vec::new(),
            rights: Arc::new(Rights::new(grants.collect())),
            lanes: Arc::new(BoundLanes::default()),
            access_revision: Revision::FIRST,
            request_id: Uuid::nil().into(),
        }
    }
}

/// A question for the model about one operation of one caller, with the decision of this crate.
struct Question {
    operation: Operation,
    line: Value,
    decision: String,
}

impl Question {
    fn random(scope_tree: &ScopeTree, random: &mut Random) -> Self {
        let caller = scope_tree.random_caller(random);
        let operation = *random.one_of(Operation::ALL);
        let entry = random.one_of(&scope_tree.entries);
        let grants = caller.rights.grants().iter().map(|grant| json!([grant.role.as_str(), name(&grant.scope)]));
        let line = json!({
            "tenant": name(&GrantScope::Tenant(caller.tenant)), "grants": grants.collect::<Vec<_>>(),
            "operation": operation.id(), "at": name(&entry.scope),
        });
        let decision = match authorize(&caller, operation, &entry.position) {
            Ok(_) => "allowed".to_owned(),
            Err(Failure::NotFound) => "not found".to_owned(),
            Err(Failure::Forbidden(permission)) => format!("forbidden {}", permission.as_str()),
            Err(other) => format!("{other:?}"),
        };
        Self { operation, line, decision }
    }
}

/// Sends random questions to the model. Returns each question on which the model disagrees, with the model's verdict.
fn disagreements(document: &Path, count: usize, seed: u64) -> Vec<(Question, String)> {
    let scope_tree = ScopeTree::new();
    let mut model = DecisionModel::start(document, &scope_tree.parents);
    let mut random = Random(seed);
    let mut found = Vec::new();
    let (mut operations, mut decisions) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    for start in (0..count).step_by(BATCH) {
        let questions: Vec<Question> =
            (start..count.min(start + BATCH)).map(|_| Question::random(&scope_tree, &mut random)).collect();
        let lines: Vec<Value> = questions.iter().map(|question| question.line.clone()).collect();
        for (question, verdict) in questions.into_iter().zip(model.answer(&lines)) {
            operations.insert(question.operation.id());
            let kind = question.decision.split(' ').next().unwrap().to_owned();
            *decisions.entry(kind).or_default() += 1;
            if question.decision != verdict {
                found.push((question, verdict));
            }
        }
    }
    assert_eq!(operations.len(), Operation::ALL.len(), "some operations were not asked about");
    for kind in ["allowed", "not", "forbidden"] {
        assert!(decisions.get(kind).is_some_and(|times| *times > count / 20), "{decisions:?}");
    }
    found
}

fn seed() -> u64 {
    std::env::var("FAIRWAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn decisions_agree_with_the_independent_model() {
    let seed = seed();
    let found = disagreements(Path::new(DOCUMENT), QUESTIONS[usize::from(is_long())], seed);
    let texts = found.iter().take(20).map(|(question, verdict)| {
        format!("{}\n  decided: {}, documented: {verdict}", question.line, question.decision)
    });
    let texts: Vec<String> = texts.collect();
    assert!(found.is_empty(), "seed {seed}: {} disagreements\n{}", found.len(), texts.join("\n"));
}

/// A temporary copy of `docs/permissions.md` in which one text is replaced.
struct ChangedDocument(PathBuf);

impl ChangedDocument {
    fn with(old: &str, new: &str) -> Self {
        let text = std::fs::read_to_string(DOCUMENT).unwrap();
        assert!(text.contains(old), "{old}");
        let path = std::env::temp_dir().join(format!("fairway-permissions-{}.md", std::process::id()));
        std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
        Self(path)
    }
}

impl Drop for ChangedDocument {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Shows that the model reads the document. Without `execution.kill` for operators, the model disagrees on exactly the
/// operations that require this permission.
#[test]
fn model_follows_the_document() {
    let changed = ChangedDocument::with("`execution.run`, `execution.kill`", "`execution.run`");
    let found = disagreements(&changed.0, QUESTIONS[0], seed());
    assert!(
        found.iter().all(|(question, verdict)| question.decision == "allowed" && verdict == "forbidden execution.kill")
    );
    let operations: BTreeSet<&str> = found.iter().map(|(question, _)| question.operation.id()).collect();
    let expected = ["cancel_execution", "erase_session_memory_of_others", "settle_execution"];
    assert_eq!(operations, BTreeSet::from(expected));
}

#[test]
fn roles_are_bound_at_the_documented_scopes() {
    let scope_tree = ScopeTree::new();
    let mut model = DecisionModel::start(Path::new(DOCUMENT), &scope_tree.parents);
    for role in Role::ALL {
        for entry in &scope_tree.entries {
            let question = json!({ "role": role.as_str(), "scope_kind": entry.scope.kind() });
            let expected = if role.may_be_bound_at(&entry.scope) { "bindable" } else { "too narrow" };
            assert_eq!(model.answer(std::slice::from_ref(&question)), [expected], "{question}");
        }
    }
}
