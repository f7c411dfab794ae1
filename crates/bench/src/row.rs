//! The scenarios: the requests of their clients, and their baselines.

use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::connection::{Ready, get, post, post_bytes, with_header};
use crate::floor;
use crate::furniture::{CONTESTED_LANE, ENVIRONMENT, Fixtures, WORKSPACE, prompt};
use crate::growth::StoredRuns;
use crate::load::Script;

/// A scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Row {
    /// A route without work, which measures HTTP and all middleware.
    Hello,
    /// Reads the active release of a workload.
    ActiveRelease,
    /// Adds a version to an asset.
    VersionCreate,
    /// Moves a release between draft and review.
    Transition,
    /// Activates a release on a lane that another one holds.
    Activation,
    /// Lists a page of assets of one kind and state in a workspace, out of 100,000 assets.
    AssetList { page: Depth },
    /// Reads the evidence of a run, out of many runs.
    Evidence,
    /// Reads the context lineage of a run, out of many runs.
    Lineage,
    /// Lists a page of runs.
    RunList { which: Runs },
    /// Reads the first page of the audit log.
    AuditList,
    /// Reads the rollback recommendation of a release, based on its last runs.
    Recommendation,
    /// Executes a synchronous run with three steps.
    ExecuteSteps,
    /// Executes a synchronous run as an MCP tool.
    CallTool,
    /// Executes a synchronous run.
    Execute { keys: Keys, workloads: Workloads },
}

/// Whether requests carry a fresh idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    Off,
    On,
}

/// The depth of a page in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// The first page.
    First,
    /// The thousandth page, by cursor.
    Thousandth,
}

/// The listed runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// The newest runs.
    Newest,
    /// Runs at a depth of half a million, by cursor, or the deepest that exist.
    Deep,
    /// The newest failed runs.
    Failed,
}

/// The number of workloads that requests are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workloads {
    One,
    All,
}

/// A baseline operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Floor {
    /// A point read.
    Read,
    /// A transaction with two inserts.
    Commit,
    /// The same two inserts in one statement.
    CommitAtOnce,
}

impl Row {
    /// All scenarios, in the order of the table.
    pub(crate) const ALL: [Row; 20] = [
        Row::Hello,
        Row::ActiveRelease,
        Row::VersionCreate,
        Row::Transition,
        Row::Activation,
        Row::AssetList { page: Depth::First },
        Row::AssetList { page: Depth::Thousandth },
        Row::Evidence,
        Row::Lineage,
        Row::RunList { which: Runs::Newest },
        Row::RunList { which: Runs::Deep },
        Row::RunList { which: Runs::Failed },
        Row::AuditList,
        Row::Recommendation,
        Row::ExecuteSteps,
        Row::CallTool,
        Row::Execute { keys: Keys::Off, workloads: Workloads::One },
        Row::Execute { keys: Keys::On, workloads: Workloads::One },
        Row::Execute { keys: Keys::Off, workloads: Workloads::All },
        Row::Execute { keys: Keys::On, workloads: Workloads::All },
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Row::Hello => "hello",
            Row::ActiveRelease => "active-release read",
            Row::VersionCreate => "version create",
            Row::Transition => "transition",
            Row::Activation => "activation",
            Row::AssetList { page: Depth::First } => "list of assets, page 1",
            Row::AssetList { page: Depth::Thousandth } => "list of assets, page 1 000",
            Row::Evidence => "evidence graph, flat",
            Row::Lineage => "context lineage",
            Row::RunList { which: Runs::Newest } => "list of runs, page 1",
            Row::RunList { which: Runs::Deep } => "list of runs, page 10 000",
            Row::RunList { which: Runs::Failed } => "list of failed runs, page 1",
            Row::AuditList => "audit log, page 1",
            Row::Recommendation => "rollback recommendation",
            Row::ExecuteSteps => "execute, 3 steps",
            Row::CallTool => "MCP tool call, 1 workload",
            Row::Execute { keys: Keys::Off, workloads: Workloads::One } => "execute, 1 workload",
            Row::Execute { keys: Keys::On, workloads: Workloads::One } => "execute with key, 1 workload",
            Row::Execute { keys: Keys::Off, workloads: Workloads::All } => "execute, 100 workloads",
            Row::Execute { keys: Keys::On, workloads: Workloads::All } => "execute with key, 100 workloads",
        }
    }

    /// The baseline of the scenario's target.
    pub(crate) fn floor(self) -> Floor {
        match self {
            Row::Hello
            | Row::ActiveRelease
            | Row::AssetList { .. }
            | Row::Evidence
            | Row::Lineage
            | Row::RunList { .. }
            | Row::AuditList
            | Row::Recommendation => Floor::Read,
            Row::VersionCreate
            | Row::Transition
            | Row::Activation
            | Row::ExecuteSteps
            | Row::CallTool
            | Row::Execute { .. } => Floor::Commit,
        }
    }

    /// Whether it needs the catalogue, which takes a while to create.
    pub(crate) fn needs_catalogue(self) -> bool {
        matches!(self, Row::AssetList { .. })
    }

    /// Whether it reads stored runs.
    pub(crate) fn needs_runs(self) -> bool {
        matches!(self, Row::Evidence | Row::Lineage | Row::RunList { .. } | Row::AuditList | Row::Recommendation)
    }

    /// Whether its data exists. The deep page exists only after a year of runs was stored.
    pub(crate) fn is_there(self, furniture: &Fixtures) -> bool {
        let deep = || furniture.grown.as_ref().is_some_and(|grown| grown.deep.is_some());
        self != Row::RunList { which: Runs::Deep } || deep()
    }

    /// A script for each client. Clients contend on nothing except the workload.
    ///
    /// # Errors
    /// When there are more clients than fixtures.
    pub(crate) fn scripts(self, furniture: &Fixtures, clients: usize) -> Result<Vec<Script>> {
        (0..clients).map(|client| self.script(furniture, client, clients)).collect()
    }

    fn script(self, furniture: &Fixtures, client: usize, clients: usize) -> Result<Script> {
        let counter = Rc::clone(&furniture.counter);
        let number = move || counter.replace(counter.get().wrapping_add(1));
        match self {
            Row::Hello => Ok(Script { next: Box::new(|| get("/healthz")), expects: "\"status\":\"ok\"" }),
            Row::ActiveRelease => {
                let path = |id: &String| format!("/v1/workloads/{id}/active-release?environment={ENVIRONMENT}");
                let paths = furniture.workloads.iter().map(|workload| path(&workload.id)).collect();
                let mut paths = Cycle::of(paths, client)?;
                Ok(Script { next: Box::new(move || get(paths.next())), expects: "\"state\":\"active\"" })
            }
            Row::VersionCreate => {
                let own = furniture.assets.iter().skip(client).step_by(clients);
                let mut paths = Cycle::of(own.map(|id| format!("/v1/assets/{id}/versions")).collect(), 0)?;
                let next = move || post(paths.next(), &json!({"content": prompt(number())}));
                Ok(Script { next: Box::new(next), expects: "\"checksum\":\"blake3:" })
            }
            Row::Transition => {
                let own = furniture.drafts.iter().skip(client).step_by(clients);
                let mut drafts = Cycle::of(own.cloned().collect(), 0)?;
                let next = move || {
                    let draft = drafts.next();
                    post(&format!("/v1/releases/{}/transition", draft.id), &json!({"to_state": draft.toggle()}))
                };
                Ok(Script { next: Box::new(next), expects: "\"previous_state\":" })
            }
            Row::Activation => {
                let own = furniture.rivals.iter().skip(client).step_by(clients);
                let mut rivals = Cycle::of(own.cloned().collect(), 0)?;
                let next = move || {
                    let path = format!("/v1/releases/{}/transition", rivals.next().next());
                    post(&path, &json!({"to_state": "active", "lane": CONTESTED_LANE}))
                };
                Ok(Script { next: Box::new(next), expects: "\"lane\":\"guided\"" })
            }
            Row::AssetList { page } => {
                let catalogue = furniture.catalogue.as_ref().context("no catalogue was created")?;
                let path = match page {
                    Depth::First => catalogue.first.clone(),
                    Depth::Thousandth => catalogue.thousandth.clone(),
                };
                Ok(Script { next: Box::new(move || get(&path)), expects: "\"asset_kind\":" })
            }
            Row::Evidence | Row::Lineage => {
                let (route, expects) = if self == Row::Evidence {
                    ("evidence-graph".to_owned(), "\"policy_decision\":")
                } else {
                    (format!("context-lineage?workspace_id={WORKSPACE}"), "\"influence_role\":")
                };
                let path = |id: &String| format!("/v1/executions/{id}/{route}");
                let grown = grown(furniture)?;
                // Each client starts at a different run; the order is independent of age.
                let start = client * grown.executions.len() / clients.max(1);
                let mut paths = Cycle::of(grown.executions.iter().map(path).collect(), start)?;
                Ok(Script { next: Box::new(move || get(paths.next())), expects })
            }
            Row::RunList { which } => {
                let (path, expects) = match which {
                    Runs::Newest => (StoredRuns::first(), "\"execution_id\":"),
                    Runs::Deep => (grown(furniture)?.deep.clone().context("no year was stored")?, "\"execution_id\":"),
                    Runs::Failed => (format!("{}&status=failed", StoredRuns::first()), "\"status\":\"failed\""),
                };
                Ok(Script { next: Box::new(move || get(&path)), expects })
            }
            Row::AuditList => {
                Ok(Script { next: Box::new(|| get("/v1/audit/events?limit=50")), expects: "\"leaf_hash\":" })
            }
            Row::Recommendation => {
                let path = format!("/v1/releases/{}/rollback-recommendation", grown(furniture)?.release);
                Ok(Script { next: Box::new(move || get(&path)), expects: "\"recommended\":" })
            }
            Row::ExecuteSteps => {
                let path = format!("/v1/workloads/by-slug/{}/execute", furniture.steps.slug);
                let next = move || post(&path, &ticket(number()));
                Ok(Script { next: Box::new(next), expects: "\"status\":\"completed\"" })
            }
            Row::CallTool => {
                let slug = &furniture.workloads.first().context("no workload was created")?.slug;
                let tool = format!("run_{}", slug.replace('-', "_"));
                let next = move || {
                    let call = json!({"name": tool, "arguments": {"text": ticket_text(number())}});
                    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
                    let request = post(&format!("/mcp?environment={ENVIRONMENT}"), &message);
                    let request = with_header(request, "accept", "application/json, text/event-stream");
                    with_header(request, "mcp-protocol-version", "2025-11-25")
                };
                Ok(Script { next: Box::new(next), expects: "\"status\":\"completed\"" })
            }
            Row::Execute { keys, workloads } => {
                let taken = match workloads {
                    Workloads::One => 1,
                    Workloads::All => furniture.workloads.len(),
                };
                let path = |slug: &String| format!("/v1/workloads/by-slug/{slug}/execute");
                let paths = furniture.workloads.iter().take(taken).map(|workload| path(&workload.slug)).collect();
                let mut paths = Cycle::of(paths, client)?;
                let next = move || {
                    let number = number();
                    let request = post(paths.next(), &ticket(number));
                    match keys {
                        Keys::Off => request,
                        Keys::On => with_header(request, "idempotency-key", &format!("bench-{number}")),
                    }
                };
                Ok(Script { next: Box::new(next), expects: "\"status\":\"completed\"" })
            }
        }
    }
}

fn grown(furniture: &Fixtures) -> Result<&StoredRuns> {
    furniture.grown.as_ref().context("no runs were stored")
}

/// The inputs of every workload in the benchmark.
pub(crate) fn ticket(number: u64) -> Value {
    json!({"environment": ENVIRONMENT, "inputs": {"text": ticket_text(number)}})
}

fn ticket_text(number: u64) -> String {
    format!("Ticket {number}: I was charged twice for one invoice and want a refund.")
}

impl Floor {
    pub(crate) const ALL: [Floor; 3] = [Floor::Read, Floor::Commit, Floor::CommitAtOnce];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Floor::Read => "baseline: point read",
            Floor::Commit => "baseline: commit of two inserts",
            Floor::CommitAtOnce => "baseline: two inserts in one statement",
        }
    }

    pub(crate) fn scripts(self, clients: usize) -> Result<Vec<Script>> {
        (0..clients).map(|client| self.script(client)).collect()
    }

    fn script(self, client: usize) -> Result<Script> {
        let (next, expects): (Box<dyn FnMut() -> Ready>, _) = match self {
            Floor::Read => {
                let mut paths = Cycle::of((0..floor::ROWS).map(floor::path_of).collect(), client)?;
                (Box::new(move || get(paths.next())), "\"state\":\"active\"")
            }
            Floor::Commit => (Box::new(|| post_bytes("/commit", Bytes::from_static(b"{}"))), "\"entry_id\":"),
            Floor::CommitAtOnce => (Box::new(|| post_bytes("/commit-cte", Bytes::from_static(b"{}"))), "\"entry_id\":"),
        };
        Ok(Script { next, expects })
    }
}

/// An endless cycle of items.
struct Cycle<T> {
    now: T,
    others: VecDeque<T>,
}

impl<T> Cycle<T> {
    /// Starts after the item at `start`.
    ///
    /// # Errors
    /// When there are no items.
    fn of(things: Vec<T>, start: usize) -> Result<Cycle<T>> {
        let mut others: VecDeque<T> = things.into();
        others.rotate_left(start.checked_rem(others.len()).unwrap_or(0));
        let now = others.pop_front().context("there are more clients than fixtures")?;
        Ok(Cycle { now, others })
    }

    fn next(&mut self) -> &T {
        if let Some(next) = self.others.pop_front() {
            self.others.push_back(std::mem::replace(&mut self.now, next));
        }
        &self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_repeats_items_in_order() {
        let mut turns = Cycle::of(vec![1, 2, 3], 4).unwrap();
        let taken: Vec<i32> = (0..5).map(|_| *turns.next()).collect();
        assert_eq!(taken, [3, 1, 2, 3, 1]);
        let mut one = Cycle::of(vec![7], 9).unwrap();
        assert_eq!([*one.next(), *one.next()], [7, 7]);
        assert!(Cycle::<u8>::of(Vec::new(), 3).is_err());
    }

    #[test]
    fn scenario_names_are_unique() {
        let mut names: Vec<&str> = Row::ALL.iter().map(|row| row.name()).collect();
        names.extend(Floor::ALL.iter().map(|floor| floor.name()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn keyed_requests_never_repeat_a_key() {
        let furniture = crate::furniture::Fixtures {
            workloads: [crate::furniture::Workload { slug: "w".to_owned(), id: "i".to_owned() }].into(),
            steps: crate::furniture::Workload { slug: "s".to_owned(), id: "j".to_owned() },
            grown: None,
            assets: [].into(),
            drafts: [].into(),
            rivals: [].into(),
            catalogue: None,
            home: crate::furniture::ResourceIds::default(),
            next_door: String::new(),
            abroad: crate::furniture::ResourceIds::default(),
            parts: crate::furniture::Parts::default(),
            counter: Rc::default(),
        };
        let row = Row::Execute { keys: Keys::On, workloads: Workloads::One };
        let mut keys: Vec<String> = row
            .scripts(&furniture, 2)
            .unwrap()
            .iter_mut()
            .flat_map(|script| [(script.next)(), (script.next)()])
            .map(|request| request.headers()["idempotency-key"].to_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }
}
