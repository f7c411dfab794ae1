//! Where each value of a YAML document stands, and whether the document can be read at all without harm.
//!
//! Values are read by a library; this looks at the parser's events alone, in front of it, so that aliases that would expand
//! without end, or name what is around them, are refused with their place before anything expands.

use super::strict::Fault;
use fairway_domain::asset::content::MAX_VALUES;
use saphyr_parser::{Event, Parser, Span, StrInput};
use std::collections::{BTreeMap, HashMap};

/// Deepest nesting, as for JSON bodies.
const MAX_DEPTH: usize = 64;
/// Most characters that structure flow collections: the parser looks ahead of itself inside of those.
const MAX_INDICATORS: usize = 200_000;

/// Line and column of each value by its JSON pointer.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<String, (u32, u32)>);

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
        let mut walk =
            Walk { events: Parser::new_from_str(text), sizes: HashMap::new(), places: BTreeMap::new(), spent: 0 };
        walk.document()?;
        Ok(Self(walk.places))
    }

    /// The place of a value, or of the nearest one around it.
    pub(super) fn nearest(&self, pointer: &str) -> Option<(u32, u32)> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.0.get(pointer) {
                return Some(*place);
            }
            (pointer, _) = pointer.rsplit_once('/')?;
        }
    }
}

/// A walk under way. Recursion is as deep as the document, which is bounded.
struct Walk<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// How many values stand behind an anchor, aliases written out. One gets here once it is whole, so no alias can name
    /// what is around it.
    sizes: HashMap<usize, (usize, usize)>,
    places: BTreeMap<String, (u32, u32)>,
    spent: usize,
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
                    self.node(event, span, String::new(), 1)?;
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

    /// Walks through one value; says how many values it is and how many levels, its aliases written out.
    fn node(&mut self, event: Event<'t>, span: Span, pointer: String, depth: usize) -> Result<(usize, usize), Fault> {
        let at = place(span);
        if depth > MAX_DEPTH {
            return Err(Fault::too_deep(at));
        }
        let before = self.spent;
        self.spend(1, at)?;
        let mut height = 1;
        self.places.insert(pointer.clone(), at);
        let anchor = match event {
            Event::Scalar(_, _, anchor, tag) => {
                untagged(tag.is_some(), at)?;
                anchor
            }
            Event::SequenceStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                for index in 0_usize.. {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    height = height.max(1 + self.node(event, span, format!("{pointer}/{index}"), depth + 1)?.1);
                }
                anchor
            }
            Event::MappingStart(anchor, tag) => {
                untagged(tag.is_some(), at)?;
                loop {
                    let (event, span) = self.next()?;
                    let key = match event {
                        Event::MappingEnd => break,
                        Event::Scalar(key, _, 0, None) => key.replace('~', "~0").replace('/', "~1"),
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
                    let member = format!("{pointer}/{key}");
                    if self.places.contains_key(&member) {
                        return Err(Fault::repeated(place(span)));
                    }
                    let (event, span) = self.next()?;
                    height = height.max(1 + self.node(event, span, member, depth + 1)?.1);
                }
                anchor
            }
            Event::Alias(anchor) => {
                let (size, levels) = *self.sizes.get(&anchor).ok_or_else(|| Fault::expansion(at))?;
                if depth + levels > MAX_DEPTH {
                    return Err(Fault::too_deep(at));
                }
                self.spend(size, at)?;
                height = levels;
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
        let made = (self.spent - before, height);
        if anchor != 0 {
            self.sizes.insert(anchor, made);
        }
        Ok(made)
    }

    fn spend(&mut self, values: usize, at: (u32, u32)) -> Result<(), Fault> {
        self.spent = self.spent.saturating_add(values);
        // What stands around the content is not content, and there is little of it.
        if self.spent > MAX_VALUES + 1_000 { Err(Fault::expansion(at)) } else { Ok(()) }
    }
}

const fn untagged(tagged: bool, at: (u32, u32)) -> Result<(), Fault> {
    if tagged { Err(Fault::tag(at)) } else { Ok(()) }
}

fn place(span: Span) -> (u32, u32) {
    number(span.start.line(), span.start.col())
}

fn number(line: usize, column: usize) -> (u32, u32) {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    (number(line.max(1)), number(column).saturating_add(1))
}
