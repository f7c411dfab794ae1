//! The rules between the steps of a flow.

use super::{
    Flow, Step, StepKind,
    reading::{Findings, Path},
    reference::Reference,
};
use std::collections::BTreeMap;

/// Where a run can go from a step: indexes into the list of steps.
struct Edges {
    outgoing: Vec<Vec<usize>>,
    entry: usize,
}

/// Notes every broken rule. Rules about paths are checked only once every target exists.
pub(super) fn check(flow: &Flow, findings: &mut Findings) {
    let mut positions = BTreeMap::new();
    let mut sound = true;
    for (index, step) in flow.steps.iter().enumerate() {
        if *positions.entry(step.id.as_str()).or_insert(index) != index {
            findings.note(&at(index).key("id"), "duplicate_step_id", "another step has this id");
            sound = false;
        }
    }
    let edges = edges(flow, &positions, findings);
    let earlier = edges.filter(|_| sound).and_then(|edges| {
        let reach = Reach::of(&edges);
        paths(&edges, &reach, findings).then_some(reach)
    });
    for (index, step) in flow.steps.iter().enumerate() {
        references(flow, index, step, &positions, earlier.as_ref(), findings);
    }
}

fn at(index: usize) -> Path {
    Path::default().key("steps").index(index)
}

/// The targets of every step, or `None` when one of them does not exist.
fn edges(flow: &Flow, positions: &BTreeMap<&str, usize>, findings: &mut Findings) -> Option<Edges> {
    let mut complete = true;
    let mut target = |id: &str, path: &Path, findings: &mut Findings| {
        let found = positions.get(id).copied();
        if found.is_none() {
            findings.note(path, "unknown_step", "no step has this id");
            complete = false;
        }
        found
    };
    let entry = target(&flow.entry_step, &Path::default().key("entry_step"), findings);
    let mut outgoing = Vec::with_capacity(flow.steps.len());
    for (index, step) in flow.steps.iter().enumerate() {
        let mut targets = Vec::new();
        match (&step.kind, &step.on_success) {
            (StepKind::Return { .. }, _) => {}
            (_, Some(successor)) => {
                targets.extend(target(successor.step(), &at(index).key(successor.key()), findings));
            }
            (_, None) if index + 1 < flow.steps.len() => targets.push(index + 1),
            (_, None) => {
                findings.note(&at(index), "path_without_return", "this step is the last one but does not return");
            }
        }
        if let Some(id) = &step.on_failure {
            targets.extend(target(id, &at(index).key("on_failure"), findings));
        }
        outgoing.push(targets);
    }
    let entry = entry?;
    complete.then_some(Edges { outgoing, entry })
}

/// Notes cycles and steps that no path reaches; whether there is no cycle.
fn paths(edges: &Edges, reach: &Reach, findings: &mut Findings) -> bool {
    let mut sound = true;
    let positions = 0..edges.outgoing.len();
    for index in positions.clone().filter(|index| !reach.leads(edges.entry, *index)) {
        findings.note(&at(index), "unreachable_step", "no path from the entry step leads here");
    }
    for index in positions {
        let mut targets = edges.outgoing.get(index).into_iter().flatten();
        if targets.any(|target| reach.leads(*target, index)) {
            findings.note(&at(index), "cycle", "this step can be reached from itself");
            sound = false;
        }
    }
    sound
}

/// Which steps can be reached from one, that one included.
fn reachable(edges: &Edges, from: usize) -> Vec<bool> {
    let mut seen = vec![false; edges.outgoing.len()];
    let mut waiting = vec![from];
    while let Some(index) = waiting.pop() {
        if let Some(mark) = seen.get_mut(index)
            && !std::mem::replace(mark, true)
        {
            waiting.extend(edges.outgoing.get(index).into_iter().flatten().copied());
        }
    }
    seen
}

/// Which steps lead to which, themselves included.
struct Reach(Vec<Vec<bool>>);

impl Reach {
    fn of(edges: &Edges) -> Self {
        Self((0..edges.outgoing.len()).map(|index| reachable(edges, index)).collect())
    }

    fn leads(&self, from: usize, to: usize) -> bool {
        self.0.get(from).and_then(|row| row.get(to)).copied().unwrap_or(false)
    }

    /// Whether one step can run before another.
    fn before(&self, first: usize, second: usize) -> bool {
        first != second && self.leads(first, second)
    }
}

fn references(
    flow: &Flow,
    index: usize,
    step: &Step,
    positions: &BTreeMap<&str, usize>,
    earlier: Option<&Reach>,
    findings: &mut Findings,
) {
    for (key, input, reference) in step.references() {
        let path = input.map_or_else(|| at(index).key(key), |input| at(index).key(key).key(input));
        match reference {
            Reference::Trigger { input } if !flow.trigger.inputs.contains_key(input) => {
                findings.note(&path, "unknown_input", "a reference names an input that the trigger does not declare");
            }
            Reference::Step { step: other, .. } => match positions.get(other.as_str()) {
                None => findings.note(&path, "unknown_step", "a reference names a step that does not exist"),
                // A step's own output is there when its `output` mapping is made, and not before.
                Some(position) if *position == index => {
                    if key != "output" || matches!(step.kind, StepKind::Return { .. }) {
                        findings.note(&path, "step_not_earlier", "a reference names a step that has not run yet");
                    }
                }
                Some(position) => {
                    if earlier.is_some_and(|reach| !reach.before(*position, index)) {
                        findings.note(&path, "step_not_earlier", "a reference names a step that has not run yet");
                    }
                }
            },
            Reference::Trigger { .. } | Reference::Release { .. } => {}
        }
    }
}
