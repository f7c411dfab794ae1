//! One trace from the caller's span to the single statement: what a collector gets of a request.

use crate::{overheard::Overheard, stage::Stage};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_request_is_traced_from_its_caller_to_its_statements() {
    // A log of warnings alone, so that it is not the log that decides.
    let server = Overheard::start("warn").await;
    let stage = Stage::set(&server.client).await;
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a word that nobody else says" } });
    let run = server.client.post(stage.workload.execute_path(), body).header("traceparent", &traceparent).await;
    run.expect(200);
    let version = stage.request("create_asset_version").await.header("traceparent", &traceparent).await;
    version.expect(201);
    let (said, _) = server.end().await;

    let spans: Vec<Span> = said
        .traced
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    let names: BTreeMap<String, &Span> = spans.iter().map(|span| (hex(&span.span_id), span)).collect();
    // What stands above a span, up to the caller's.
    let roots: BTreeSet<&str> = spans
        .iter()
        .map(|span| {
            let mut at = span;
            while let Some(above) = names.get(&hex(&at.parent_span_id)) {
                at = above;
            }
            assert_eq!(hex(&at.parent_span_id), PARENT, "{} has lost its trace", at.name);
            at.name.as_str()
        })
        .collect();
    let routes = ["POST /v1/assets/{asset_id}/versions", "POST /v1/workloads/by-slug/{slug}/execute"];
    assert_eq!(roots, BTreeSet::from(routes));
    let told: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    for call in ["statement", "together", "chat", "artifact put"] {
        assert!(told.contains(call), "{call}: {told:?}");
    }
    let attributes = |span: &Span| format!("{:?}", span.attributes);
    for what in ["accepts of runs", "ends of runs", "new versions"] {
        assert!(spans.iter().any(|span| attributes(span).contains(what)), "{what}");
    }
    assert!(!said.spans.contains("a word that nobody else says"));
}
