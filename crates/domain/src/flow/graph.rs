//! The rules between the steps of a flow.
//!
//! They are checked over whatever could be read, because whoever wrote the flow wants to hear of everything at once. What
//! could not be read has been told already; here it only means that less is known, and nothing is said that the missing
//! part could make untrue.

use super::{
    MAX_STEPS,
    finding::{Findings, Path},
    reading::StepType,
    reference::{Reference, Text},
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// Most steps between which paths are looked for. A flow with more steps than are allowed is still told of its cycles,
/// one that is no flow at all is not: paths take the square of the steps.
const MAX_CHARTED: usize = 5 * MAX_STEPS;

const TARGETS: [&str; 3] = ["next", "on_success", "on_failure"];

/// Notes every broken rule between the steps of a flow.
pub(super) fn check(content: &Map<String, Value>, findings: &mut Findings) {
    let Some(list) = content.get("steps").and_then(Value::as_array).filter(|list| !list.is_empty()) else { return };
    let steps = Steps::named(list, findings);
    let chart = Chart::of(content, &steps, findings);
    chart.paths(findings);
    let inputs = declared(content);
    for (index, step) in list.iter().enumerate() {
        let scene = Scene { steps: &steps, chart: &chart, inputs: inputs.as_ref(), index, step };
        scene.references(findings);
    }
}

fn at(index: usize) -> Path {
    Path::default().key("steps").index(index)
}

fn form(step: &Value) -> Option<StepType> {
    StepType::parse(step.get("type")?.as_str()?)
}

/// The inputs that the trigger declares, or `None` where they cannot be read.
fn declared(content: &Map<String, Value>) -> Option<BTreeSet<&str>> {
    let Some(trigger) = content.get("trigger") else { return Some(BTreeSet::new()) };
    match trigger.as_object()?.get("inputs_schema") {
        None => Some(BTreeSet::new()),
        Some(inputs) => Some(inputs.as_object()?.keys().map(String::as_str).collect()),
    }
}

/// Which steps there are.
struct Steps<'c> {
    list: &'c [Value],
    /// Where the step of an id stands, or `None` where several have it.
    positions: BTreeMap<&'c str, Option<usize>>,
    /// Whether every step has an id: else any target might be the step without one.
    all_named: bool,
}

/// What an id names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    Step(usize),
    /// One of several steps, or one whose id could not be read.
    Some,
    Nothing,
}

impl<'c> Steps<'c> {
    fn named(list: &'c [Value], findings: &mut Findings) -> Self {
        let mut steps = Self { list, positions: BTreeMap::new(), all_named: true };
        for (index, step) in list.iter().enumerate() {
            let Some(id) = step.get("id").and_then(Value::as_str) else {
                steps.all_named = false;
                continue;
            };
            if steps.positions.contains_key(id) {
                findings.note(&at(index).key("id"), "duplicate_step_id", "another step has this id");
                steps.positions.insert(id, None);
            } else {
                steps.positions.insert(id, Some(index));
            }
        }
        steps
    }

    fn find(&self, id: &str) -> Named {
        match self.positions.get(id) {
            Some(Some(position)) => Named::Step(*position),
            Some(None) => Named::Some,
            None if self.all_named => Named::Nothing,
            None => Named::Some,
        }
    }

    /// The step that a value names, if it is known to name one.
    fn target(&self, value: &Value, path: &Path, findings: &mut Findings) -> Option<usize> {
        match self.find(value.as_str()?) {
            Named::Step(position) => Some(position),
            Named::Some => None,
            Named::Nothing => {
                findings.note(path, "unknown_step", "no step has this id");
                None
            }
        }
    }
}

/// Where a run can go from each step, as far as it is known.
#[derive(Default)]
struct Chart {
    entry: Option<usize>,
    /// Ways that are there, whatever becomes of what could not be read.
    sure: Vec<Vec<usize>>,
    /// Ways that may be there besides.
    perhaps: Vec<Vec<usize>>,
    /// Whether there may be ways from anywhere to anywhere.
    open: bool,
    reach: Rc<Reach>,
    /// With the ways that may be there; `None` where everything may lead anywhere.
    widest: Option<Rc<Reach>>,
}

impl Chart {
    /// Notes targets that do not exist and ends that are none.
    fn of(content: &Map<String, Value>, steps: &Steps<'_>, findings: &mut Findings) -> Self {
        let mut chart = Self::default();
        if let Some(entry) = content.get("entry_step") {
            chart.entry = steps.target(entry, &Path::default().key("entry_step"), findings);
        }
        for (index, step) in steps.list.iter().enumerate() {
            chart.step(index, step, steps, findings);
        }
        if steps.list.len() <= MAX_CHARTED {
            chart.reach = Rc::new(Reach::of(&chart.sure));
            if chart.perhaps.iter().all(Vec::is_empty) {
                chart.widest = (!chart.open).then(|| Rc::clone(&chart.reach));
            } else if !chart.open {
                let both = chart.sure.iter().zip(&chart.perhaps);
                let widest: Vec<Vec<usize>> = both.map(|(sure, perhaps)| [sure.as_slice(), perhaps].concat()).collect();
                chart.widest = Some(Rc::new(Reach::of(&widest)));
            }
        } else {
            chart.sure.clear();
        }
        chart
    }

    fn step(&mut self, index: usize, step: &Value, steps: &Steps<'_>, findings: &mut Findings) {
        let (mut sure, mut perhaps) = (Vec::new(), Vec::new());
        // What is no object could become anything; a `return` leads nowhere, whatever it says.
        self.open |= !step.is_object();
        let form = form(step);
        if form != Some(StepType::Return) {
            let mut successors = Vec::new();
            for key in TARGETS {
                let Some(value) = step.get(key) else { continue };
                let found = steps.target(value, &at(index).key(key), findings);
                self.open |= found.is_none();
                if key == "on_failure" { &mut sure } else { &mut successors }.extend(found);
            }
            match (step.get("next").is_some(), step.get("on_success").is_some()) {
                (true, true) => perhaps.extend(successors),
                (true, false) | (false, true) => sure.extend(successors),
                (false, false) if index + 1 < steps.list.len() => {
                    if form.is_some() { &mut sure } else { &mut perhaps }.push(index + 1);
                }
                (false, false) if form.is_some() => {
                    findings.note(&at(index), "path_without_return", "this step is the last one but does not return");
                }
                (false, false) => {}
            }
        }
        self.sure.push(sure);
        self.perhaps.push(perhaps);
    }

    /// Notes steps that no path reaches, and cycles.
    fn paths(&self, findings: &mut Findings) {
        let positions = 0..self.sure.len();
        if let (Some(entry), Some(widest)) = (self.entry, &self.widest) {
            for index in positions.clone().filter(|index| !widest.leads(entry, *index)) {
                findings.note(&at(index), "unreachable_step", "no path from the entry step leads here");
            }
        }
        for index in positions.filter(|index| self.is_cyclic(*index)) {
            findings.note(&at(index), "cycle", "this step can be reached from itself");
        }
    }

    fn is_cyclic(&self, index: usize) -> bool {
        self.sure.get(index).into_iter().flatten().any(|target| self.reach.leads(*target, index))
    }

    /// Whether one step can never run before another, however what could not be read is mended.
    fn never_before(&self, first: usize, second: usize) -> bool {
        let apart = self.widest.as_ref().is_some_and(|widest| !widest.leads(first, second));
        apart || (self.reach.leads(second, first) && !self.reach.leads(first, second))
    }
}

/// Which steps can be reached from one, that one included.
fn reachable(outgoing: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut seen = vec![false; outgoing.len()];
    let mut waiting = vec![from];
    while let Some(index) = waiting.pop() {
        if let Some(mark) = seen.get_mut(index)
            && !std::mem::replace(mark, true)
        {
            waiting.extend(outgoing.get(index).into_iter().flatten().copied());
        }
    }
    seen
}

/// Which steps lead to which, themselves included.
#[derive(Default)]
struct Reach(Vec<Vec<bool>>);

impl Reach {
    fn of(outgoing: &[Vec<usize>]) -> Self {
        Self((0..outgoing.len()).map(|index| reachable(outgoing, index)).collect())
    }

    fn leads(&self, from: usize, to: usize) -> bool {
        self.0.get(from).and_then(|row| row.get(to)).copied().unwrap_or(false)
    }
}

/// One step, and all that its references can name.
struct Scene<'c> {
    steps: &'c Steps<'c>,
    chart: &'c Chart,
    inputs: Option<&'c BTreeSet<&'c str>>,
    index: usize,
    step: &'c Value,
}

impl Scene<'_> {
    /// Notes the references of the step that name nothing, or something that comes too late.
    fn references(&self, findings: &mut Findings) {
        for key in ["inputs", "model_policy", "output"] {
            let Some(value) = self.step.get(key) else { continue };
            // A step's own output is there when its `output` mapping is made, and not before.
            let sees_own = key == "output" && form(self.step) != Some(StepType::Return);
            self.value(value, (&at(self.index).key(key), sees_own), findings);
        }
    }

    /// INVARIANT: recursion ends, because every call goes one level down in a value of bounded nesting.
    fn value(&self, value: &Value, (path, sees_own): (&Path, bool), findings: &mut Findings) {
        match value {
            Value::String(text) => {
                for reference in Text::scan(text).flatten() {
                    self.reference(&reference, (path, sees_own), findings);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.value(item, (&path.index(at), sees_own), findings);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    self.value(member, (&path.key(key), sees_own), findings);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn reference(&self, reference: &Reference, (path, sees_own): (&Path, bool), findings: &mut Findings) {
        match reference {
            Reference::Trigger { input } => {
                if self.inputs.is_some_and(|inputs| !inputs.contains(input.as_str())) {
                    let message = "a reference names an input that the trigger does not declare";
                    findings.note(path, "unknown_input", message);
                }
            }
            Reference::Step { step, .. } => match self.steps.find(step) {
                Named::Nothing => findings.note(path, "unknown_step", "a reference names a step that does not exist"),
                Named::Step(position) => {
                    let own = position == self.index;
                    if (own && !sees_own) || (!own && self.chart.never_before(position, self.index)) {
                        findings.note(path, "step_not_earlier", "a reference names a step that has not run yet");
                    }
                }
                Named::Some => {}
            },
            Reference::Release { .. } => {}
        }
    }
}
