//! The benchmark scenarios: the requests of their clients, and their baselines.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::baseline_service;
use crate::closed_loop_clients::ClientScript;
use crate::connection::{BenchRequest, get, post, post_bytes, with_header};
use crate::fill_history::StoredRuns;
use crate::fixtures::{CONTESTED_LANE, ENVIRONMENT, Fixtures, WORKSPACE, prompt_content};

/// A benchmark scenario: the requests that all clients send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scenario {
    /// A route without work, which measures HTTP and all middleware.
    Hello,
    /// Reads the active release of a workload.
    ActiveRelease,
    /// Adds a version to an asset.
    VersionCreate,
    /// Moves a release between draft and review.
    Transition,
    /// Activates a release on a lane that another release holds.
    Activation,
    /// Stores a use case as a draft.
    UseCaseCreate,
    /// Stores a use case and then publishes it: two requests with one commit each.
    UseCasePublish,
    /// Lists a page of assets of one kind and state in a workspace, out of 100,000 assets.
    AssetList { page: PageDepth },
    /// Reads the evidence of a run, out of many runs.
    Evidence,
    /// Reads the context lineage of a run, out of many runs.
    Lineage,
    /// Lists a page of runs.
    RunList { filter: RunFilter },
    /// Reads the first page of the audit log.
    AuditList,
    /// Reads the rollback recommendation of a release, based on its last runs.
    Recommendation,
    /// Executes a synchronous run with three steps.
    ExecuteSteps,
    /// Executes a synchronous run as an MCP tool.
    CallTool,
    /// Executes a synchronous run.
    Execute { keys: KeyMode, workloads: WorkloadSpread },
}

/// Whether requests contain a new idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyMode {
    Off,
    On,
}

/// The depth of a page in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageDepth {
    /// The first page.
    First,
    /// The thousandth page, by cursor.
    Thousandth,
}

/// The listed runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunFilter {
    /// The newest runs.
    Newest,
    /// Runs half a million rows deep in the list, or as deep as the list is, by cursor.
    Deep,
    /// The newest failed runs.
    Failed,
}

/// The number of workloads that requests are spread over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkloadSpread {
    One,
    All,
}

/// An operation of the baseline service, with which a scenario is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BaselineOperation {
    /// A point read.
    Read,
    /// A transaction with two inserts.
    Commit,
    /// Two inserts in one statement.
    CommitInOneStatement,
}

impl Scenario {
    /// All scenarios, in the order of the table.
    pub(crate) const ALL: [Scenario; 22] = [
        Scenario::Hello,
        Scenario::ActiveRelease,
        Scenario::VersionCreate,
        Scenario::Transition,
        Scenario::Activation,
        Scenario::UseCaseCreate,
        Scenario::UseCasePublish,
        Scenario::AssetList { page: PageDepth::First },
        Scenario::AssetList { page: PageDepth::Thousandth },
        Scenario::Evidence,
        Scenario::Lineage,
        Scenario::RunList { filter: RunFilter::Newest },
        Scenario::RunList { filter: RunFilter::Deep },
        Scenario::RunList { filter: RunFilter::Failed },
        Scenario::AuditList,
        Scenario::Recommendation,
        Scenario::ExecuteSteps,
        Scenario::CallTool,
        Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One },
        Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::One },
        Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::All },
        Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::All },
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Hello => "hello",
            Scenario::ActiveRelease => "active-release read",
            Scenario::VersionCreate => "version create",
            Scenario::Transition => "transition",
            Scenario::Activation => "activation",
            Scenario::UseCaseCreate => "use case create",
            Scenario::UseCasePublish => "use case create and publish",
            Scenario::AssetList { page: PageDepth::First } => "list of assets, page 1",
            Scenario::AssetList { page: PageDepth::Thousandth } => "list of assets, page 1 000",
            Scenario::Evidence => "evidence graph, flat",
            Scenario::Lineage => "context lineage",
            Scenario::RunList { filter: RunFilter::Newest } => "list of runs, page 1",
            Scenario::RunList { filter: RunFilter::Deep } => "list of runs, page 10 000",
            Scenario::RunList { filter: RunFilter::Failed } => "list of failed runs, page 1",
            Scenario::AuditList => "audit log, page 1",
            Scenario::Recommendation => "rollback recommendation",
            Scenario::ExecuteSteps => "execute, 3 steps",
            Scenario::CallTool => "MCP tool call, 1 workload",
            Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One } => "execute, 1 workload",
            Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::One } => "execute with key, 1 workload",
            Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::All } => "execute, 100 workloads",
            Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::All } => {
                "execute with key, 100 workloads"
            }
        }
    }

    /// The baseline operation that the scenario's target refers to.
    pub(crate) fn baseline(self) -> BaselineOperation {
        match self {
            Scenario::Hello
            | Scenario::ActiveRelease
            | Scenario::AssetList { .. }
            | Scenario::Evidence
            | Scenario::Lineage
            | Scenario::RunList { .. }
            | Scenario::AuditList
            | Scenario::Recommendation => BaselineOperation::Read,
            Scenario::VersionCreate
            | Scenario::Transition
            | Scenario::Activation
            | Scenario::UseCaseCreate
            | Scenario::UseCasePublish
            | Scenario::ExecuteSteps
            | Scenario::CallTool
            | Scenario::Execute { .. } => BaselineOperation::Commit,
        }
    }

    /// Whether the scenario needs the catalogue of assets, which takes a while to create.
    pub(crate) fn needs_catalogue(self) -> bool {
        matches!(self, Scenario::AssetList { .. })
    }

    /// Whether the scenario reads stored runs.
    pub(crate) fn needs_runs(self) -> bool {
        matches!(
            self,
            Scenario::Evidence
                | Scenario::Lineage
                | Scenario::RunList { .. }
                | Scenario::AuditList
                | Scenario::Recommendation
        )
    }

    /// Whether the scenario's data exists. The deep page exists only after a year of runs was stored.
    pub(crate) fn is_available(self, fixtures: &Fixtures) -> bool {
        let deep = || fixtures.stored_runs.as_ref().is_some_and(|stored| stored.deep.is_some());
        self != Scenario::RunList { filter: RunFilter::Deep } || deep()
    }

    /// Creates a script for each client. Clients share no resource except the workload.
    ///
    /// # Errors
    /// When there are more clients than fixtures.
    pub(crate) fn client_scripts(self, fixtures: &Fixtures, clients: usize) -> Result<Vec<ClientScript>> {
        (0..clients).map(|client| self.client_script(fixtures, client, clients)).collect()
    }

    fn client_script(self, fixtures: &Fixtures, client: usize, clients: usize) -> Result<ClientScript> {
        let counter = Rc::clone(&fixtures.counter);
        let number = move || counter.replace(counter.get().wrapping_add(1));
        match self {
            Scenario::Hello => Ok(ClientScript::new(|| get("/healthz"), "\"status\":\"ok\"")),
            Scenario::ActiveRelease => {
                let path = |id: &String| format!("/v1/workloads/{id}/active-release?environment={ENVIRONMENT}");
                let paths = fixtures.workloads.iter().map(|workload| path(&workload.id)).collect();
                let mut paths = Cycle::starting_at(paths, client)?;
                Ok(ClientScript::new(move || get(paths.next()), "\"state\":\"active\""))
            }
            Scenario::VersionCreate => {
                let assets = fixtures.assets.iter().skip(client).step_by(clients);
                let mut paths = Cycle::starting_at(assets.map(|id| format!("/v1/assets/{id}/versions")).collect(), 0)?;
                let next = move || post(paths.next(), &json!({"content": prompt_content(number())}));
                Ok(ClientScript::new(next, "\"checksum\":\"blake3:"))
            }
            Scenario::Transition => {
                let client_drafts = fixtures.drafts.iter().skip(client).step_by(clients);
                let mut drafts = Cycle::starting_at(client_drafts.cloned().collect(), 0)?;
                let next = move || {
                    let draft = drafts.next();
                    post(&format!("/v1/releases/{}/transition", draft.id), &json!({"to_state": draft.toggle_state()}))
                };
                Ok(ClientScript::new(next, "\"previous_state\":"))
            }
            Scenario::Activation => {
                let client_pairs = fixtures.competing_releases.iter().skip(client).step_by(clients);
                let mut competing_releases = Cycle::starting_at(client_pairs.cloned().collect(), 0)?;
                let next = move || {
                    let path = format!("/v1/releases/{}/transition", competing_releases.next().next_release());
                    post(&path, &json!({"to_state": "active", "lane": CONTESTED_LANE}))
                };
                Ok(ClientScript::new(next, "\"lane\":\"guided\""))
            }
            Scenario::UseCaseCreate => {
                let next = move || create_use_case(number());
                Ok(ClientScript::new(next, "\"status\":\"draft\""))
            }
            Scenario::UseCasePublish => Ok(publication_script(number)),
            Scenario::AssetList { page } => asset_list_script(fixtures, page),
            Scenario::Evidence | Scenario::Lineage => evidence_script(self, fixtures, client, clients),
            Scenario::RunList { filter } => run_list_script(fixtures, filter),
            Scenario::AuditList => Ok(ClientScript::new(|| get("/v1/audit/events?limit=50"), "\"leaf_hash\":")),
            Scenario::Recommendation => {
                let path = format!("/v1/releases/{}/rollback-recommendation", stored_runs(fixtures)?.release);
                Ok(ClientScript::new(move || get(&path), "\"recommended\":"))
            }
            Scenario::ExecuteSteps => {
                let path = format!("/v1/workloads/by-slug/{}/execute", fixtures.three_step_workload.slug);
                let next = move || post(&path, &ticket_request(number()));
                Ok(ClientScript::new(next, "\"status\":\"completed\""))
            }
            Scenario::CallTool => call_tool_script(fixtures, number),
            Scenario::Execute { keys, workloads } => execute_script(fixtures, client, keys, workloads, number),
        }
    }
}

fn stored_runs(fixtures: &Fixtures) -> Result<&StoredRuns> {
    fixtures.stored_runs.as_ref().context("no runs were stored")
}

/// The inputs of every workload in the benchmark.
pub(crate) fn ticket_request(number: u64) -> Value {
    json!({"environment": ENVIRONMENT, "inputs": {"text": ticket_text(number)}})
}

fn ticket_text(number: u64) -> String {
    format!("Ticket {number}: I was charged twice for one invoice and want a refund.")
}

impl BaselineOperation {
    pub(crate) const ALL: [BaselineOperation; 3] =
        [BaselineOperation::Read, BaselineOperation::Commit, BaselineOperation::CommitInOneStatement];

    pub(crate) fn name(self) -> &'static str {
        match self {
            BaselineOperation::Read => "baseline: point read",
            BaselineOperation::Commit => "baseline: commit of two inserts",
            BaselineOperation::CommitInOneStatement => "baseline: two inserts in one statement",
        }
    }

    pub(crate) fn client_scripts(self, clients: usize) -> Result<Vec<ClientScript>> {
        (0..clients).map(|client| self.client_script(client)).collect()
    }

    fn client_script(self, client: usize) -> Result<ClientScript> {
        Ok(match self {
            BaselineOperation::Read => {
                let mut paths =
                    Cycle::starting_at((0..baseline_service::ROWS).map(baseline_service::read_path).collect(), client)?;
                ClientScript::new(move || get(paths.next()), "\"state\":\"active\"")
            }
            BaselineOperation::Commit => {
                ClientScript::new(|| post_bytes("/commit", Bytes::from_static(b"{}")), "\"entry_id\":")
            }
            BaselineOperation::CommitInOneStatement => {
                ClientScript::new(|| post_bytes("/commit-cte", Bytes::from_static(b"{}")), "\"entry_id\":")
            }
        })
    }
}

/// An endless cycle of items.
struct Cycle<T> {
    current: T,
    remaining: VecDeque<T>,
}

impl<T> Cycle<T> {
    /// Starts after the item at `start`.
    ///
    /// # Errors
    /// When there are no items.
    fn starting_at(items: Vec<T>, start: usize) -> Result<Cycle<T>> {
        let mut remaining: VecDeque<T> = items.into();
        remaining.rotate_left(start.checked_rem(remaining.len()).unwrap_or(0));
        let current = remaining.pop_front().context("there are more clients than fixtures")?;
        Ok(Cycle { current, remaining })
    }

    fn next(&mut self) -> &T {
        if let Some(next) = self.remaining.pop_front() {
            self.remaining.push_back(std::mem::replace(&mut self.current, next));
        }
        &self.current
    }
}

fn asset_list_script(fixtures: &Fixtures, page: PageDepth) -> Result<ClientScript> {
    let catalogue = fixtures.catalogue.as_ref().context("no catalogue was created")?;
    let path = match page {
        PageDepth::First => catalogue.first.clone(),
        PageDepth::Thousandth => catalogue.thousandth.clone(),
    };
    Ok(ClientScript::new(move || get(&path), "\"asset_kind\":"))
}

fn evidence_script(scenario: Scenario, fixtures: &Fixtures, client: usize, clients: usize) -> Result<ClientScript> {
    let (route, expected_text) = if scenario == Scenario::Evidence {
        ("evidence-graph".to_owned(), "\"policy_decision\":")
    } else {
        (format!("context-lineage?workspace_id={WORKSPACE}"), "\"influence_role\":")
    };
    let path = |id: &String| format!("/v1/executions/{id}/{route}");
    let stored = stored_runs(fixtures)?;
    // Each client starts at a different run. The order of the runs is independent of their age.
    let start = client * stored.executions.len() / clients.max(1);
    let mut paths = Cycle::starting_at(stored.executions.iter().map(path).collect(), start)?;
    Ok(ClientScript::new(move || get(paths.next()), expected_text))
}

fn run_list_script(fixtures: &Fixtures, filter: RunFilter) -> Result<ClientScript> {
    let (path, expected_text) = match filter {
        RunFilter::Newest => (StoredRuns::first_page_path(), "\"execution_id\":"),
        RunFilter::Deep => (stored_runs(fixtures)?.deep.clone().context("no year was stored")?, "\"execution_id\":"),
        RunFilter::Failed => (format!("{}&status=failed", StoredRuns::first_page_path()), "\"status\":\"failed\""),
    };
    Ok(ClientScript::new(move || get(&path), expected_text))
}

/// A request that stores a use case whose assets do not exist yet.
fn create_use_case(number: u64) -> BenchRequest {
    let bundle = json!({
        "name": format!("Bench case {number}"),
        "summary": "Sorts tickets by urgency.",
        "flow": {
            "entry_step": "answer",
            "steps": [
                {
                    "id": "answer", "type": "llm_call", "model_policy": "{{release.model_policy}}",
                    "inputs": {"prompt": "{{release.prompt_template}}", "ticket": "{{trigger.ticket}}"},
                },
                {"id": "done", "type": "return", "output": "{{steps.answer.output}}"},
            ],
        },
        "prompt_template": {"template": format!("Edition {number}. Sort this ticket by urgency: $arg:ticket")},
        "model_policy_ref": "bench-model-policy",
        "connections": [],
    });
    let body = json!({"source_description": "Sort tickets by their urgency.", "bundle": bundle});
    post(&format!("/v1/use-cases?workspace_id={WORKSPACE}"), &body)
}

/// Alternates between storing a use case and publishing it.
fn publication_script(number: impl Fn() -> u64 + 'static) -> ClientScript {
    let draft: Rc<Cell<Option<String>>> = Rc::default();
    let created = Rc::clone(&draft);
    let next = move || match draft.take() {
        Some(id) => post(&format!("/v1/use-cases/{id}/publish?workspace_id={WORKSPACE}"), &json!({})),
        None => create_use_case(number()),
    };
    ClientScript::new(next, "\"use_case_id\":").on_response(move |response| {
        let use_case: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let is_draft = use_case.get("status").and_then(Value::as_str) == Some("draft");
        let id = use_case.get("use_case_id").and_then(Value::as_str).filter(|_| is_draft);
        created.set(id.map(str::to_owned));
    })
}

fn call_tool_script(fixtures: &Fixtures, number: impl Fn() -> u64 + 'static) -> Result<ClientScript> {
    let slug = &fixtures.workloads.first().context("no workload was created")?.slug;
    let tool = format!("run_{}", slug.replace('-', "_"));
    let next = move || {
        let call = json!({"name": tool, "arguments": {"text": ticket_text(number())}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
        let request = post(&format!("/mcp?environment={ENVIRONMENT}"), &message);
        let request = with_header(request, "accept", "application/json, text/event-stream");
        with_header(request, "mcp-protocol-version", "2025-11-25")
    };
    Ok(ClientScript::new(next, "\"status\":\"completed\""))
}

fn execute_script(
    fixtures: &Fixtures,
    client: usize,
    keys: KeyMode,
    workloads: WorkloadSpread,
    number: impl Fn() -> u64 + 'static,
) -> Result<ClientScript> {
    let workload_count = match workloads {
        WorkloadSpread::One => 1,
        WorkloadSpread::All => fixtures.workloads.len(),
    };
    let path = |slug: &String| format!("/v1/workloads/by-slug/{slug}/execute");
    let paths = fixtures.workloads.iter().take(workload_count).map(|workload| path(&workload.slug)).collect();
    let mut paths = Cycle::starting_at(paths, client)?;
    let next = move || {
        let number = number();
        let request = post(paths.next(), &ticket_request(number));
        match keys {
            KeyMode::Off => request,
            KeyMode::On => with_header(request, "idempotency-key", &format!("bench-{number}")),
        }
    };
    Ok(ClientScript::new(next, "\"status\":\"completed\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_repeats_items_in_order() {
        let mut cycle = Cycle::starting_at(vec![1, 2, 3], 4).unwrap();
        let items: Vec<i32> = (0..5).map(|_| *cycle.next()).collect();
        assert_eq!(items, [3, 1, 2, 3, 1]);
        let mut single_item = Cycle::starting_at(vec![7], 9).unwrap();
        assert_eq!([*single_item.next(), *single_item.next()], [7, 7]);
        assert!(Cycle::<u8>::starting_at(Vec::new(), 3).is_err());
    }

    #[test]
    fn scenario_names_are_unique() {
        let mut names: Vec<&str> = Scenario::ALL.iter().map(|row| row.name()).collect();
        names.extend(BaselineOperation::ALL.iter().map(|floor| floor.name()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn keyed_requests_never_repeat_a_key() {
        let fixtures = crate::fixtures::Fixtures {
            workloads: [crate::fixtures::Workload { slug: "w".to_owned(), id: "i".to_owned() }].into(),
            three_step_workload: crate::fixtures::Workload { slug: "s".to_owned(), id: "j".to_owned() },
            stored_runs: None,
            assets: [].into(),
            drafts: [].into(),
            competing_releases: [].into(),
            catalogue: None,
            hidden_resources: crate::fixtures::ResourceIds::default(),
            other_workspace: String::new(),
            other_tenant_resources: crate::fixtures::ResourceIds::default(),
            bindings: crate::fixtures::Bindings::default(),
            counter: Rc::default(),
        };
        let row = Scenario::Execute { keys: KeyMode::On, workloads: WorkloadSpread::One };
        let mut keys: Vec<String> = row
            .client_scripts(&fixtures, 2)
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
