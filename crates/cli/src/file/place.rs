//! Where each value of a YAML document stands, and whether the document can be read at all without harm.
//!
//! Values are read by a library; this looks at the parser's events alone, in front of it, so that aliases that would expand
//! without end, or name what is around them, are refused with their place before anything expands.

use super::{LONGEST, strict::Fault};
use fairway_domain::asset::content::MAX_VALUES;
use saphyr_parser::{Event, Parser, Span, StrInput};
use std::collections::{HashMap, HashSet};

/// Deepest nesting, as for JSON bodies.
const MAX_DEPTH: usize = 64;
/// Most characters that structure flow collections: the parser looks ahead of itself inside of those.
const MAX_INDICATORS: usize = 200_000;

/// What is around the outermost value.
const OUTSIDE: u32 = u32::MAX;

/// Line and column of each value of a document.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the order of the document, so the outermost value is the first.
    stands: Vec<Stand>,
    /// The same by what is around them and the step from there.
    sorted: Vec<u32>,
}

/// Where one value stands. It knows the value around it and the step from there, and not its whole pointer: the pointers
/// of many values below long keys are thousands of times the document.
#[derive(Debug)]
struct Stand {
    around: u32,
    step: Step,
    place: (u32, u32),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Item(u32),
    Member(Box<str>),
}

impl Places {
    /// Walks through the events of a text.
    ///
    /// # Errors
    /// With the first thing for which it is not one document of a bounded size.
    pub(super) fn of(text: &str) -> Result<Self, Fault> {
        let structure = |byte: &u8| matches!(byte, b'[' | b']' | b'{' | b'}' | b',' | b':');
        if text.bytes().filter(|byte| structure(byte)).count() > MAX_INDICATORS {
            return Err(Fault::expansion((1, 1)));
        }
        let events = Parser::new_from_str(text);
        let mut walk = Walk { events, sizes: HashMap::new(), stands: Vec::new(), values: 0, bytes: 0 };
        walk.document()?;
        let stands = walk.stands;
        let mut sorted: Vec<u32> = (0..number_of(stands.len())).collect();
        sorted.sort_by_key(|id| key(&stands, *id));
        Ok(Self { stands, sorted })
    }

    /// The place of a value, or of the nearest one around it.
    pub(super) fn nearest(&self, pointer: &str) -> Option<(u32, u32)> {
        let mut at = 0;
        for step in pointer.split('/').skip(1) {
            let Some(inside) = self.inside(at, step) else { break };
            at = inside;
        }
        stand(&self.stands, at).map(|stand| stand.place)
    }

    /// The value that is one step of a pointer inside of another one.
    fn inside(&self, around: u32, step: &str) -> Option<u32> {
        let found = |step: &Step| {
            let wanted = Some((around, step));
            let index = self.sorted.binary_search_by(|id| key(&self.stands, *id).cmp(&wanted)).ok()?;
            self.sorted.get(index).copied()
        };
        let member = Step::Member(step.replace("~1", "/").replace("~0", "~").into());
        found(&member).or_else(|| found(&Step::Item(step.parse().ok()?)))
    }
}

fn stand(stands: &[Stand], id: u32) -> Option<&Stand> {
    stands.get(usize::try_from(id).ok()?)
}

fn key(stands: &[Stand], id: u32) -> Option<(u32, &Step)> {
    stand(stands, id).map(|stand| (stand.around, &stand.step))
}

/// What a value is with its aliases written out.
#[derive(Clone, Copy)]
struct Size {
    values: usize,
    bytes: usize,
    levels: usize,
}

/// A walk under way. Recursion is as deep as the document, which is bounded.
struct Walk<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// What stands behind an anchor. It gets here once it is whole, so no alias can name what is around it.
    sizes: HashMap<usize, Size>,
    stands: Vec<Stand>,
    values: usize,
    bytes: usize,
}

impl<'t> Walk<'t> {
    fn document(&mut self) -> Result<(), Fault> {
        let mut is_read = false;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::Nothing | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) if is_read => return Ok(()),
                (Event::StreamEnd, span) => return Err(Fault::syntax(place(span))),
                (_, span) if is_read => return Err(Fault::syntax(place(span))),
                (event, span) => {
                    self.node(event, span, (OUTSIDE, Step::Item(0)), 1)?;
                    is_read = true;
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Fault::syntax(number(error.marker().line(), error.marker().col()))),
            None => Err(Fault::syntax((1, 1))),
        }
    }

    /// Walks through one value; says how many levels it is, its aliases written out.
    fn node(
        &mut self,
        event: Event<'t>,
        span: Span,
        (around, step): (u32, Step),
        depth: usize,
    ) -> Result<usize, Fault> {
        let at = place(span);
        if depth > MAX_DEPTH {
            return Err(Fault::too_deep(at));
        }
        let before = (self.values, self.bytes);
        self.spend((1, 0), at)?;
        let own = number_of(self.stands.len());
        self.stands.push(Stand { around, step, place: at });
        let mut levels = 1;
        let anchor = match event {
            Event::Scalar(text, _, anchor, tag) => {
                untagged(tag.is_some(), at)?;
                self.spend((0, text.len()), at)?;
                anchor
            }
            Event::SequenceStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                for index in 0_u32.. {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    levels = levels.max(1 + self.node(event, span, (own, Step::Item(index)), depth + 1)?);
                }
                anchor
            }
            Event::MappingStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                let mut keys = HashSet::new();
                loop {
                    let (event, span) = self.next()?;
                    let key = match event {
                        Event::MappingEnd => break,
                        Event::Scalar(key, _, 0, None) => key,
                        Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                            return Err(Fault::key(place(span)));
                        }
                        Event::Nothing
                        | Event::StreamStart
                        | Event::StreamEnd
                        | Event::DocumentStart(_)
                        | Event::DocumentEnd
                        | Event::SequenceEnd => return Err(Fault::syntax(place(span))),
                    };
                    self.spend((0, key.len()), place(span))?;
                    let step = Step::Member(Box::from(&*key));
                    if !keys.insert(key) {
                        return Err(Fault::repeated(place(span)));
                    }
                    let (event, span) = self.next()?;
                    levels = levels.max(1 + self.node(event, span, (own, step), depth + 1)?);
                }
                anchor
            }
            Event::Alias(anchor) => {
                let size = *self.sizes.get(&anchor).ok_or_else(|| Fault::expansion(at))?;
                if depth + size.levels > MAX_DEPTH {
                    return Err(Fault::too_deep(at));
                }
                self.spend((size.values, size.bytes), at)?;
                levels = size.levels;
                0
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(Fault::syntax(at)),
        };
        if anchor != 0 {
            let size = Size { values: self.values - before.0, bytes: self.bytes - before.1, levels };
            self.sizes.insert(anchor, size);
        }
        Ok(levels)
    }

    fn spend(&mut self, (values, bytes): (usize, usize), at: (u32, u32)) -> Result<(), Fault> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        // What stands around the content is not content, and there is little of it.
        let is_within =
            self.values <= MAX_VALUES + 1_000 && u64::try_from(self.bytes).is_ok_and(|bytes| bytes <= LONGEST);
        if is_within { Ok(()) } else { Err(Fault::expansion(at)) }
    }
}

const fn untagged(tagged: bool, at: (u32, u32)) -> Result<(), Fault> {
    if tagged { Err(Fault::tag(at)) } else { Ok(()) }
}

fn place(span: Span) -> (u32, u32) {
    number(span.start.line(), span.start.col())
}

fn number(line: usize, column: usize) -> (u32, u32) {
    (number_of(line.max(1)), number_of(column).saturating_add(1))
}

fn number_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
