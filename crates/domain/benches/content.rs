//! Measures the time to check and render content, in microseconds: `cargo bench -p fairway-domain --bench
//! content`.
//!
//! Each run is timed individually and recorded in a histogram, because a mean hides the tail latency. A row whose
//! target is a 99th percentile is run a million times. The program measures a single thread. A missed target is
//! printed, but does not fail the benchmark.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a benchmark reads the clock, prints its results and panics if its own input is invalid"
)]

use fairway_domain::{
    asset::{canonical::Canonical, kind::AssetKind},
    flow,
    policy::{CompiledPolicy, PolicyActor, PolicyInput, PolicyRelease, PolicyWorkload},
    prompt::{PromptTemplate, composition::IncludedBody},
    time::Timestamp,
};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::{hint::black_box, time::Instant};

const WARM_UP: u32 = 1_000;
const RUNS: u32 = 100_000;
const RUNS_FOR_A_TAIL: u32 = 1_000_000;
/// The longest time that the histogram distinguishes, in nanoseconds. Longer times count as this time.
const MAX_NANOS: u64 = 60_000_000_000;

/// The target of a row, in microseconds: the statistic that is compared, and its upper bound.
#[derive(Clone, Copy)]
enum Target {
    /// The median must be below this time.
    Median(f64),
    /// The 99th percentile must be below this time.
    Tail(f64),
}

fn main() {
    println!("| operation | iterations | mean µs | median µs | p99 µs | target | |");
    println!("|---|--:|--:|--:|--:|--:|---|");
    canonical();
    policy();
    prompt();
    flow();
}

fn row(label: &str, runs: u32, target: Target, mut operation: impl FnMut()) {
    for _ in 0..WARM_UP {
        operation();
    }
    let mut durations: Histogram<u64> = Histogram::new_with_bounds(1, MAX_NANOS, 3).expect("the bounds are in order");
    for _ in 0..runs {
        let started_at = Instant::now();
        operation();
        durations.saturating_record(u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    #[expect(clippy::cast_precision_loss, reason = "a percentile of nanoseconds is far below 2^53")]
    let micros = |nanos: u64| nanos as f64 / 1_000.0;
    let (median, tail) = (micros(durations.value_at_quantile(0.5)), micros(durations.value_at_quantile(0.99)));
    let (name, measured, limit) = match target {
        Target::Median(limit) => ("median", median, limit),
        Target::Tail(limit) => ("p99", tail, limit),
    };
    let verdict = if measured < limit { "met" } else { "missed" };
    let mean = durations.mean() / 1_000.0;
    println!("| {label} | {runs} | {mean:.1} | {median:.1} | {tail:.1} | {name} < {limit} | {verdict} |");
}

/// Measures ten KiB of realistic content: nested objects of mixed types, with keys out of order.
fn canonical() {
    let entry = |index: usize| {
        json!({
            "slug": format!("asset-{index}"), "enabled": index.is_multiple_of(2), "weight": f64::from(u8::try_from(index).unwrap_or(0)) / 7.0,
            "count": index * 1_000, "tags": ["gold", "für alle", "line\nbreak"],
            "nested": { "z": null, "a": { "text": "A sentence of about fifty characters, as usual.", "n": -1.5e-7 } },
        })
    };
    let mut content = json!({ "description": "x", "items": [] });
    let mut length = 0;
    for index in 0.. {
        if let Some(items) = content.get_mut("items").and_then(Value::as_array_mut) {
            items.push(entry(index));
        }
        length = Canonical::of(&content).expect("the content is canonical").bytes().len();
        if length >= 10 << 10 {
            break;
        }
    }
    let label =
        format!("canonical JSON and checksum of {:.1} KiB", f64::from(u32::try_from(length).unwrap_or(0)) / 1024.0);
    row(&label, RUNS, Target::Median(60.0), || {
        black_box(Canonical::of(black_box(&content)).is_ok());
    });
}

/// Measures a policy of a hundred rules. Each rule has two comparisons and one membership test, and all conditions are
/// evaluated. The ten inputs are converted anew for each decision. In the second row, each condition ends with a
/// comparison of a fraction with a whole number, which only the interpreter can evaluate.
fn policy() {
    decisions("policy of 100 rules, 10 inputs", "", Target::Tail(100.0));
    decisions("the same, by the interpreter", " || inputs.score == 1", Target::Tail(1_000.0));
}

fn decisions(label: &str, extra_condition: &str, target: Target) {
    let rules: Vec<Value> = (0..100)
        .map(|index| {
            let condition = format!(
                "(inputs.amount > {index} && inputs.country == 'de' && \
                 inputs.tier in ['basic', 'plus', 'team-{index}']){extra_condition}"
            );
            json!({ "id": format!("r{index}"), "condition": condition, "outcome": "allow", "reason_code": "fits" })
        })
        .collect();
    let policy = CompiledPolicy::compile(&json!({ "rules": rules })).expect("the bundle is sound");
    let inputs = json!({
        "amount": 1_000, "country": "de", "tier": "team-50", "ticket": "I was charged twice for the same invoice.",
        "urgent": false, "score": 0.75, "channel": "mail", "language": "de", "customer": "c-1029", "tags": ["a", "b"],
    });
    let Value::Object(inputs) = inputs else { return };
    let groups = ["support".to_owned(), "billing".to_owned()];
    let roles = ["runtime_user".to_owned()];
    let input = PolicyInput {
        actor: PolicyActor { reference: "user:ada", kind: "user", groups: &groups, roles: &roles },
        workload: PolicyWorkload { slug: "sorter", owner_ref: "team:support", workload_id: "0190f000" },
        release: PolicyRelease { release_id: "0190f001", state: "active", environment: "production" },
        inputs: &inputs,
        environment: "production",
        lane: "standard",
        now: Timestamp::new(time::macros::datetime!(2026-11-21 12:00 UTC)),
    };
    assert_eq!(policy.decide(&input).matched_rules, ["r50"], "all conditions are evaluated");
    row(label, RUNS_FOR_A_TAIL, target, || {
        black_box(policy.decide(black_box(&input)));
    });
}

/// Measures a prompt of eight KiB with three included assets and ten arguments.
fn prompt() {
    let line = "You sort tickets by what they ask for, and you never promise anything to anybody.\n";
    let variables: Vec<Value> = (0..10).map(|index| json!({ "name": format!("v{index}") })).collect();
    let mut text = line.repeat((8 << 10) / line.len());
    for index in 0..10 {
        text.push_str(&format!("Field {index}: $arg:v{index}\n"));
    }
    text.push_str("@asset-ref:tone @asset-ref:terms@v2 @asset-ref:safety");
    let template = PromptTemplate::parse(&json!({ "system_prompt": text, "variables": variables }));
    let body = json!({ "body": line.repeat(6) });
    let prompt = template
        .and_then(|template| template.compose(|_| IncludedBody::of(AssetKind::Skill, &body).ok()))
        .expect("the prompt is sound");
    let arguments: Map<String, Value> =
        (0..10).map(|index| (format!("v{index}"), json!("a value of some length, as people write them"))).collect();
    row("rendering a prompt of 8 KiB, 3 references, 10 arguments", RUNS, Target::Median(50.0), || {
        black_box(prompt.render(black_box(&arguments)).is_ok());
    });
}

/// Measures the path from YAML to a validated flow of a hundred steps with branches, inputs and references.
fn flow() {
    let mut text =
        "name: long\ntrigger: {type: api_request, inputs_schema: {ticket: string}}\nentry_step: s0\nsteps:\n"
            .to_owned();
    for index in 0..98 {
        let earlier =
            if index == 0 { "{{trigger.ticket}}".to_owned() } else { format!("{{{{steps.s{}.output}}}}", index - 1) };
        text.push_str(&format!(
            "  - id: s{index}\n    type: llm_call\n    model_policy: '{{{{release.model_policy}}}}'\n    inputs:\n      \
             prompt: '{{{{release.prompt_template}}}}'\n      message: '{earlier}'\n    on_failure: failed\n"
        ));
    }
    text.push_str("  - {id: done, type: return, output: '{{steps.s97.output}}'}\n");
    text.push_str("  - {id: failed, type: return, output: 'it failed'}\n");
    assert_eq!(flow::parse_yaml(&text).map(|flow| flow.steps().len()), Ok(100));
    row("validating a flow of 100 steps", RUNS / 10, Target::Median(3_000.0), || {
        black_box(flow::parse_yaml(black_box(&text)).is_ok());
    });
}
