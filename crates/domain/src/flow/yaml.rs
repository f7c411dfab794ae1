//! YAML text into a tree of values that know their places, within bounds.
//!
//! The tree is built here from the events of the parser, because that is where duplicate keys, tags, and aliases that
//! would expand without end can be refused with their place, and where every value still has one. An alias shares the
//! node that it names; what it would cost once written out is counted before it is.

mod scalar;

use super::{
    FlowProblem,
    reading::{MAX_VALUES, Segment},
};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

/// Longest text, in bytes.
pub(super) const MAX_TEXT: usize = 256 << 10;
/// Most characters that structure flow collections, wherever they stand. The parser looks ahead of itself inside of
/// those, so they are counted before it sees them; a flow that people write has a tenth of this.
const MAX_INDICATORS: usize = 2 * MAX_VALUES;
/// Most bytes of text values in one document, aliases counted as often as they are used.
const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting, as for JSON bodies; aliases count with what they name.
const MAX_DEPTH: usize = 64;

/// Line and column in the text, both from 1; columns count characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Place {
    fn of(span: Span) -> Self {
        Self::at(span.start.line(), span.start.col())
    }

    fn of_error(error: &ScanError) -> Self {
        Self::at(error.marker().line(), error.marker().col())
    }

    fn at(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line.max(1)), column: number(column).saturating_add(1) }
    }
}

/// Why a text is refused before it is looked at as a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    TooLarge,
    Syntax,
    DuplicateKey,
    KeyNoText,
    Expansion,
    TooDeep,
    Number,
    Nul,
    Tag,
}

impl Fault {
    const fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "flow_too_large",
            Self::Syntax => "yaml_syntax",
            Self::DuplicateKey => "yaml_duplicate_key",
            Self::KeyNoText => "yaml_key_no_text",
            Self::Expansion => "yaml_expansion",
            Self::TooDeep => "yaml_too_deep",
            Self::Number => "yaml_number",
            Self::Nul => "yaml_nul",
            Self::Tag => "yaml_tag",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::TooLarge => "the text is longer than 256 KiB",
            Self::Syntax => "the text is not one YAML document",
            Self::DuplicateKey => "a key stands twice in the same mapping",
            Self::KeyNoText => "a key must be a text",
            Self::Expansion => "the document holds too much, its aliases written out",
            Self::TooDeep => "the document nests deeper than 64",
            Self::Number => "a number is out of range",
            Self::Nul => "a text holds a NUL character",
            Self::Tag => "tags are not allowed",
        }
    }

    fn found_at(self, place: Place) -> FlowProblem {
        FlowProblem {
            line: Some(place.line),
            column: Some(place.column),
            ..FlowProblem::new(self.code(), self.message())
        }
    }
}

/// A YAML document, read.
#[derive(Debug)]
pub(super) struct Document(Rc<Node>);

/// One value. INVARIANT: `values`, `bytes` and `height` are those of the node with every alias below it written out,
/// and within the bounds, so that walking and copying it is bounded too.
#[derive(Debug)]
struct Node {
    place: Place,
    kind: NodeKind,
    values: usize,
    bytes: usize,
    height: usize,
}

#[derive(Debug)]
enum NodeKind {
    Scalar(Value),
    List(Vec<Rc<Node>>),
    Mapping(BTreeMap<String, (Place, Rc<Node>)>),
}

/// Which of a member's two places is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Where its key stands.
    Key,
    /// Where its value stands.
    Value,
}

/// Reads one YAML 1.2 document.
///
/// # Errors
/// When the text is too long, is no YAML, holds several documents, a duplicate key, a tag, or expands too far.
pub(super) fn parse(text: &str) -> Result<Document, FlowProblem> {
    if text.len() > MAX_TEXT {
        return Err(Fault::TooLarge.found_at(Place::at(1, 0)));
    }
    if let Some(place) = beyond_indicators(text) {
        return Err(Fault::Expansion.found_at(place));
    }
    let mut composer = Composer { events: Parser::new_from_str(text), anchors: HashMap::new(), values: 0, bytes: 0 };
    composer.document().map_err(|(fault, place)| fault.found_at(place))
}

/// The place of the first structuring character that is one too many.
fn beyond_indicators(text: &str) -> Option<Place> {
    let indicator = |byte: &u8| matches!(byte, b'[' | b']' | b'{' | b'}' | b',' | b':');
    let at = text.bytes().enumerate().filter(|(_, byte)| indicator(byte)).nth(MAX_INDICATORS)?.0;
    let before = text.get(..at)?;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    Some(Place::at(before.matches('\n').count() + 1, column))
}

impl Document {
    /// The document as JSON, with its aliases written out.
    pub(super) fn value(&self) -> Value {
        self.0.value()
    }

    /// The place of the value at `path` or of its key, or of the nearest value around it that exists.
    pub(super) fn place(&self, path: &[Segment], part: Part) -> Place {
        let (mut node, mut place) = (&self.0, self.0.place);
        for segment in path {
            let inner = match (segment, &node.kind) {
                (Segment::Index(index), NodeKind::List(items)) => items.get(*index).map(|item| (item.place, item)),
                (Segment::Key(key), NodeKind::Mapping(members)) => members.get(key).map(|(key, member)| match part {
                    Part::Key => (*key, member),
                    Part::Value => (member.place, member),
                }),
                (Segment::Index(_) | Segment::Key(_), _) => None,
            };
            let Some(inner) = inner else { return place };
            (place, node) = inner;
        }
        place
    }
}

impl Node {
    fn value(&self) -> Value {
        match &self.kind {
            NodeKind::Scalar(value) => value.clone(),
            NodeKind::List(items) => items.iter().map(|item| item.value()).collect(),
            NodeKind::Mapping(members) => {
                members.iter().map(|(key, (_, member))| (key.clone(), member.value())).collect()
            }
        }
    }
}

type Refused = (Fault, Place);

/// Builds the tree. Recursion is as deep as the document, which is bounded.
struct Composer<'t> {
    events: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Rc<Node>>,
    values: usize,
    bytes: usize,
}

impl<'t> Composer<'t> {
    fn document(&mut self) -> Result<Document, Refused> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::Nothing | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, span) => {
                    return root.map(Document).ok_or((Fault::Syntax, Place::of(span)));
                }
                (_, span) if root.is_some() => return Err((Fault::Syntax, Place::of(span))),
                (event, span) => root = Some(self.node(event, span, 1)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Refused> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err((Fault::Syntax, Place::of_error(&error))),
            None => Err((Fault::Syntax, Place::at(1, 0))),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Rc<Node>, Refused> {
        let place = Place::of(span);
        if depth > MAX_DEPTH {
            return Err((Fault::TooDeep, place));
        }
        let (node, anchor) = match event {
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return Err((Fault::Tag, place));
            }
            Event::Scalar(text, style, anchor, None) => (self.scalar(&text, style, place)?, anchor),
            Event::SequenceStart(anchor, None) => (self.list(place, depth)?, anchor),
            Event::MappingStart(anchor, None) => (self.mapping(place, depth)?, anchor),
            Event::Alias(anchor) => return self.alias(anchor, place, depth),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err((Fault::Syntax, place)),
        };
        let node = Rc::new(node);
        // Zero stands for no anchor. A node gets its anchor once it is whole, so no alias can name what is around it.
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn spend(&mut self, values: usize, bytes: usize, place: Place) -> Result<(), Refused> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.values > MAX_VALUES || self.bytes > MAX_BYTES {
            return Err((Fault::Expansion, place));
        }
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, place: Place) -> Result<Node, Refused> {
        self.spend(1, text.len(), place)?;
        if text.contains('\0') {
            return Err((Fault::Nul, place));
        }
        let value = match style {
            ScalarStyle::Plain => scalar::resolve(text).map_err(|_| (Fault::Number, place))?,
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted | ScalarStyle::Literal | ScalarStyle::Folded => {
                Value::String(text.to_owned())
            }
        };
        Ok(Node { place, kind: NodeKind::Scalar(value), values: 1, bytes: text.len(), height: 1 })
    }

    fn alias(&mut self, anchor: usize, place: Place, depth: usize) -> Result<Rc<Node>, Refused> {
        // The parser knows the name, so a node that is not there yet is one around the alias: a cycle.
        let node = self.anchors.get(&anchor).map(Rc::clone).ok_or((Fault::Expansion, place))?;
        if depth + node.height > MAX_DEPTH + 1 {
            return Err((Fault::TooDeep, place));
        }
        self.spend(node.values, node.bytes, place)?;
        Ok(node)
    }

    fn list(&mut self, place: Place, depth: usize) -> Result<Node, Refused> {
        self.spend(1, 0, place)?;
        let mut whole = Node { place, kind: NodeKind::Scalar(Value::Null), values: 1, bytes: 0, height: 1 };
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => break,
                (event, span) => {
                    let item = self.node(event, span, depth + 1)?;
                    whole.take(&item);
                    items.push(item);
                }
            }
        }
        whole.kind = NodeKind::List(items);
        Ok(whole)
    }

    fn mapping(&mut self, place: Place, depth: usize) -> Result<Node, Refused> {
        self.spend(1, 0, place)?;
        let mut whole = Node { place, kind: NodeKind::Scalar(Value::Null), values: 1, bytes: 0, height: 1 };
        let mut members = BTreeMap::new();
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (event, span) => self.key(event, span)?,
            };
            if members.contains_key(&key) {
                return Err((Fault::DuplicateKey, at));
            }
            whole.bytes = whole.bytes.saturating_add(key.len());
            let (event, span) = self.next()?;
            let member = self.node(event, span, depth + 1)?;
            whole.take(&member);
            members.insert(key, (at, member));
        }
        whole.kind = NodeKind::Mapping(members);
        Ok(whole)
    }

    /// A key is a text that stands there: not a number, not a collection, and not an alias, behind which it would hide.
    fn key(&mut self, event: Event<'t>, span: Span) -> Result<(String, Place), Refused> {
        let place = Place::of(span);
        if !matches!(event, Event::Scalar(..)) {
            return Err((Fault::KeyNoText, place));
        }
        match &self.node(event, span, 1)?.kind {
            NodeKind::Scalar(Value::String(key)) => Ok((key.clone(), place)),
            NodeKind::Scalar(_) | NodeKind::List(_) | NodeKind::Mapping(_) => Err((Fault::KeyNoText, place)),
        }
    }
}

impl Node {
    fn take(&mut self, child: &Self) {
        self.values = self.values.saturating_add(child.values);
        self.bytes = self.bytes.saturating_add(child.bytes);
        self.height = self.height.max(child.height.saturating_add(1));
    }
}

#[cfg(test)]
mod tests;
