//! The attacks: each sends many requests whose memory a client would decide about, and tolerates every refusal.

use super::{
    Random,
    client::{Sent, begin, exchange, get, ignore, patch, post, post_bytes, sip, withhold},
    target::{ROLES, Target, large_interface},
};
use crate::remote::WORKSPACE;
use futures_util::{StreamExt as _, future::join_all, stream};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// Requests that an attack has under way.
const AT_ONCE: usize = 24;
/// How long connections are kept that only hold memory.
const HELD: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attack {
    /// Inputs that the schema of a guardrail refuses in millions of ways.
    ExplodingSchema,
    /// Runs in environments that nobody has released to.
    MadeUpEnvironments,
    /// Workloads with large interfaces, listed by many at once.
    LargeInterfaces,
    /// Large bodies whose last byte never comes.
    WithheldBodies,
    /// Heads that never end.
    WithheldHeads,
    /// Large answers that nobody reads, or a byte at a time.
    SlowReaders,
    /// Streams of events.
    Streams,
    /// Runs with large inputs, each with a key and a session of its own.
    IdempotencyKeys,
    /// Tokens of share links that nobody made.
    ShareTokens,
    /// Visitors of a public workload from ever new addresses.
    ClientAddresses,
    /// Slugs, actors, tenants and workloads that nobody made.
    MadeUpNames,
    /// Large versions of prompts and configurations.
    PromptVersions,
    /// Manifests of tools, and `tools/list`.
    ToolManifests,
    /// Large documents, and questions about them.
    Documents,
    /// Queued runs with large inputs.
    QueuedRuns,
}

impl Attack {
    pub(super) const ALL: [Self; 15] = [
        Self::ExplodingSchema,
        Self::MadeUpEnvironments,
        Self::LargeInterfaces,
        Self::WithheldBodies,
        Self::WithheldHeads,
        Self::SlowReaders,
        Self::Streams,
        Self::IdempotencyKeys,
        Self::ShareTokens,
        Self::ClientAddresses,
        Self::MadeUpNames,
        Self::PromptVersions,
        Self::ToolManifests,
        Self::Documents,
        Self::QueuedRuns,
    ];

    /// One round, `scale` times as large as in the short form.
    pub(super) async fn run(self, target: &Arc<Target>, random: &mut Random, scale: usize) {
        match self {
            Self::ExplodingSchema => exploding_schema(target, scale).await,
            Self::MadeUpEnvironments => made_up_environments(target, random, scale).await,
            Self::LargeInterfaces => large_interfaces(target, random, scale).await,
            Self::WithheldBodies => withheld_bodies(target, random, scale).await,
            Self::WithheldHeads => withheld_heads(target, random, scale).await,
            Self::SlowReaders => slow_readers(target, random, scale).await,
            Self::Streams => streams(target, random, scale).await,
            Self::IdempotencyKeys => idempotency_keys(target, random, scale).await,
            Self::ShareTokens => share_tokens(target, random, scale).await,
            Self::ClientAddresses => client_addresses(target, random, scale).await,
            Self::MadeUpNames => made_up_names(target, random, scale).await,
            Self::PromptVersions => prompt_versions(target, random, scale).await,
            Self::ToolManifests => tool_manifests(target, random, scale).await,
            Self::Documents => documents(target, random, scale).await,
            Self::QueuedRuns => queued_runs(target, random, scale).await,
        }
    }
}

/// A loopback address of many.
pub(super) fn address(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from(0x7F00_0000 | u32::try_from(1 + random.below(0x00FF_FFF0)).unwrap())
}

fn name(random: &mut Random) -> String {
    format!("n{:016x}", random.next())
}

fn role(random: &mut Random) -> String {
    format!("user:{}", ROLES[random.below(ROLES.len())])
}

/// Sends all of these, some at a time, each from an address of its own.
async fn send_all(target: &Arc<Target>, random: &mut Random, sent: Vec<Sent>) {
    let each = sent.into_iter().map(|sent| (address(random), sent)).collect::<Vec<_>>();
    let sending = each.into_iter().map(|(from, sent)| async move { exchange(from, target.address, &sent).await });
    stream::iter(sending).buffer_unordered(AT_ONCE).for_each(|_| async {}).await;
}

/// Opens connections by `open` and keeps those that the server took for a while.
async fn hold(opened: Vec<impl Future<Output = std::io::Result<TcpStream>>>) {
    let mut held: Vec<TcpStream> = join_all(opened).await.into_iter().flatten().collect();
    let until = tokio::time::Instant::now() + HELD;
    while tokio::time::Instant::now() < until {
        sip(&mut held).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn large_inputs(random: &mut Random, bytes: usize) -> Value {
    // A text field takes 32 KiB; what is no field of the form is refused.
    json!({ "environment": "dev", "inputs": { "ticket": name(random).repeat(bytes / 17) } })
}

async fn exploding_schema(target: &Arc<Target>, scale: usize) {
    let Some(guarded) = &target.guarded else { return };
    let numbers: Vec<u8> = vec![1; 300 * scale];
    let ticket = serde_json::to_string(&numbers).unwrap();
    let run = post(guarded.execute(), &json!({ "environment": "dev", "inputs": { "ticket": ticket } }));
    join_all((0..2 * scale).map(|_| target.send(&run))).await;
}

async fn made_up_environments(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let mut sent = Vec::new();
    for _ in 0..150 * scale {
        let body = json!({ "environment": name(random), "inputs": { "ticket": "a refund" } });
        let run = post(target.echo.execute(), &body);
        sent.push(if random.below(2) == 0 { run.actor("user:runtime_user") } else { run });
    }
    send_all(target, random, sent).await;
}

async fn large_interfaces(target: &Arc<Target>, random: &mut Random, scale: usize) {
    for _ in 0..4 * scale {
        let slug = name(random);
        let body = json!({ "slug": slug, "owner_ref": "team:x", "invocation_mode": "form", "workspace_id": WORKSPACE });
        let made = target.send(&post("/v1/workloads", &body).actor("user:author")).await;
        let Some(id) = made.beginning.split("\"workload_id\":\"").nth(1).and_then(|rest| rest.get(..36)) else {
            continue;
        };
        let path = format!("/v1/workloads/{id}");
        let interface = json!({ "interface_config": large_interface("authenticated") });
        target.send(&patch(&path, &interface).actor("user:author")).await;
        // As large as a body may be, and so too large.
        let mut fields = large_interface("authenticated");
        fields["description"] = json!("x".repeat(900_000));
        target.send(&patch(&path, &json!({ "interface_config": fields })).actor("user:author")).await;
    }
    let lists = ["/v1/workloads?limit=200", "/v1/workloads/runtime-enabled?limit=200"];
    let sent = (0..40 * scale).map(|at| get(lists[at % 2]).actor(&role(random))).collect();
    send_all(target, random, sent).await;
}

async fn withheld_bodies(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let large = post(format!("/v1/assets/{}/versions", target.config), &config(random));
    let documents = post_bytes(
        format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", target.knowledge_base),
        large_documents(random, 90_000),
    );
    let run = post(target.echo.execute(), &json!({ "environment": "dev", "inputs": { "x": "x".repeat(1_000_000) } }));
    let actors = ["user:author", "user:viewer", "anonymous", "user:nobody"];
    let mut sent = Vec::new();
    for at in 0..60 * scale {
        let body = [&large, &run, &documents][at % 3];
        sent.push((address(random), body.clone().actor(actors[random.below(actors.len())])));
    }
    hold(sent.iter().map(|(from, sent)| withhold(*from, target.address, sent)).collect()).await;
}

async fn withheld_heads(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let head = format!("GET /v1/workloads HTTP/1.1\r\nHost: {}\r\nX-Long: {}", target.address, "x".repeat(100_000));
    let from: Vec<Ipv4Addr> = (0..200 * scale).map(|_| address(random)).collect();
    hold(from.into_iter().map(|from| begin(from, target.address, head.as_bytes())).collect()).await;
}

async fn slow_readers(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let paths = [
        "/v1/workloads?limit=200".to_owned(),
        "/openapi.json".to_owned(),
        format!("/v1/assets/{}/versions?workspace_id={WORKSPACE}&limit=200", target.config),
        format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200"),
        "/v1/executions?limit=200".to_owned(),
        "/v1/audit/events?limit=200".to_owned(),
    ];
    let sent: Vec<_> = (0..60 * scale).map(|at| (address(random), get(paths[at % paths.len()].as_str()))).collect();
    hold(sent.iter().map(|(from, sent)| ignore(*from, target.address, sent)).collect()).await;
}

async fn streams(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let run = post(target.echo.execute(), &large_inputs(random, 30_000)).header("Accept", "text/event-stream");
    let sent: Vec<_> = (0..100 * scale).map(|_| (address(random), run.clone())).collect();
    hold(sent.iter().map(|(from, sent)| ignore(*from, target.address, sent)).collect()).await;
}

async fn idempotency_keys(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let mut sent = Vec::new();
    for _ in 0..80 * scale {
        let (key, session) = (name(random), name(random));
        let mut body = large_inputs(random, 32_000);
        body["session_id"] = json!(session);
        sent.push(post(target.echo.execute(), &body).actor("user:runtime_user").header("Idempotency-Key", &key));
    }
    send_all(target, random, sent).await;
}

async fn share_tokens(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let mut sent = Vec::new();
    for at in 0..150 * scale {
        let mut token = target.share_token.clone();
        if at % 4 > 0 {
            token.truncate(token.len() - 16);
            token.push_str(&format!("{:016x}", random.next()));
        }
        let path = format!("{}?token={token}", target.shared.execute());
        sent.push(post(path, &body));
    }
    send_all(target, random, sent).await;
}

async fn client_addresses(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    for _ in 0..10 * scale {
        let (from, run) = (address(random), post(target.public.execute(), &body).actor("anonymous"));
        // The rate limit refuses the last of them, and the server remembers that.
        join_all((0..12).map(|_| exchange(from, target.address, &run))).await;
    }
}

async fn made_up_names(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    let mut sent = Vec::new();
    for _ in 0..60 * scale {
        let (slug, actor) = (name(random), format!("user:{}", name(random)));
        let tenant = format!("{:08x}-0000-7000-8000-{:012x}", random.next() >> 32, random.next() >> 16);
        sent.push(get(format!("/v1/workloads/by-slug/{slug}")).actor(&actor));
        sent.push(post(format!("/v1/workloads/by-slug/{slug}/execute"), &body).actor(&actor));
        sent.push(get("/v1/workloads?limit=1").actor(&actor).header("X-Tenant-Id", &tenant));
        let active = format!("/v1/workloads/{}/active-release?environment={slug}", target.echo.id);
        sent.push(get(active).actor(&actor));
        sent.push(get(format!("/v1/workloads/{}/active-release?environment=dev", target.echo.id)).actor(&actor));
        sent.push(get(format!("/v1/workloads/runtime-enabled?q={slug}")).actor(&actor));
    }
    send_all(target, random, sent).await;
}

/// A version as large as one may be.
fn config(random: &mut Random) -> Value {
    let texts: Vec<String> = (0..48_000).map(|_| format!("{:070x}", random.next())).collect();
    json!({ "content": { "provider": "stub", "model": "echo", "params": { "texts": texts } } })
}

async fn prompt_versions(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let path = format!("/v1/assets/{}/versions", target.prompt);
    let mut sent = Vec::new();
    let large = format!("/v1/assets/{}/versions", target.config);
    for _ in 0..6 * scale {
        let prompt = json!({ "content": { "system_prompt": name(random).repeat(3_000) } });
        sent.push(post(path.as_str(), &prompt).actor("user:author"));
        sent.push(post(large.as_str(), &config(random)).actor("user:author"));
    }
    for path in [path, large] {
        let read = format!("{path}?workspace_id={WORKSPACE}&limit=200");
        sent.extend((0..15 * scale).map(|_| get(read.as_str()).actor("user:viewer")));
    }
    send_all(target, random, sent).await;
}

async fn tool_manifests(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let manifest = format!("/v1/runtime/mcp-manifest?workspace_id={WORKSPACE}&limit=200");
    let mut sent = Vec::new();
    for _ in 0..20 * scale {
        sent.push(get(manifest.as_str()).actor(&role(random)));
        let listed = post("/mcp", &list).header("Accept", "application/json, text/event-stream");
        sent.push(listed.header("MCP-Protocol-Version", "2025-11-25").actor("user:operator"));
    }
    send_all(target, random, sent).await;
}

/// Four documents of so many words, which nobody used before.
fn large_documents(random: &mut Random, words: usize) -> Vec<u8> {
    let document = |random: &mut Random| {
        let words: Vec<String> = (0..words).map(|_| format!("{:08x}", random.next() >> 32)).collect();
        json!({ "document_id": name(random), "text": words.join(" ") })
    };
    let documents: Vec<Value> = (0..4).map(|_| document(random)).collect();
    json!({ "documents": documents }).to_string().into_bytes()
}

async fn documents(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", target.knowledge_base);
    let mut sent = Vec::new();
    for _ in 0..scale.min(2) {
        sent.push(post_bytes(path.as_str(), large_documents(random, 20_000 * scale.min(2))).actor("user:author"));
    }
    sent.extend((0..10 * scale).map(|_| get(format!("{path}&limit=200")).actor("user:viewer")));
    send_all(target, random, sent).await;
}

async fn queued_runs(target: &Arc<Target>, random: &mut Random, scale: usize) {
    let path = format!("{}?mode=async", target.echo.execute());
    let mut sent = Vec::new();
    for _ in 0..60 * scale {
        let body = large_inputs(random, 32_000);
        sent.push(post(path.as_str(), &body).actor("user:operator"));
    }
    send_all(target, random, sent).await;
}
