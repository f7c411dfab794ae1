//! Scan for member names that a route forbids at any depth of a body.
//!
//! The scan reads the raw bytes, so duplicate names, escapes and nesting cannot hide a name.

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// The member names that a route forbids.
pub trait ForbiddenNames {
    /// Whether a request with a member of this name is refused.
    fn is_forbidden(name: &str) -> bool;
}

/// Maximum bytes of names that the scan checks in one document, plus one byte for each name. Legitimate requests need
/// far less, and the bound limits the work of the thread.
const MAX_NAME_BYTES: usize = 4 << 10;

/// Result of the scan of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanResult {
    /// No name is forbidden. Malformed JSON counts as clean, because the parser refuses it later.
    Clean,
    /// At least one checked name is forbidden.
    Forbidden,
    /// The document has more names than the scan checks, and none of the checked names is forbidden.
    TooMany,
}

/// Scans a document up to its first forbidden name.
pub(super) fn scan<T: ForbiddenNames>(bytes: &[u8]) -> ScanResult {
    let search =
        NameScan::<T> { remaining: Cell::new(MAX_NAME_BYTES), result: Cell::new(ScanResult::Clean), rule: PhantomData };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    match (&search).deserialize(&mut reader).and_then(|()| reader.end()) {
        Ok(()) => search.result.get(),
        Err(_) => ScanResult::Clean,
    }
}

struct NameScan<T> {
    remaining: Cell<usize>,
    result: Cell<ScanResult>,
    rule: PhantomData<T>,
}

impl<T: ForbiddenNames> NameScan<T> {
    fn check(&self, name: &str) {
        match self.result.get() {
            ScanResult::Clean => match self.remaining.get().checked_sub(name.len().saturating_add(1)) {
                Some(remaining) => {
                    self.remaining.set(remaining);
                    if T::is_forbidden(name) {
                        self.result.set(ScanResult::Forbidden);
                    }
                }
                None => self.result.set(ScanResult::TooMany),
            },
            // The rest is parsed only to detect malformed JSON.
            ScanResult::Forbidden | ScanResult::TooMany => {}
        }
    }
}

impl<'de, T: ForbiddenNames> DeserializeSeed<'de> for &NameScan<T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: ForbiddenNames> Visitor<'de> for &NameScan<T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(NameSeed(self))?.is_some() {
            map.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Checks the name of a member and drops it.
struct NameSeed<'s, T>(&'s NameScan<T>);

impl<'de, T: ForbiddenNames> DeserializeSeed<'de> for NameSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T: ForbiddenNames> Visitor<'_> for NameSeed<'_, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.check(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// Number of checked names, and their bytes.
        static WORK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    struct Actor;

    impl ForbiddenNames for Actor {
        fn is_forbidden(name: &str) -> bool {
            let (names, bytes) = WORK.get();
            WORK.set((names + 1, bytes + name.len()));
            name == "actor"
        }
    }

    #[test]
    fn finds_names_at_any_depth_and_in_any_encoding() {
        for body in [
            r#"{"actor":1}"#,
            r#"{"actor":null}"#,
            r#"{"actor":1,"actor":2}"#,
            r#"{"a":1,"a":2,"actor":2}"#,
            r#"{"\u0061ctor":1}"#,
            r#"{"a":{"actor":1}}"#,
            r#"{"a":[[{"actor":1}]]}"#,
            r#"[{"actor":1}]"#,
        ] {
            assert_eq!(scan::<Actor>(body.as_bytes()), ScanResult::Forbidden, "{body}");
        }
        for body in
            [r#"{"a":"actor"}"#, r#"["actor"]"#, r#"{"a":1.5,"b":-1,"c":true,"d":null}"#, "{", r#"{"actor":1"#, ""]
        {
            assert_eq!(scan::<Actor>(body.as_bytes()), ScanResult::Clean, "{body}");
        }
    }

    /// Checking an unlimited number of names would delay all requests of the same thread.
    #[test]
    fn bounds_the_checked_names() {
        let check = |body: String| {
            WORK.set((0, 0));
            (scan::<Actor>(body.as_bytes()), WORK.get())
        };
        let members = |name: &str, count: usize| vec![format!("{name:?}:0"); count].join(",");
        let long = "0b".repeat(115);
        assert_eq!(
            check(format!("{{{},\"actor\":0}}", members(&long, 17))),
            (ScanResult::Forbidden, (18, 17 * 230 + 5))
        );
        assert_eq!(check(format!("{{{},\"actor\":0}}", members(&long, 4_000))), (ScanResult::TooMany, (17, 17 * 230)));
        assert_eq!(check(format!("{{{}}}", members("", MAX_NAME_BYTES))), (ScanResult::Clean, (MAX_NAME_BYTES, 0)));
        assert_eq!(check(format!("[{{{}}}]", members("", 90_000))), (ScanResult::TooMany, (MAX_NAME_BYTES, 0)));
        assert_eq!(
            check(format!("[{}]", vec!["{\"\":0}"; 90_000].join(","))),
            (ScanResult::TooMany, (MAX_NAME_BYTES, 0))
        );
        assert_eq!(check(format!("{{\"actor\":{{{}}}}}", members("actor", 90_000))), (ScanResult::Forbidden, (1, 5)));
        // The scan still parses the document to its end.
        assert_eq!(check(format!("{{{}", members("", 90_000))), (ScanResult::Clean, (MAX_NAME_BYTES, 0)));
    }
}
