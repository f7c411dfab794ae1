//! Validates the rules between the steps of a flow: targets, paths and references.
//!
//! The rules apply to the readable parts of the content, so that all problems are reported at once. The parser already
//! reported the unreadable parts. This module treats an unreadable part as unknown, and reports only problems that
//! exist however the part is corrected.

use super::{
    MAX_STEPS,
    parser::StepType,
    problems::{Path, ProblemList},
    reference::{TextTemplate, ValueReference},
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// The maximum number of steps for the analysis of paths, which needs quadratic space. It exceeds [`MAX_STEPS`], so
/// that flows with somewhat too many steps still report their cycles.
const MAX_ANALYZED_STEPS: usize = 5 * MAX_STEPS;

const TARGET_KEYS: [&str; 3] = ["next", "on_success", "on_failure"];

/// Reports every violated rule between the steps of a flow.
pub(super) fn check(content: &Map<String, Value>, findings: &mut ProblemList) {
    let Some(list) = content.get("steps").and_then(Value::as_array).filter(|list| !list.is_empty()) else { return };
    let steps = StepIndex::build(list, findings);
    let control_flow = ControlFlow::build(content, &steps, findings);
    control_flow.check_paths(findings);
    let inputs = declared_inputs(content);
    for (index, step) in list.iter().enumerate() {
        let reference_check =
            ReferenceCheck { steps: &steps, control_flow: &control_flow, inputs: inputs.as_ref(), index, step };
        reference_check.check(findings);
    }
}

fn step_path(index: usize) -> Path {
    Path::default().key("steps").index(index)
}

fn step_type(step: &Value) -> Option<StepType> {
    StepType::parse(step.get("type")?.as_str()?)
}

/// The inputs that the trigger declares; `None` if the declaration is unreadable.
fn declared_inputs(content: &Map<String, Value>) -> Option<BTreeSet<&str>> {
    let Some(trigger) = content.get("trigger") else { return Some(BTreeSet::new()) };
    match trigger.as_object()?.get("inputs_schema") {
        None => Some(BTreeSet::new()),
        Some(inputs) => Some(inputs.as_object()?.keys().map(String::as_str).collect()),
    }
}

/// The steps of the content by their identifiers.
struct StepIndex<'c> {
    list: &'c [Value],
    /// The position of the step with each identifier; `None` for an identifier that several steps have.
    positions: BTreeMap<&'c str, Option<usize>>,
    /// Whether every step has a readable identifier. If not, an unknown target could name a step whose identifier is
    /// unreadable.
    is_complete: bool,
}

/// The result of looking up a step by its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StepLookup {
    Unique(usize),
    /// Several steps have the identifier, or a step with an unreadable identifier may have it.
    Ambiguous,
    Missing,
}

impl<'c> StepIndex<'c> {
    fn build(list: &'c [Value], findings: &mut ProblemList) -> Self {
        let mut steps = Self { list, positions: BTreeMap::new(), is_complete: true };
        for (index, step) in list.iter().enumerate() {
            let Some(id) = step.get("id").and_then(Value::as_str) else {
                steps.is_complete = false;
                continue;
            };
            if steps.positions.contains_key(id) {
                findings.report(&step_path(index).key("id"), "duplicate_step_id", "another step has this id");
                steps.positions.insert(id, None);
            } else {
                steps.positions.insert(id, Some(index));
            }
        }
        steps
    }

    fn find(&self, id: &str) -> StepLookup {
        match self.positions.get(id) {
            Some(Some(position)) => StepLookup::Unique(*position),
            Some(None) => StepLookup::Ambiguous,
            None if self.is_complete => StepLookup::Missing,
            None => StepLookup::Ambiguous,
        }
    }

    /// The position of the step that a value names; `None` if the step is unknown or ambiguous. An unknown step is
    /// reported as a problem.
    fn target(&self, value: &Value, path: &Path, findings: &mut ProblemList) -> Option<usize> {
        match self.find(value.as_str()?) {
            StepLookup::Unique(position) => Some(position),
            StepLookup::Ambiguous => None,
            StepLookup::Missing => {
                findings.report(path, "unknown_step", "no step has this id");
                None
            }
        }
    }
}

/// The control flow between steps, as far as the content is readable.
#[derive(Default)]
struct ControlFlow {
    entry: Option<usize>,
    /// Edges that exist however the unreadable parts are corrected.
    certain_edges: Vec<Vec<usize>>,
    /// Further edges that exist if the unreadable parts are corrected in a certain way.
    possible_edges: Vec<Vec<usize>>,
    /// Whether an unreadable part could add any edge at all.
    is_open_ended: bool,
    certain_reach: Rc<Reachability>,
    /// Reachability over the certain and possible edges; `None` if any edge may exist.
    possible_reach: Option<Rc<Reachability>>,
}

impl ControlFlow {
    /// Builds the control flow. Reports unknown targets and a missing `return` as problems.
    fn build(content: &Map<String, Value>, steps: &StepIndex<'_>, findings: &mut ProblemList) -> Self {
        let mut control_flow = Self::default();
        if let Some(entry) = content.get("entry_step") {
            control_flow.entry = steps.target(entry, &Path::default().key("entry_step"), findings);
        }
        for (index, step) in steps.list.iter().enumerate() {
            control_flow.add_step(index, step, steps, findings);
        }
        if steps.list.len() <= MAX_ANALYZED_STEPS {
            control_flow.certain_reach = Rc::new(Reachability::from_edges(&control_flow.certain_edges));
            if control_flow.possible_edges.iter().all(Vec::is_empty) {
                control_flow.possible_reach =
                    (!control_flow.is_open_ended).then(|| Rc::clone(&control_flow.certain_reach));
            } else if !control_flow.is_open_ended {
                let edges = control_flow.certain_edges.iter().zip(&control_flow.possible_edges);
                let all_edges: Vec<Vec<usize>> =
                    edges.map(|(certain, possible)| [certain.as_slice(), possible].concat()).collect();
                control_flow.possible_reach = Some(Rc::new(Reachability::from_edges(&all_edges)));
            }
        } else {
            control_flow.certain_edges.clear();
        }
        control_flow
    }

    fn add_step(&mut self, index: usize, step: &Value, steps: &StepIndex<'_>, findings: &mut ProblemList) {
        let (mut certain, mut possible) = (Vec::new(), Vec::new());
        // A step that is not an object could lead to any step once it is corrected. A `return` step leads to no step.
        self.is_open_ended |= !step.is_object();
        let step_type = step_type(step);
        if step_type != Some(StepType::Return) {
            let mut successors = Vec::new();
            for key in TARGET_KEYS {
                let Some(value) = step.get(key) else { continue };
                let target = steps.target(value, &step_path(index).key(key), findings);
                self.is_open_ended |= target.is_none();
                if key == "on_failure" { &mut certain } else { &mut successors }.extend(target);
            }
            match (step.get("next").is_some(), step.get("on_success").is_some()) {
                (true, true) => possible.extend(successors),
                (true, false) | (false, true) => certain.extend(successors),
                (false, false) if index + 1 < steps.list.len() => {
                    if step_type.is_some() { &mut certain } else { &mut possible }.push(index + 1);
                }
                (false, false) if step_type.is_some() => {
                    findings.report(
                        &step_path(index),
                        "path_without_return",
                        "this step is the last one but does not return",
                    );
                }
                (false, false) => {}
            }
        }
        self.certain_edges.push(certain);
        self.possible_edges.push(possible);
    }

    /// Reports unreachable steps, and cycles.
    fn check_paths(&self, findings: &mut ProblemList) {
        let positions = 0..self.certain_edges.len();
        if let (Some(entry), Some(possible_reach)) = (self.entry, &self.possible_reach) {
            for index in positions.clone().filter(|index| !possible_reach.reaches(entry, *index)) {
                findings.report(&step_path(index), "unreachable_step", "no path from the entry step leads here");
            }
        }
        for index in positions.filter(|index| self.is_cyclic(*index)) {
            findings.report(&step_path(index), "cycle", "this step can be reached from itself");
        }
    }

    fn is_cyclic(&self, index: usize) -> bool {
        self.certain_edges.get(index).into_iter().flatten().any(|target| self.certain_reach.reaches(*target, index))
    }

    /// Whether the first step can never run before the second step, however the unreadable parts are corrected.
    fn cannot_precede(&self, first: usize, second: usize) -> bool {
        let disconnected = self.possible_reach.as_ref().is_some_and(|reach| !reach.reaches(first, second));
        disconnected || (self.certain_reach.reaches(second, first) && !self.certain_reach.reaches(first, second))
    }
}

/// Marks the steps that are reachable from a step, including the step itself.
fn reachable(outgoing: &[Vec<usize>], start: usize) -> Vec<bool> {
    let mut reached = vec![false; outgoing.len()];
    let mut pending = vec![start];
    while let Some(index) = pending.pop() {
        if let Some(flag) = reached.get_mut(index)
            && !std::mem::replace(flag, true)
        {
            pending.extend(outgoing.get(index).into_iter().flatten().copied());
        }
    }
    reached
}

/// Whether the second step is reachable from the first, for each pair of steps. Each step reaches itself.
#[derive(Default)]
struct Reachability(Vec<Vec<bool>>);

impl Reachability {
    fn from_edges(outgoing: &[Vec<usize>]) -> Self {
        Self((0..outgoing.len()).map(|index| reachable(outgoing, index)).collect())
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        self.0.get(from).and_then(|row| row.get(to)).copied().unwrap_or(false)
    }
}

/// A step with the data that checking its references needs.
struct ReferenceCheck<'c> {
    steps: &'c StepIndex<'c>,
    control_flow: &'c ControlFlow,
    inputs: Option<&'c BTreeSet<&'c str>>,
    index: usize,
    step: &'c Value,
}

impl ReferenceCheck<'_> {
    /// Reports references to undeclared inputs, to missing steps, and to steps that cannot have run yet.
    fn check(&self, findings: &mut ProblemList) {
        for key in ["inputs", "model_policy", "output"] {
            let Some(value) = self.step.get(key) else { continue };
            // Only the `output` mapping of a step can refer to the step's own output.
            let may_read_own_output = key == "output" && step_type(self.step) != Some(StepType::Return);
            self.check_value(value, &step_path(self.index).key(key), may_read_own_output, findings);
        }
    }

    /// INVARIANT: the recursion terminates, because each call descends one level in a value with limited nesting.
    fn check_value(&self, value: &Value, path: &Path, may_read_own_output: bool, findings: &mut ProblemList) {
        match value {
            Value::String(text) => {
                for reference in TextTemplate::scan(text).flatten() {
                    self.check_reference(&reference, path, may_read_own_output, findings);
                }
            }
            Value::Array(items) => {
                for (item_index, item) in items.iter().enumerate() {
                    self.check_value(item, &path.index(item_index), may_read_own_output, findings);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    self.check_value(member, &path.key(key), may_read_own_output, findings);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn check_reference(
        &self,
        reference: &ValueReference,
        path: &Path,
        may_read_own_output: bool,
        findings: &mut ProblemList,
    ) {
        match reference {
            ValueReference::Trigger { input } => {
                if self.inputs.is_some_and(|inputs| !inputs.contains(input.as_str())) {
                    let message = "a reference names an input that the trigger does not declare";
                    findings.report(path, "unknown_input", message);
                }
            }
            ValueReference::Step { step, .. } => match self.steps.find(step) {
                StepLookup::Missing => {
                    findings.report(path, "unknown_step", "a reference names a step that does not exist")
                }
                StepLookup::Unique(position) => {
                    let is_own = position == self.index;
                    if (is_own && !may_read_own_output)
                        || (!is_own && self.control_flow.cannot_precede(position, self.index))
                    {
                        findings.report(path, "step_not_earlier", "a reference names a step that has not run yet");
                    }
                }
                StepLookup::Ambiguous => {}
            },
            ValueReference::Release { .. } => {}
        }
    }
}
