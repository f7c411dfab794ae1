//! Records the positions of all values in a YAML document, and checks that its aliases are safe to expand.
//!
//! The check reads only the parser's events, before the YAML library builds values. It refuses recursive and
//! exponentially expanding aliases, and reports their position.

use super::{MAX_FILE_BYTES, strict_parsers::Fault};
use crate::failure::Position;
use fairway_domain::asset::content::MAX_VALUES;
use saphyr_parser::{Event, Parser, Span, StrInput};
use std::collections::{HashMap, HashSet};

/// Maximum nesting depth, which equals that of JSON request bodies.
const MAX_DEPTH: usize = 64;
/// Maximum number of flow-collection indicators such as `[`. The limit bounds the parser's
/// look-ahead within flow collections.
const MAX_INDICATORS: usize = 200_000;

/// The parent id of the outermost value.
const ROOT_PARENT: u32 = u32::MAX;

/// Line and column of each value in a document.
#[derive(Debug, Default)]
pub(super) struct SourceSpans {
    /// Positions in document order; the first is that of the outermost value.
    spans: Vec<ValueSpan>,
    /// Indexes into `spans`, sorted by parent and step, for binary search.
    sorted: Vec<u32>,
}

/// The position of one value. It stores the parent and the last step instead of the whole JSON pointer. Pointers that
/// repeat long keys could need thousands of times the document's size.
#[derive(Debug)]
struct ValueSpan {
    parent: u32,
    step: Step,
    position: Position,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Item(u32),
    Member(Box<str>),
}

impl SourceSpans {
    /// Reads the parser events of a text.
    ///
    /// # Errors
    /// When the text violates a limit or has a syntax error; the fault is the first one.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let is_indicator = |byte: &u8| matches!(byte, b'[' | b']' | b'{' | b'}' | b',' | b':');
        if text.bytes().filter(|byte| is_indicator(byte)).count() > MAX_INDICATORS {
            return Err(Fault::expansion(Position::START));
        }
        let events = Parser::new_from_str(text);
        let mut walker = EventWalker { events, sizes: HashMap::new(), spans: Vec::new(), values: 0, bytes: 0 };
        walker.document()?;
        let spans = walker.spans;
        let mut sorted: Vec<u32> = (0..to_u32(spans.len())).collect();
        sorted.sort_by_key(|id| sort_key(&spans, *id));
        Ok(Self { spans, sorted })
    }

    /// The position of a value, or of its nearest existing ancestor.
    pub(super) fn nearest(&self, pointer: &str) -> Option<Position> {
        let mut current = 0;
        for step in pointer.split('/').skip(1) {
            let Some(child) = self.child(current, step) else { break };
            current = child;
        }
        span_of(&self.spans, current).map(|span| span.position)
    }

    /// The child of a value at one pointer step.
    fn child(&self, parent: u32, step: &str) -> Option<u32> {
        let find = |step: &Step| {
            let key = Some((parent, step));
            let index = self.sorted.binary_search_by(|id| sort_key(&self.spans, *id).cmp(&key)).ok()?;
            self.sorted.get(index).copied()
        };
        let member = Step::Member(step.replace("~1", "/").replace("~0", "~").into());
        find(&member).or_else(|| find(&Step::Item(step.parse().ok()?)))
    }
}

fn span_of(spans: &[ValueSpan], id: u32) -> Option<&ValueSpan> {
    spans.get(usize::try_from(id).ok()?)
}

fn sort_key(spans: &[ValueSpan], id: u32) -> Option<(u32, &Step)> {
    span_of(spans, id).map(|span| (span.parent, &span.step))
}

/// The size of a value after the expansion of its aliases.
#[derive(Clone, Copy)]
struct ExpandedSize {
    values: usize,
    bytes: usize,
    levels: usize,
}

/// Walks the parser's events. The recursion depth is that of the document, which [`MAX_DEPTH`] limits.
struct EventWalker<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// The size of each anchored value. An entry is added after its value is complete, so an alias to its own ancestor
    /// is refused as unknown.
    sizes: HashMap<usize, ExpandedSize>,
    spans: Vec<ValueSpan>,
    values: usize,
    bytes: usize,
}

impl<'t> EventWalker<'t> {
    fn document(&mut self) -> Result<(), Fault> {
        let mut has_document = false;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::Nothing | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) if has_document => return Ok(()),
                (Event::StreamEnd, span) => return Err(Fault::empty(start_position(span))),
                (_, span) if has_document => return Err(Fault::second_document(start_position(span))),
                (event, span) => {
                    self.visit(event, span, ROOT_PARENT, Step::Item(0), 1)?;
                    has_document = true;
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Fault::syntax(line_column(error.marker().line(), error.marker().col()))),
            None => Err(Fault::empty(Position::START)),
        }
    }

    /// Visits one value, and returns its depth after the expansion of aliases.
    fn visit(&mut self, event: Event<'t>, span: Span, parent: u32, step: Step, depth: usize) -> Result<usize, Fault> {
        let position = start_position(span);
        if depth > MAX_DEPTH {
            return Err(Fault::too_deep(position));
        }
        let start_counts = (self.values, self.bytes);
        self.count_expansion(1, 0, position)?;
        let id = to_u32(self.spans.len());
        self.spans.push(ValueSpan { parent, step, position });
        let mut levels = 1;
        let anchor = match event {
            Event::Scalar(text, _, anchor, tag) => {
                reject_tag(tag.is_some(), position)?;
                self.count_expansion(0, text.len(), position)?;
                anchor
            }
            Event::SequenceStart(anchor, tag) => {
                reject_tag(tag.is_some(), position)?;
                for index in 0_u32.. {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    levels = levels.max(1 + self.visit(event, span, id, Step::Item(index), depth + 1)?);
                }
                anchor
            }
            Event::MappingStart(anchor, tag) => {
                reject_tag(tag.is_some(), position)?;
                levels = self.visit_members(id, depth)?;
                anchor
            }
            Event::Alias(anchor) => {
                let size = *self.sizes.get(&anchor).ok_or_else(|| Fault::expansion(position))?;
                if depth + size.levels > MAX_DEPTH {
                    return Err(Fault::too_deep(position));
                }
                self.count_expansion(size.values, size.bytes, position)?;
                levels = size.levels;
                0
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(Fault::syntax(position)),
        };
        if anchor != 0 {
            let size =
                ExpandedSize { values: self.values - start_counts.0, bytes: self.bytes - start_counts.1, levels };
            self.sizes.insert(anchor, size);
        }
        Ok(levels)
    }

    /// Visits the members of a mapping, and returns its depth after the expansion of aliases.
    fn visit_members(&mut self, id: u32, depth: usize) -> Result<usize, Fault> {
        let mut levels = 1;
        let mut keys = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(levels),
                Event::Scalar(key, _, 0, None) => key,
                Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..) => {
                    return Err(Fault::key(start_position(span)));
                }
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::SequenceEnd => return Err(Fault::syntax(start_position(span))),
            };
            self.count_expansion(0, key.len(), start_position(span))?;
            let step = Step::Member(Box::from(&*key));
            if !keys.insert(key) {
                return Err(Fault::duplicate_key(start_position(span)));
            }
            let (event, span) = self.next()?;
            levels = levels.max(1 + self.visit(event, span, id, step, depth + 1)?);
        }
    }

    fn count_expansion(&mut self, values: usize, bytes: usize, position: Position) -> Result<(), Fault> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        // The additional 1,000 values cover the manifest around the content.
        let is_within =
            self.values <= MAX_VALUES + 1_000 && u64::try_from(self.bytes).is_ok_and(|bytes| bytes <= MAX_FILE_BYTES);
        if is_within { Ok(()) } else { Err(Fault::expansion(position)) }
    }
}

const fn reject_tag(has_tag: bool, position: Position) -> Result<(), Fault> {
    if has_tag { Err(Fault::tag(position)) } else { Ok(()) }
}

fn start_position(span: Span) -> Position {
    line_column(span.start.line(), span.start.col())
}

fn line_column(line: usize, column: usize) -> Position {
    Position { line: to_u32(line.max(1)), column: to_u32(column).saturating_add(1) }
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
