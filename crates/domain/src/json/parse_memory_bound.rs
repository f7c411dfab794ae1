//! An upper bound of the memory that a parsed JSON text needs, computed from its bytes alone.
//!
//! The server reserves this memory before it parses a request body. A single pass over the bytes counts the allocations
//! that the parser would make. The pass is much faster than parsing, and allocates no memory.

use super::{ALLOCATION_BYTES, MAP_NODE_BYTES, MAP_NODE_MEMBERS, MAX_HEAP_BYTES, VALUE_BYTES};

/// The maximum memory that [`read_measured`](super::read_measured) allocates for these bytes, in bytes.
///
/// The bound also holds for malformed texts, because the parser stops at the error and the count covers all bytes
/// before it.
#[must_use]
pub fn max_heap_bytes(bytes: &[u8]) -> usize {
    let mut counts = AllocationCounts::default();
    let mut quoted = false;
    let mut escaped = false;
    for byte in bytes {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            counts.text = counts.text.saturating_add(1);
        } else {
            quoted = *byte == b'"';
            counts.count_structure(*byte);
        }
    }
    counts.heap_bytes().min(MAX_HEAP_BYTES)
}

#[derive(Debug, Default)]
struct AllocationCounts {
    /// The number of opening brackets, opening braces and commas together.
    containers_and_commas: usize,
    nonempty_objects: usize,
    members: usize,
    strings: usize,
    text: usize,
    /// Whether the last byte outside of strings and white space opened an object. The object is then possibly empty.
    at_object: bool,
}

impl AllocationCounts {
    fn count_structure(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => return,
            b'{' | b'[' | b',' => self.containers_and_commas = self.containers_and_commas.saturating_add(1),
            b':' => self.members = self.members.saturating_add(1),
            b'"' => {
                self.strings = self.strings.saturating_add(1);
                self.nonempty_objects = self.nonempty_objects.saturating_add(usize::from(self.at_object));
            }
            _ => {}
        }
        self.at_object = byte == b'{';
    }

    fn heap_bytes(&self) -> usize {
        // A container with n values has n - 1 commas, so its opening bracket accounts for one more value.
        let values = self.containers_and_commas.saturating_add(1).saturating_mul(VALUE_BYTES);
        // An object of n members has at most (n + 5) / 6 map nodes.
        let sixths = self.nonempty_objects.saturating_mul(MAP_NODE_MEMBERS - 1).saturating_add(self.members);
        let nodes = sixths.div_ceil(MAP_NODE_MEMBERS).saturating_mul(MAP_NODE_BYTES);
        let strings = self.strings.saturating_mul(ALLOCATION_BYTES).saturating_add(self.text);
        values.saturating_add(nodes).saturating_add(strings)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{read_measured, tests::values},
        *,
    };
    use proptest::prelude::*;

    #[test]
    fn estimates_dense_objects_closely() {
        let list = format!("[{}]", vec!["{\"a\":1}"; 8_000].join(","));
        let (_, measured) = read_measured(list.as_bytes()).unwrap();
        let estimated = max_heap_bytes(list.as_bytes());
        assert!(measured > 80 * list.len(), "{measured}");
        assert!((measured..measured + measured / 20).contains(&estimated), "{estimated} for {measured}");
        // Inside a string, every byte counts as one byte of text, even a bracket, a comma or an escape.
        let text = format!("{{\"text\":\"{}\"}}", "x{[,:\\\"".repeat(10_000));
        assert!(max_heap_bytes(text.as_bytes()) < text.len() + 2_000);
    }

    proptest! {
        #[test]
        fn estimate_is_an_upper_bound(value in values(), indented in any::<bool>()) {
            let text = if indented { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let (_, measured) = read_measured(text.as_bytes()).unwrap();
            prop_assert!(measured <= max_heap_bytes(text.as_bytes()));
        }

        /// The parser has allocated memory only for the part of a malformed text before the error.
        #[test]
        fn estimates_grow_with_the_text(value in values(), cut in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let (start, _) = text.as_bytes().split_at(cut.index(text.len()));
            prop_assert!(max_heap_bytes(start) <= max_heap_bytes(text.as_bytes()));
        }
    }
}
