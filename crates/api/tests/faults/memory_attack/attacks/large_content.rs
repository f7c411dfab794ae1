//! Attacks with large content: versions, documents, embeddings and flows.

use super::{
    super::{
        Random,
        client::{get, post, post_bytes},
        outcome_counts::{Aim, OutcomeCounts},
        target_fixtures::AttackTarget,
    },
    random_name, send_all,
};
use crate::api_client::WORKSPACE;
use serde_json::{Value, json};
use std::sync::Arc;

/// Content of a version near the maximum size.
pub(super) fn large_model_config(random: &mut Random) -> Value {
    let texts: Vec<String> = (0..48_000).map(|_| format!("{:070x}", random.next())).collect();
    json!({ "content": { "provider": "stub", "model": "echo", "params": { "texts": texts } } })
}

pub(super) async fn prompt_versions(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let path = format!("/v1/assets/{}/versions", target.prompt);
    let mut requests = Vec::new();
    let large = format!("/v1/assets/{}/versions", target.config);
    for _ in 0..6 * scale {
        let prompt = json!({ "content": { "system_prompt": random_name(random).repeat(3_000) } });
        requests.push(post(path.as_str(), &prompt).with_actor("user:author").with_aim(Aim::at("prompt version")));
        requests.push(
            post(large.as_str(), &large_model_config(random))
                .with_actor("user:author")
                .with_aim(Aim::at("large version")),
        );
    }
    for path in [path, large] {
        let list = get(format!("{path}?workspace_id={WORKSPACE}&limit=200")).with_actor("user:viewer");
        requests.extend(vec![list.with_aim(Aim::at("list of versions")); 15 * scale]);
    }
    send_all(target, random, requests).await
}

/// Four documents of `words` unique words each.
pub(super) fn large_documents(random: &mut Random, words: usize) -> Vec<u8> {
    let document = |random: &mut Random| {
        let words: Vec<String> = (0..words).map(|_| format!("{:08x}", random.next() >> 32)).collect();
        json!({ "document_id": random_name(random), "text": words.join(" ") })
    };
    let documents: Vec<Value> = (0..4).map(|_| document(random)).collect();
    json!({ "documents": documents }).to_string().into_bytes()
}

pub(super) async fn documents(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", target.knowledge_base);
    let mut requests = Vec::new();
    for _ in 0..scale.min(2) {
        let documents = post_bytes(path.as_str(), large_documents(random, 20_000 * scale.min(2)));
        requests.push(documents.with_actor("user:author").with_aim(Aim::at("large documents")));
    }
    let list = get(format!("{path}&limit=200")).with_actor("user:viewer").with_aim(Aim::at("list of documents"));
    requests.extend(vec![list; 10 * scale]);
    send_all(target, random, requests).await
}

/// Adds documents with embeddings while agents run vector searches on them.
pub(super) async fn vector_documents(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let path = format!("/v1/assets/{}/documents?workspace_id={WORKSPACE}", target.vector_knowledge_base);
    let mut requests = Vec::new();
    for _ in 0..2 * scale {
        let documents = post_bytes(path.as_str(), large_documents(random, 1_500));
        requests.push(documents.with_actor("user:author").with_aim(Aim::at("documents with embeddings")));
    }
    let arguments = json!({ "query": "days of leave", "knowledge_base_slug": target.vector_knowledge_base_slug });
    let body = json!({ "environment": "dev", "inputs": { "ticket": format!("Call: search {arguments}") } });
    let search = post(target.agent.execute_path(), &body).with_aim(Aim::at("vector search").proved_by("thirty days"));
    requests.extend(vec![search; 10 * scale]);
    send_all(target, random, requests).await
}

/// Validates flows at the limits of steps and text, and beyond them.
pub(super) async fn large_flows(target: &Arc<AttackTarget>, random: &mut Random, scale: usize) -> OutcomeCounts {
    let flow = |random: &mut Random, steps: usize, trailing: usize| {
        let text = random_name(random).repeat(50);
        let step = |index: usize| {
            format!(
                "  - id: s{index}\n    type: task\n    action: retrieve_documents\n    inputs: {{ query: '{text}' }}\n"
            )
        };
        let steps: String = (0..steps).map(step).collect();
        let head = "name: Large\ndescription: Has many steps.\ntrigger: { type: api_request, inputs_schema: {} }\n";
        let last_step = "  - { id: done, type: return, output: 'done' }\n";
        json!({ "content_yaml": format!("{head}entry_step: s0\nsteps:\n{steps}{last_step}#{}", "x".repeat(trailing)) })
    };
    let valid = |name: &'static str| Aim::at(name).proved_by("\"valid\":true");
    let invalid = |name: &'static str| Aim::at(name).proved_by("\"valid\":false");
    let kinds = [
        (flow(random, 190, 0), valid("flow with many steps")),
        (flow(random, 1_000, 0), invalid("flow with too many steps")),
        (flow(random, 1, 3_900_000), invalid("flow with a long comment")),
    ];
    let path = |verb: &str| format!("/v1/flows/{}/{verb}?workspace_id={WORKSPACE}", target.flow);
    let validate = |(body, aim): &(Value, Aim)| post(path("validate"), body).with_actor("user:author").with_aim(*aim);
    let mut requests: Vec<_> = (0..30 * scale).map(|index| validate(&kinds[index % kinds.len()])).collect();
    for _ in 0..2 * scale {
        let version = post(path("versions"), &flow(random, 190, 0)).with_actor("user:author");
        requests.push(version.with_aim(Aim::at("version of a large flow")));
    }
    send_all(target, random, requests).await
}
