//! Problems of a flow, each with the path to its cause.

use serde_json::{Map, Value};
use std::{borrow::Cow, fmt::Write as _, rc::Rc};

/// The maximum number of reported problems of a flow.
pub(super) const MAX_PROBLEMS: usize = 1_000;
/// The code of the problem that an object has an unknown key.
pub(super) const UNKNOWN_KEY: &str = "unknown_key";

/// A segment of a path in content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Segment {
    /// The member of an object with this key.
    Key(String),
    /// The item of a list at this index.
    Index(usize),
}

/// A problem with the path to its cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LocatedProblem {
    pub(super) path: Vec<Segment>,
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
    /// The keys that the object may have; empty for problems other than an unknown key.
    pub(super) valid_names: &'static [&'static str],
}

impl LocatedProblem {
    /// The path as a JSON pointer (RFC 6901).
    pub(super) fn pointer(&self) -> String {
        self.path.iter().fold(String::new(), |mut pointer, segment| {
            // Writing into a string cannot fail.
            let _ = match segment {
                Segment::Key(key) => write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1")),
                Segment::Index(index) => write!(pointer, "/{index}"),
            };
            pointer
        })
    }
}

/// The path of a value during parsing. Paths share their prefixes in a linked list, because each value has a path and
/// most paths are never reported.
#[derive(Clone, Default)]
pub(super) struct Path(Option<Rc<Link>>);

struct Link {
    parent: Path,
    segment: Segment,
}

impl Path {
    pub(super) fn key(&self, key: &str) -> Self {
        self.with_segment(Segment::Key(key.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with_segment(Segment::Index(index))
    }

    fn with_segment(&self, segment: Segment) -> Self {
        Self(Some(Rc::new(Link { parent: self.clone(), segment })))
    }

    fn segments(&self) -> Vec<Segment> {
        let links = std::iter::successors(self.0.as_deref(), |link| link.parent.0.as_deref());
        let mut segments: Vec<Segment> = links.map(|link| link.segment.clone()).collect();
        segments.reverse();
        segments
    }
}

/// The problems found so far.
#[derive(Default)]
pub(super) struct ProblemList(pub(super) Vec<LocatedProblem>);

impl ProblemList {
    pub(super) fn report(&mut self, path: &Path, code: &'static str, message: &'static str) {
        if self.0.len() < MAX_PROBLEMS {
            let (path, message) = (path.segments(), Cow::Borrowed(message));
            self.0.push(LocatedProblem { path, code, message, valid_names: &[] });
        }
    }

    /// Reports an unknown key, with the keys that the object may have.
    fn unknown_key(&mut self, path: &Path, allowed: &'static [&'static str]) {
        if self.0.len() < MAX_PROBLEMS {
            let message = Cow::Owned(format!("this key is unknown here; the keys are {}", allowed.join(", ")));
            let path = path.segments();
            self.0.push(LocatedProblem { path, code: UNKNOWN_KEY, message, valid_names: allowed });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn missing(&mut self, path: &Path) {
        self.report(path, "missing_key", "a required key is missing");
    }

    pub(super) fn wrong_type(&mut self, path: &Path) {
        self.report(path, "wrong_type", "the value has the wrong type for this key");
    }

    pub(super) fn invalid(&mut self, path: &Path, message: &'static str) {
        self.report(path, "invalid_value", message);
    }

    /// Reads an object, and reports each of its keys that is not allowed.
    pub(super) fn read_object<'v>(
        &mut self,
        value: &'v Value,
        path: &Path,
        allowed: &'static [&'static str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(map) = value.as_object() else {
            self.wrong_type(path);
            return None;
        };
        for key in map.keys().filter(|key| !allowed.contains(&key.as_str())) {
            self.unknown_key(&path.key(key), allowed);
        }
        Some(map)
    }

    pub(super) fn read_text<'v>(&mut self, map: &'v Map<String, Value>, key: &str, path: &Path) -> Option<&'v str> {
        let value = map.get(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong_type(&path.key(key));
        }
        text
    }

    pub(super) fn read_required_text<'v>(
        &mut self,
        map: &'v Map<String, Value>,
        key: &str,
        path: &Path,
    ) -> Option<&'v str> {
        if !map.contains_key(key) {
            self.missing(&path.key(key));
        }
        self.read_text(map, key, path)
    }
}
