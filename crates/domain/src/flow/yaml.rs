//! YAML text into JSON values, within bounds, and places of values back in the text.
//!
//! The reader builds the value itself instead of using a ready-made one, because that is where duplicate keys, tags,
//! and aliases that would expand without end can be refused with their place.

use super::{FlowProblem, reading::Segment};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::{cell::Cell, fmt};

/// Longest text, in bytes.
pub(super) const MAX_TEXT: usize = 256 << 10;
/// Most values in one document, aliases counted as often as they are used.
const MAX_VALUES: usize = 50_000;
/// Most bytes of text values in one document, aliases counted as often as they are used.
const MAX_BYTES: usize = 1 << 20;

/// Why the reader stopped where the YAML itself is in order.
#[derive(Clone, Copy)]
enum Fault {
    DuplicateKey,
    KeyNoText,
    Expansion,
    Number,
    Tag,
}

impl Fault {
    const fn code(self) -> &'static str {
        match self {
            Self::DuplicateKey => "yaml_duplicate_key",
            Self::KeyNoText => "yaml_key_no_text",
            Self::Expansion => "yaml_expansion",
            Self::Number => "yaml_number",
            Self::Tag => "yaml_tag",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::DuplicateKey => "a key stands twice in the same mapping",
            Self::KeyNoText => "a key must be a text",
            Self::Expansion => "the document is too large once its aliases are expanded",
            Self::Number => "a number is out of range",
            Self::Tag => "tags are not allowed",
        }
    }
}

/// Reads one YAML 1.2 document.
///
/// # Errors
/// When the text is too long, is no YAML, holds several documents, a duplicate key, a tag, or expands too far.
pub(super) fn parse(text: &str) -> Result<Value, FlowProblem> {
    if text.len() > MAX_TEXT {
        return Err(FlowProblem::new("flow_too_large", "the text is longer than 256 KiB"));
    }
    // The reader below drops tags of the form `!!name` without a word. Written as `!-name` they are ordinary tags, which
    // it shows; inside texts the change means nothing, and no place moves.
    if text.contains("!!") {
        read(&text.replace("!!", "!-"))?;
    }
    read(text)
}

fn read(text: &str) -> Result<Value, FlowProblem> {
    let budget = Budget { values: Cell::new(0), bytes: Cell::new(0), fault: Cell::new(None) };
    Node(&budget).deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let (code, message) = budget
            .fault
            .get()
            .map_or(("yaml_syntax", "the text is not one YAML document"), |fault| (fault.code(), fault.message()));
        let mut problem = FlowProblem::new(code, message);
        (problem.line, problem.column) = place(&error);
        problem
    })
}

/// Line and column, both from 1, of the value at `path`, or of the nearest value around it that exists.
#[must_use]
pub(super) fn locate(text: &str, path: &[Segment]) -> (Option<u32>, Option<u32>) {
    let mut path = path;
    loop {
        let sought = Finder(path).deserialize(serde_yaml::Deserializer::from_str(text));
        match (sought, path.split_last()) {
            (Err(error), _) => return place(&error),
            (Ok(()), Some((_, shorter))) => path = shorter,
            (Ok(()), None) => return (None, None),
        }
    }
}

fn place(error: &serde_yaml::Error) -> (Option<u32>, Option<u32>) {
    error
        .location()
        .map_or((None, None), |location| (u32::try_from(location.line()).ok(), u32::try_from(location.column()).ok()))
}

struct Budget {
    values: Cell<usize>,
    bytes: Cell<usize>,
    fault: Cell<Option<Fault>>,
}

impl Budget {
    fn fail<E: serde::de::Error>(&self, fault: Fault) -> E {
        self.fault.set(Some(fault));
        E::custom(fault.message())
    }

    fn spend<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.values.set(self.values.get().saturating_add(1));
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.values.get() > MAX_VALUES || self.bytes.get() > MAX_BYTES {
            return Err(self.fail(Fault::Expansion));
        }
        Ok(())
    }
}

struct Node<'b>(&'b Budget);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value that JSON has too")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.0.spend(0)?;
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.0.spend(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.0.spend(0)?;
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.0.spend(0)?;
        Ok(value.into())
    }

    fn visit_i128<E: serde::de::Error>(self, _: i128) -> Result<Value, E> {
        Err(self.0.fail(Fault::Number))
    }

    fn visit_u128<E: serde::de::Error>(self, _: u128) -> Result<Value, E> {
        Err(self.0.fail(Fault::Number))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.spend(0)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| self.0.fail(Fault::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(self.0.fail(Fault::Tag))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(0)?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Node(self.0))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(0)?;
        let mut members = Map::new();
        while let Some(key) = access.next_key_seed(Key { budget: self.0, taken: &members })? {
            let member = access.next_value_seed(Node(self.0))?;
            members.insert(key, member);
        }
        Ok(Value::Object(members))
    }
}

struct Key<'b> {
    budget: &'b Budget,
    taken: &'b Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        // Read like any value: a key that is a number or a list must not silently become a text.
        let budget = self.budget;
        let taken = self.taken;
        deserializer.deserialize_any(KeyVisitor { budget, taken })
    }
}

struct KeyVisitor<'b> {
    budget: &'b Budget,
    taken: &'b Map<String, Value>,
}

impl<'de> Visitor<'de> for KeyVisitor<'_> {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The reader asks for this only when it is about to refuse the key.
        self.budget.fault.set(Some(Fault::KeyNoText));
        out.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<String, E> {
        self.budget.spend::<E>(key.len())?;
        if self.taken.contains_key(key) {
            return Err(self.budget.fail(Fault::DuplicateKey));
        }
        Ok(key.to_owned())
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(self.budget.fail(Fault::Tag))
    }
}

/// Fails at the value that its path leads to, because the error then carries the place; succeeds when there is none.
struct Finder<'p>(&'p [Segment]);

impl Finder<'_> {
    fn scalar<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.0.is_empty() { Err(E::custom("here")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Finder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Finder<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.scalar()
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Err(A::Error::custom("here")) };
        let mut at = 0_usize;
        loop {
            let more = if *first == Segment::Index(at) {
                access.next_element_seed(Finder(rest))?.is_some()
            } else {
                access.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Err(A::Error::custom("here")) };
        while let Some(key) = access.next_key::<String>()? {
            if matches!(first, Segment::Key(sought) if *sought == key) {
                access.next_value_seed(Finder(rest))?;
            } else {
                access.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn reads_the_core_types() {
        let text = "x: 'go!! !!x'\na: no\nb: [1, -2, 1.5, true, null, ~, 017, '1']\nc: {d: 'x'}\n<<: {e: 1}\n";
        let expected = json!({
            "x": "go!! !!x", "a": "no", "b": [1, -2, 1.5, true, null, null, "017", "1"], "c": {"d": "x"}, "<<": {"e": 1}
        });
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn refuses_with_code_and_place() {
        let cases = [
            ("a: 1\nb: 2\na: 3\n", "yaml_duplicate_key", Some(3)),
            ("a:\n  b: 1\n  b: 2\n", "yaml_duplicate_key", Some(3)),
            ("a: !!python/object:os.system x\n", "yaml_tag", Some(1)),
            ("a: 1\nb: !thing [1]\n", "yaml_tag", Some(2)),
            ("a: !thing x\n", "yaml_tag", Some(1)),
            ("a: [!!str 1]\n", "yaml_tag", Some(1)),
            ("a: 99999999999999999999999\n", "yaml_number", Some(1)),
            ("a: .inf\n", "yaml_number", Some(1)),
            ("1: a\n", "yaml_key_no_text", Some(1)),
            ("? [a]\n: b\n", "yaml_key_no_text", Some(1)),
            ("a: b\n---\na: c\n", "yaml_syntax", None),
            ("a: [1\n", "yaml_syntax", Some(2)),
            ("a:\n\t- 1\n", "yaml_syntax", Some(2)),
            ("a: *missing\n", "yaml_syntax", Some(1)),
            ("@", "yaml_syntax", Some(1)),
        ];
        for (text, code, line) in cases {
            let problem = parse(text).unwrap_err();
            assert_eq!((problem.code, problem.line), (code, line), "{text:?}");
        }
    }

    #[test]
    fn aliases_cannot_expand_without_end() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let item = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![item; 9].join(", ")));
        }
        assert_eq!(parse(&bomb).unwrap_err().code, "yaml_expansion");
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 20].join(", "));
        assert_eq!(parse(&long).unwrap_err().code, "yaml_expansion");
        let cycle = parse("a: &a [*a]\n").unwrap_err();
        assert!(["yaml_syntax", "yaml_expansion"].contains(&cycle.code), "{}", cycle.code);
        assert_eq!(parse("a: &a {x: 1}\nb: *a\n").unwrap(), json!({"a": {"x": 1}, "b": {"x": 1}}));
    }

    #[test]
    fn length_and_depth_are_bounded() {
        assert_eq!(parse(&"x".repeat(MAX_TEXT + 1)).unwrap_err().code, "flow_too_large");
        assert_eq!(parse(&"[".repeat(20_000)).unwrap_err().code, "yaml_syntax");
        let nested = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(parse(&nested).unwrap_err().code, "yaml_syntax");
    }

    #[test]
    fn finds_the_place_of_a_value() {
        let text = "name: x\nsteps:\n  - id: a\n    inputs: {q: 1}\n  - id: b\n";
        let key = |word: &str| Segment::Key(word.to_owned());
        let steps = |index| vec![key("steps"), Segment::Index(index)];
        let inside = |index, word: &str| [steps(index), vec![key(word)]].concat();
        assert_eq!(locate(text, &inside(1, "id")), (Some(5), Some(9)));
        assert_eq!(locate(text, &[inside(0, "inputs"), vec![key("q")]].concat()), (Some(4), Some(17)));
        assert_eq!(locate(text, &inside(0, "missing")), locate(text, &steps(0)));
        assert_eq!(locate(text, &steps(7)), locate(text, &[key("steps")]));
        assert_eq!(locate(text, &[key("nothing")]), (Some(1), Some(1)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([-:\\[\\]{}&*! \n'\"#|>a]|\\PC){0,80}") {
            let _ = parse(&text);
        }
    }
}
