//! Parses YAML text into a bounded tree of values with their positions.
//!
//! The tree is built from parser events, because only events have the positions of duplicate keys, tags and aliases. An
//! alias shares the node of its anchor. The expanded size of the alias is charged before it is used.

mod scalar;

use super::{
    FlowProblem,
    parser::MAX_VALUES,
    problems::{MAX_PROBLEMS, Segment},
};
use crate::yaml_syntax;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    rc::Rc,
};

/// The maximum length of a YAML text, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 256 << 10;
/// The maximum number of flow indicators (brackets, braces, commas and colons) in the text. They are counted before
/// parsing, because the parser looks ahead inside flow collections. Realistic flows have a tenth of this number.
const MAX_INDICATORS: usize = 2 * MAX_VALUES;
/// The maximum total size of text values in a document, in bytes. An aliased value counts once for each use.
const MAX_EXPANDED_BYTES: usize = 1 << 20;
/// The maximum nesting of a document, which is the same as for JSON bodies. Each use of an alias counts with the
/// nesting of its value.
const MAX_DEPTH: usize = 64;

/// Line and column in the text, from 1; columns count characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TextPosition {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl TextPosition {
    fn from_span(span: Span) -> Self {
        Self::new(span.start.line(), span.start.col())
    }

    fn from_error(error: &ScanError) -> Self {
        Self::new(error.marker().line(), error.marker().col())
    }

    fn new(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line.max(1)), column: number(column).saturating_add(1) }
    }
}

/// The reason why a YAML text is refused, or one of its values is a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum YamlFault {
    TooLarge,
    Syntax,
    DuplicateKey,
    NonStringKey,
    Expansion,
    TooDeep,
    Number,
    Nul,
    Tag,
}

impl YamlFault {
    const fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "flow_too_large",
            Self::Syntax => "yaml_syntax",
            Self::DuplicateKey => "yaml_duplicate_key",
            Self::NonStringKey => "yaml_key_no_text",
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
            Self::DuplicateKey => "a key occurs twice in the same mapping",
            Self::NonStringKey => "a key must be a string",
            Self::Expansion => "the document is too large with its aliases expanded",
            Self::TooDeep => "the document nests deeper than 64",
            Self::Number => "a number is out of range",
            Self::Nul => "a string contains a NUL character",
            Self::Tag => "tags are not allowed",
        }
    }

    fn at(self, position: TextPosition) -> FlowProblem {
        FlowProblem {
            line: Some(position.line),
            column: Some(position.column),
            ..FlowProblem::new(self.code(), self.message())
        }
    }

    /// Like [`Self::at`]. If a line shows the likely cause of a syntax error, the problem has the message and position
    /// of that cause.
    fn in_text(self, text: &str, position: TextPosition) -> FlowProblem {
        let likely = if self == Self::Syntax { yaml_syntax::likely_cause(text, position.line) } else { None };
        let Some(cause) = likely else { return self.at(position) };
        let problem = FlowProblem::new(self.code(), cause.message);
        FlowProblem { line: Some(cause.line), column: Some(cause.column), ..problem }
    }
}

/// A YAML document, as far as the text is readable.
#[derive(Debug)]
pub(super) struct Document {
    root: Rc<Node>,
    /// The problems of the text, in text order.
    pub(super) problems: Vec<FlowProblem>,
}

/// A value of the document. INVARIANT: `values`, `bytes` and `height` count the expansion of all nested aliases and are
/// within the limits. Walking and copying the node is therefore bounded.
#[derive(Debug)]
struct Node {
    position: TextPosition,
    kind: NodeKind,
    values: usize,
    bytes: usize,
    height: usize,
    /// Whether the value itself has a problem. No further problem is then reported at its position.
    is_broken: bool,
}

#[derive(Debug)]
enum NodeKind {
    Scalar(Value),
    List(Vec<Rc<Node>>),
    Mapping(BTreeMap<String, (TextPosition, Rc<Node>)>),
}

/// The part of an object's member whose position is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberPart {
    /// The position of the key.
    Key,
    /// The position of the value.
    Value,
}

/// Parses one YAML 1.2 document. Problems that do not prevent parsing are collected: duplicate keys, keys that are not
/// strings, tags, and numbers that JSON cannot represent.
///
/// # Errors
/// When the text is too long, is not exactly one YAML document, or expands too far. The error contains all problems
/// that were found before.
pub(super) fn parse(text: &str) -> Result<Document, Vec<FlowProblem>> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(vec![YamlFault::TooLarge.at(TextPosition::new(1, 0))]);
    }
    if let Some(position) = find_excess_indicator(text) {
        return Err(vec![YamlFault::Expansion.at(position)]);
    }
    let mut composer = Composer {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        values: 0,
        bytes: 0,
        problems: Vec::new(),
    };
    match composer.document() {
        Ok(root) => Ok(Document { root, problems: composer.problems }),
        Err((fault, position)) => {
            composer.problems.truncate(MAX_PROBLEMS - 1);
            composer.problems.push(fault.in_text(text, position));
            Err(composer.problems)
        }
    }
}

/// The position of the first flow indicator beyond the maximum number. The braces of references such as `{{trigger.q}}`
/// do not count, because the length of the text already limits their number.
fn find_excess_indicator(text: &str) -> Option<TextPosition> {
    let indicator = |byte: u8| matches!(byte, b'[' | b']' | b'{' | b'}' | b',' | b':');
    let (mut count, mut remaining) = (0_usize, text);
    while let Some(offset) = remaining.bytes().position(indicator) {
        let (before, tail) = remaining.split_at_checked(offset)?;
        if let Some(after) = strip_reference(tail) {
            remaining = after;
            continue;
        }
        count += 1;
        if count > MAX_INDICATORS {
            let before = text.get(..text.len() - remaining.len() + before.len())?;
            let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
            return Some(TextPosition::new(before.matches('\n').count() + 1, column));
        }
        remaining = tail.get(1..)?;
    }
    None
}

/// The text after the reference with which the text starts; `None` if it does not start with a reference.
fn strip_reference(text: &str) -> Option<&str> {
    let reference = text.strip_prefix("{{")?.trim_start_matches(' ');
    let path = ["trigger.", "release.", "steps."].iter().find_map(|root| reference.strip_prefix(root))?;
    let is_path_character = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.');
    path.trim_start_matches(is_path_character).trim_start_matches(' ').strip_prefix("}}")
}

impl Document {
    /// The document as JSON, with all aliases expanded.
    pub(super) fn value(&self) -> Value {
        self.root.value()
    }

    /// The position of the key or value at `path`, or of the closest existing value that contains it. `None` if that
    /// value is broken.
    pub(super) fn position(&self, path: &[Segment], part: MemberPart) -> Option<TextPosition> {
        let (mut node, mut position) = (&self.root, self.root.position);
        for segment in path {
            let inner = match (segment, &node.kind) {
                (Segment::Index(index), NodeKind::List(items)) => items.get(*index).map(|item| (item.position, item)),
                (Segment::Key(key), NodeKind::Mapping(members)) => members.get(key).map(|(key, member)| match part {
                    MemberPart::Key => (*key, member),
                    MemberPart::Value => (member.position, member),
                }),
                (Segment::Index(_) | Segment::Key(_), _) => None,
            };
            let Some(inner) = inner else { break };
            (position, node) = inner;
        }
        (!node.is_broken).then_some(position)
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

type YamlFailure = (YamlFault, TextPosition);

/// Builds the tree from parser events. The recursion depth equals the nesting of the document, which is limited.
struct Composer<'t> {
    events: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Rc<Node>>,
    values: usize,
    bytes: usize,
    problems: Vec<FlowProblem>,
}

impl<'t> Composer<'t> {
    /// Adds a problem that does not prevent parsing.
    fn report(&mut self, fault: YamlFault, position: TextPosition) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(fault.at(position));
        }
    }

    fn document(&mut self) -> Result<Rc<Node>, YamlFailure> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamStart | Event::Nothing | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, span) => {
                    return root.ok_or((YamlFault::Syntax, TextPosition::from_span(span)));
                }
                (_, span) if root.is_some() => return Err((YamlFault::Syntax, TextPosition::from_span(span))),
                (event, span) => root = Some(self.node(event, span, 1)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), YamlFailure> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err((YamlFault::Syntax, TextPosition::from_error(&error))),
            None => Err((YamlFault::Syntax, TextPosition::new(1, 0))),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Rc<Node>, YamlFailure> {
        let position = TextPosition::from_span(span);
        if depth > MAX_DEPTH {
            return Err((YamlFault::TooDeep, position));
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.charge(1, text.len(), position)?;
                let tagged = self.report_tag(tag.is_some(), position);
                let mut node = self.scalar(&text, style, position)?;
                // Tags are not supported and could change the meaning of the value, so the value counts as broken.
                node.is_broken |= tagged;
                (node, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.report_tag(tag.is_some(), position);
                (self.list(position, depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.report_tag(tag.is_some(), position);
                (self.mapping(position, depth)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, position, depth),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err((YamlFault::Syntax, position)),
        };
        let node = Rc::new(node);
        // Anchor zero means that the node has no anchor. An anchor is added only after its node is complete, so that no
        // alias refers to a node that contains it.
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn report_tag(&mut self, tagged: bool, position: TextPosition) -> bool {
        if tagged {
            self.report(YamlFault::Tag, position);
        }
        tagged
    }

    fn charge(&mut self, values: usize, bytes: usize, position: TextPosition) -> Result<(), YamlFailure> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.values > MAX_VALUES || self.bytes > MAX_EXPANDED_BYTES {
            return Err((YamlFault::Expansion, position));
        }
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, position: TextPosition) -> Result<Node, YamlFailure> {
        let value = match style {
            _ if text.contains('\0') => Err(YamlFault::Nul),
            ScalarStyle::Plain => scalar::resolve(text).map_err(|_| YamlFault::Number),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted | ScalarStyle::Literal | ScalarStyle::Folded => {
                Ok(Value::String(text.to_owned()))
            }
        };
        let is_broken = value.is_err();
        let value = value.unwrap_or_else(|fault| {
            self.report(fault, position);
            Value::Null
        });
        Ok(Node { position, kind: NodeKind::Scalar(value), values: 1, bytes: text.len(), height: 1, is_broken })
    }

    fn alias(&mut self, anchor: usize, position: TextPosition, depth: usize) -> Result<Rc<Node>, YamlFailure> {
        // The parser accepts only aliases of known anchors. If the node is missing, it is incomplete and contains the
        // alias, which is a cycle.
        let node = self.anchors.get(&anchor).map(Rc::clone).ok_or((YamlFault::Expansion, position))?;
        if depth + node.height > MAX_DEPTH + 1 {
            return Err((YamlFault::TooDeep, position));
        }
        self.charge(node.values, node.bytes, position)?;
        Ok(node)
    }

    fn list(&mut self, position: TextPosition, depth: usize) -> Result<Node, YamlFailure> {
        self.charge(1, 0, position)?;
        let mut node =
            Node { position, kind: NodeKind::Scalar(Value::Null), values: 1, bytes: 0, height: 1, is_broken: false };
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => break,
                (event, span) => {
                    let item = self.node(event, span, depth + 1)?;
                    node.add_child_size(&item);
                    items.push(item);
                }
            }
        }
        node.kind = NodeKind::List(items);
        Ok(node)
    }

    fn mapping(&mut self, position: TextPosition, depth: usize) -> Result<Node, YamlFailure> {
        self.charge(1, 0, position)?;
        let mut node =
            Node { position, kind: NodeKind::Scalar(Value::Null), values: 1, bytes: 0, height: 1, is_broken: false };
        let mut members = BTreeMap::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => break,
                (event, span) => self.key(event, span, depth)?,
            };
            let (event, span) = self.next()?;
            let member = self.node(event, span, depth + 1)?;
            node.add_child_size(&member);
            // The key is unknown, so the mapping counts as broken and its missing members are not reported.
            let Some((key, key_position)) = key else {
                node.is_broken = true;
                continue;
            };
            node.bytes = node.bytes.saturating_add(key.len());
            match members.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((key_position, member));
                }
                // The text does not show which of the two values the author meant, so a placeholder replaces both.
                Entry::Occupied(mut entry) => {
                    self.report(YamlFault::DuplicateKey, key_position);
                    entry.insert((key_position, Rc::new(Node::placeholder(key_position))));
                }
            }
        }
        node.kind = NodeKind::Mapping(members);
        Ok(node)
    }

    /// Reads a key, which must be a literal string and not a number, a collection or an alias. Returns `None` for an
    /// invalid key, and reports it.
    fn key(
        &mut self,
        event: Event<'t>,
        span: Span,
        depth: usize,
    ) -> Result<Option<(String, TextPosition)>, YamlFailure> {
        let position = TextPosition::from_span(span);
        if let Event::Alias(_) = event {
            self.report(YamlFault::NonStringKey, position);
            return Ok(None);
        }
        if !matches!(event, Event::Scalar(..)) {
            self.report(YamlFault::NonStringKey, position);
            self.node(event, span, depth + 1)?;
            return Ok(None);
        }
        let key = self.node(event, span, depth + 1)?;
        // A member counts as one value, so the value that was counted for its key is subtracted.
        self.values = self.values.saturating_sub(1);
        match &key.kind {
            _ if key.is_broken => Ok(None),
            NodeKind::Scalar(Value::String(text)) => Ok(Some((text.clone(), position))),
            NodeKind::Scalar(_) | NodeKind::List(_) | NodeKind::Mapping(_) => {
                self.report(YamlFault::NonStringKey, position);
                Ok(None)
            }
        }
    }
}

impl Node {
    /// A placeholder for a value that a problem makes unknown.
    const fn placeholder(position: TextPosition) -> Self {
        Self { position, kind: NodeKind::Scalar(Value::Null), values: 1, bytes: 0, height: 1, is_broken: true }
    }

    fn add_child_size(&mut self, child: &Self) {
        self.values = self.values.saturating_add(child.values);
        self.bytes = self.bytes.saturating_add(child.bytes);
        self.height = self.height.max(child.height.saturating_add(1));
    }
}

#[cfg(test)]
mod tests;
