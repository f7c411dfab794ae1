//! Attacks on the server's memory. Each attack sends many requests whose memory use the client controls, and counts
//! their outcomes.

mod bodies;
mod large_content;
mod large_responses;
mod large_runs;
mod retained_memory;
mod runs;
mod unknown_names;

use super::{
    Random,
    client::{AttackRequest, AttackResponse, exchange, read_byte_from_each, read_responses},
    outcome_counts::OutcomeCounts,
    target_fixtures::{AttackTarget, ROLES},
};
use futures_util::{StreamExt as _, future::join_all, stream};
use serde_json::{Value, json};
use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// Number of concurrent requests of an attack.
const CONCURRENCY: usize = 24;
/// Time for which an attack keeps connections open that occupy memory.
const HOLD_TIME: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Attack {
    /// Inputs for which the schema of a guardrail produces millions of errors.
    ExplodingSchema,
    /// Runs in unknown environments, which have no release.
    UnknownEnvironments,
    /// Concurrent lists of workloads with large interfaces.
    LargeInterfaces,
    /// Small bodies whose parsed values occupy a hundred times their size.
    DenseBodies,
    /// Large bodies whose last byte is never sent.
    WithheldBodies,
    /// Request heads that never end.
    WithheldHeads,
    /// Many requests in one packet.
    PipelinedRequests,
    /// Large responses that the client reads slowly or not at all.
    SlowReaders,
    /// Event streams of runs, which the clients do not read.
    Streams,
    /// Runs with large inputs, each with a unique idempotency key and session.
    IdempotencyKeys,
    /// Unknown tokens of share links.
    ShareTokens,
    /// Requests of visitors to a public workload, from unique addresses.
    ClientAddresses,
    /// Requests with unknown slugs, actors, tenants and workloads.
    UnknownNames,
    /// Large versions of prompts and configurations.
    PromptVersions,
    /// Diffs of large versions.
    VersionDiffs,
    /// The blast radius of an asset that many releases bind.
    BlastRadius,
    /// Verdicts with notes of the maximum length.
    ApprovalNotes,
    /// Tool manifests, and the MCP request `tools/list`.
    ToolManifests,
    /// Large documents, and lists of them.
    Documents,
    /// Documents with embeddings, and vector searches.
    VectorDocuments,
    /// Flows at the size limit and beyond it.
    LargeFlows,
    /// Queued runs with large inputs.
    QueuedRuns,
    /// Queued and synchronous runs that return an input of a megabyte three times.
    CopyingRuns,
    /// Queued and synchronous runs with redacted outputs of a megabyte.
    RedactedRuns,
    /// Concurrent reads of runs with outputs of megabytes.
    LargeOutputs,
    /// Scripts that maximize allocations, output and results.
    Scripts,
    /// Agents that call tools with large results.
    AgentSteps,
    /// Runs that continue without a waiting caller, and runs under review.
    DetachedRuns,
    /// Policies with the maximum number of patterns.
    PolicyPatterns,
    /// Event streams of ended runs.
    EndedStreams,
    /// Evidence graphs of large runs.
    EvidenceGraphs,
    /// Agents with many tools, each with a large schema.
    WideToolSets,
    /// Short lists of one tenant while another tenant causes large work.
    ListsDuringLargeWork,
}

impl Attack {
    pub(super) const ALL: [Self; 33] = [
        Self::ExplodingSchema,
        Self::UnknownEnvironments,
        Self::LargeInterfaces,
        Self::DenseBodies,
        Self::WithheldBodies,
        Self::WithheldHeads,
        Self::PipelinedRequests,
        Self::SlowReaders,
        Self::Streams,
        Self::IdempotencyKeys,
        Self::ShareTokens,
        Self::ClientAddresses,
        Self::UnknownNames,
        Self::PromptVersions,
        Self::VersionDiffs,
        Self::BlastRadius,
        Self::ApprovalNotes,
        Self::ToolManifests,
        Self::Documents,
        Self::VectorDocuments,
        Self::LargeFlows,
        Self::QueuedRuns,
        Self::CopyingRuns,
        Self::RedactedRuns,
        Self::LargeOutputs,
        Self::Scripts,
        Self::AgentSteps,
        Self::DetachedRuns,
        Self::PolicyPatterns,
        Self::EndedStreams,
        Self::EvidenceGraphs,
        Self::WideToolSets,
        Self::ListsDuringLargeWork,
    ];

    /// Runs one round. `scale` multiplies the number of requests of the short form.
    pub(super) async fn run(self, target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
        match self {
            Self::ExplodingSchema => runs::exploding_schema(target, random, scale).await,
            Self::UnknownEnvironments => runs::unknown_environments(target, random, scale).await,
            Self::LargeInterfaces => large_responses::large_interfaces(target, random, scale).await,
            Self::DenseBodies => bodies::dense_bodies(target, random, scale).await,
            Self::WithheldBodies => bodies::withheld_bodies(target, random, scale).await,
            Self::WithheldHeads => bodies::withheld_heads(target, random, scale).await,
            Self::PipelinedRequests => bodies::pipelined_requests(target, random, scale).await,
            Self::SlowReaders => large_responses::slow_readers(target, random, scale).await,
            Self::Streams => runs::streams(target, random, scale).await,
            Self::IdempotencyKeys => runs::idempotency_keys(target, random, scale).await,
            Self::ShareTokens => unknown_names::share_tokens(target, random, scale).await,
            Self::ClientAddresses => unknown_names::client_addresses(target, random, scale).await,
            Self::UnknownNames => unknown_names::unknown_names(target, random, scale).await,
            Self::PromptVersions => large_content::prompt_versions(target, random, scale).await,
            Self::VersionDiffs => large_responses::version_diffs(target, random, scale).await,
            Self::BlastRadius => large_responses::blast_radius(target, random, scale).await,
            Self::ApprovalNotes => large_responses::approval_notes(target, random, scale).await,
            Self::ToolManifests => large_responses::tool_manifests(target, random, scale).await,
            Self::Documents => large_content::documents(target, random, scale).await,
            Self::VectorDocuments => large_content::vector_documents(target, random, scale).await,
            Self::LargeFlows => large_content::large_flows(target, random, scale).await,
            Self::QueuedRuns => runs::queued_runs(target, random, scale).await,
            Self::CopyingRuns => large_runs::copying_runs(target, random, scale).await,
            Self::RedactedRuns => large_runs::redacted_runs(target, random, scale).await,
            Self::LargeOutputs => large_runs::large_outputs(target, random, scale).await,
            Self::Scripts => runs::scripts(target, random, scale).await,
            Self::AgentSteps => runs::agent_steps(target, random, scale).await,
            Self::DetachedRuns => retained_memory::detached_runs(target, random, scale).await,
            Self::PolicyPatterns => retained_memory::policy_patterns(target, random, scale).await,
            Self::EndedStreams => retained_memory::ended_streams(target, random, scale).await,
            Self::EvidenceGraphs => retained_memory::evidence_graphs(target, random, scale).await,
            Self::WideToolSets => retained_memory::wide_tool_sets(target, random, scale).await,
            Self::ListsDuringLargeWork => retained_memory::lists_during_large_work(target, random, scale).await,
        }
    }
}

/// A random loopback address.
pub(super) fn random_address(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from(0x7F00_0000 | u32::try_from(1 + random.below(0x00FF_FFF0)).unwrap())
}

pub(super) fn random_name(random: &mut Random) -> String {
    format!("n{:016x}", random.next())
}

fn random_actor(random: &mut Random) -> String {
    format!("user:{}", ROLES[random.below(ROLES.len())])
}

/// Sends all requests, at most [`CONCURRENCY`] at a time, each from a random address.
async fn send_all(target: &Arc<AttackTarget>, random: &mut Random, requests: Vec<AttackRequest>) -> OutcomeCounts {
    send_concurrently(target, random, requests, CONCURRENCY).await
}

async fn send_concurrently(
    target: &Arc<AttackTarget>,
    random: &mut Random,
    requests: Vec<AttackRequest>,
    at_once: usize,
) -> OutcomeCounts {
    let addressed_requests = requests.into_iter().map(|request| (random_address(random), request)).collect::<Vec<_>>();
    let exchanges = addressed_requests.into_iter().map(|(address, request)| async move {
        let received = exchange(address, target.address, &request).await;
        (request, received)
    });
    let outcomes = stream::iter(exchanges).buffer_unordered(at_once);
    let count = |mut counts: OutcomeCounts, (request, received): (AttackRequest, AttackResponse)| async move {
        counts.count(&request, &received);
        counts
    };
    outcomes.fold(OutcomeCounts::default(), count).await
}

/// Sends one request from the address 127.0.0.1.
async fn send_one(target: &Arc<AttackTarget>, counts: &mut OutcomeCounts, request: AttackRequest) -> AttackResponse {
    let received = target.send(&request).await;
    counts.count(&request, &received);
    received
}

/// Keeps connections open for [`HOLD_TIME`], and returns the first bytes of each response. The bytes are empty if
/// the server has not responded. `None` means that the server closed the connection without a response.
async fn hold_connections(opened: Vec<impl Future<Output = io::Result<TcpStream>>>) -> Vec<Option<Vec<u8>>> {
    let connections = join_all(opened).await;
    let mut connections: Vec<_> =
        connections.into_iter().map(|stream| stream.ok().map(|stream| (stream, Vec::new()))).collect();
    let deadline = tokio::time::Instant::now() + HOLD_TIME;
    while tokio::time::Instant::now() < deadline {
        read_byte_from_each(&mut connections).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    read_responses(&mut connections).await;
    connections.into_iter().map(|connection| connection.map(|(_, bytes)| bytes)).collect()
}

/// Counts open connections by the status of their responses.
fn count_held(requests: &[AttackRequest], first_bytes: Vec<Option<Vec<u8>>>) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for (request, bytes) in requests.iter().zip(first_bytes) {
        counts.count(request, &AttackResponse::parse(&bytes.unwrap_or_default()));
    }
    counts
}

fn large_execute_body(random: &mut Random, bytes: usize) -> Value {
    // A text field accepts at most 32 KiB, and the form refuses unknown fields.
    json!({ "environment": "dev", "inputs": { "ticket": random_name(random).repeat(bytes / 17) } })
}
