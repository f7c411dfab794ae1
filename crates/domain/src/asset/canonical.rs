//! The canonical form of content (RFC 8785) and its checksum.
//!
//! Contents with equal meaning have equal canonical bytes, and the checksum covers these bytes. Content with a number
//! that the canonical form would round is refused.

mod serializer;

use crate::number::LARGEST_EXACT_INTEGER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};
use serializer::{InvalidPath, PathStep};
use std::fmt;

/// The prefix of every checksum, which names the algorithm.
const PREFIX: &str = "blake3:";

/// The canonical form of content, with its checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Canonical {
    text: String,
    checksum: Checksum,
}

/// The reason why one value has no canonical form.
enum Defect {
    IntegerOutOfRange,
    NulInText,
}

/// The reason why content has no canonical form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CanonicalRefusal {
    /// An integer is larger than 2^53 - 1 or smaller than its negative. Parsers that use doubles would round it.
    #[error("an integer is beyond 2^53 - 1")]
    IntegerOutOfRange {
        /// The JSON pointer to the number.
        pointer: String,
    },
    /// A text or a key contains a NUL character, which PostgreSQL cannot store.
    #[error("a text contains a NUL character")]
    NulInText {
        /// The JSON pointer to the text, or to the member with the key.
        pointer: String,
    },
}

impl CanonicalRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::IntegerOutOfRange { .. } => "integer_out_of_range",
            Self::NulInText { .. } => "nul_in_text",
        }
    }

    fn from_path(invalid_path: InvalidPath) -> Self {
        let pointer = invalid_path.path.into_iter().rev().fold(String::new(), |pointer, step| match step {
            PathStep::Index(index) => format!("{pointer}/{index}"),
            PathStep::Key(key) => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
        });
        match invalid_path.defect {
            Defect::IntegerOutOfRange => Self::IntegerOutOfRange { pointer },
            Defect::NulInText => Self::NulInText { pointer },
        }
    }

    /// The JSON pointer to the invalid value; empty for the whole content.
    #[must_use]
    pub fn pointer(&self) -> &str {
        match self {
            Self::IntegerOutOfRange { pointer } | Self::NulInText { pointer } => pointer,
        }
    }
}

impl Canonical {
    /// Converts content to its canonical form (RFC 8785).
    ///
    /// # Errors
    /// Returns an error when canonicalization or storage would change a number or a text of the content.
    pub fn of(content: &Value) -> Result<Self, CanonicalRefusal> {
        // The length is reserved in advance, because content can have megabytes of text and growth would copy it
        // repeatedly.
        let mut text = String::with_capacity(serializer::estimate_length(content));
        serializer::write(content, &mut text).map_err(CanonicalRefusal::from_path)?;
        let checksum = Checksum::blake3_of(text.as_bytes());
        Ok(Self { text, checksum })
    }

    /// The bytes of the canonical form, which are UTF-8.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The canonical form as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The checksum of the canonical bytes.
    #[must_use]
    pub const fn checksum(&self) -> &Checksum {
        &self.checksum
    }
}

/// The canonical form (RFC 8785) of an object that may contain any JSON. Unlike content, such as that of an asset
/// version, the object may have texts with NUL and integers of any size.
pub(crate) fn canonical_text(object: &Map<String, Value>) -> String {
    let mut text = String::with_capacity(256);
    match serializer::write_object(object, &mut text) {
        Ok(()) => text,
        // The serialization cannot fail, because a JSON map has string keys and finite numbers.
        Err(_) => serde_json_canonicalizer::to_string(object).unwrap_or_default(),
    }
}

/// A BLAKE3 checksum as text: `blake3:` and 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Checksum(String);

impl Checksum {
    /// Computes the BLAKE3 checksum of these bytes.
    #[must_use]
    pub fn blake3_of(bytes: &[u8]) -> Self {
        Self(format!("{PREFIX}{}", blake3::hash(bytes).to_hex()))
    }

    /// Parses a stored checksum; `None` if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        (digits.len() == 64 && is_hexadecimal).then(|| Self(text.to_owned()))
    }

    /// The 32 bytes of the checksum, without the prefix.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        let digits = self.0.strip_prefix(PREFIX).unwrap_or_default();
        // INVARIANT: a checksum is `blake3:` and 64 hexadecimal digits.
        blake3::Hash::from_hex(digits).map_or([0; 32], Into::into)
    }

    /// The checksum as text, with the prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("expected `blake3:` and 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn writes_the_bytes_of_rfc_8785() {
        let canonical = Canonical::of(&json!({"b": [1.0, 1e-7, "é\u{1f600}"], "a": {"z": null, "y": -0.0}})).unwrap();
        assert_eq!(
            std::str::from_utf8(canonical.bytes()).unwrap(),
            "{\"a\":{\"y\":0,\"z\":null},\"b\":[1,1e-7,\"é\u{1f600}\"]}"
        );
        assert_eq!(canonical.checksum(), &Checksum::blake3_of(canonical.bytes()));
    }

    #[test]
    fn refuses_integers_that_would_be_rounded() {
        assert!(Canonical::of(&json!([9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64])).is_ok());
        for (text, pointer) in [
            ("[1, 9007199254740992]", "/1"),
            (r#"{"a/b": {"~": -9007199254740992}}"#, "/a~1b/~0"),
            ("18446744073709551615", ""),
            ("100000000000000000000000", ""),
        ] {
            let refusal = Canonical::of(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert_eq!(refusal, CanonicalRefusal::IntegerOutOfRange { pointer: pointer.to_owned() }, "{text}");
        }
    }

    #[test]
    fn refuses_nul_in_texts_and_keys() {
        for content in [json!({"a": ["x\u{0}"]}), json!({"a\u{0}": 1})] {
            let refusal = Canonical::of(&content).unwrap_err();
            assert_eq!(refusal.code(), "nul_in_text");
            assert!(refusal.pointer().starts_with("/a"));
        }
    }

    #[test]
    fn reads_only_well_formed_checksums() {
        let good = Checksum::blake3_of(b"x");
        assert_eq!(Checksum::parse(good.as_str()), Some(good.clone()));
        assert_eq!(serde_json::from_value::<Checksum>(json!(good.as_str())).unwrap(), good);
        for bad in
            ["", "blake3:", "blake3:00", &good.as_str().to_uppercase(), &good.as_str().replace("blake3", "sha256")]
        {
            assert_eq!(Checksum::parse(bad), None, "{bad}");
        }
    }

    /// Generates JSON documents whose keys have characters below and above the range of surrogates.
    fn document() -> impl Strategy<Value = Value> {
        let text = "[\\x01-\\x7f\u{e9}\u{fb33}\u{1f600}\u{ffff}]{0,6}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<f64>().prop_filter_map("finite and exact", |float| {
                (float.fract() != 0.0 || float.abs() < 9e15)
                    .then(|| serde_json::Number::from_f64(float))
                    .flatten()
                    .map(Value::Number)
            }),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(text, inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn matches_reference_serializer(document in document()) {
            let expected = serde_json_canonicalizer::to_string(&document).unwrap();
            let canonical = Canonical::of(&document).unwrap();
            prop_assert_eq!(canonical.text(), expected);
        }

        #[test]
        fn ignores_key_order(
            members in proptest::collection::btree_map("[a-z€]{1,4}", any::<i32>(), 0..8),
            rotation in 0usize..8,
        ) {
            let canonical_of_text = |members: &[(&String, &i32)]| {
                let body: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                let text = format!("{{{}}}", body.join(", "));
                Canonical::of(&serde_json::from_str(&text).unwrap()).unwrap()
            };
            let mut list: Vec<_> = members.iter().collect();
            let canonical_in_order = canonical_of_text(&list);
            let middle = rotation.min(list.len());
            list.rotate_left(middle);
            list.reverse();
            prop_assert_eq!(canonical_of_text(&list), canonical_in_order);
        }
    }
}
