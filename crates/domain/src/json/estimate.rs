//! An upper bound of the memory that a JSON text takes once it is read, from its bytes alone.
//!
//! A reader of bodies reserves memory before it parses. One pass over the bytes counts what the parser allocates for, so
//! the bound costs a fraction of the parsing and allocates nothing.

use super::{MOST_ROOM, NODE, NODE_MEMBERS, PIECE, VALUE};

/// The memory that [`read_measured`](super::read_measured) takes at most for these bytes, in bytes.
///
/// It holds for malformed texts as well: the parser stops at the fault, and what stands before it was counted here.
#[must_use]
pub fn max_heap_bytes(bytes: &[u8]) -> usize {
    let mut counts = Counts::default();
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
            counts.structure(*byte);
        }
    }
    counts.heap_bytes().min(MOST_ROOM)
}

#[derive(Debug, Default)]
struct Counts {
    /// Arrays and objects, and the commas between what they hold.
    opened_and_separated: usize,
    filled_objects: usize,
    members: usize,
    strings: usize,
    text: usize,
    /// Whether an object was opened and nothing but white space has followed.
    at_object: bool,
}

impl Counts {
    fn structure(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => return,
            b'{' | b'[' | b',' => self.opened_and_separated = self.opened_and_separated.saturating_add(1),
            b':' => self.members = self.members.saturating_add(1),
            b'"' => {
                self.strings = self.strings.saturating_add(1);
                self.filled_objects = self.filled_objects.saturating_add(usize::from(self.at_object));
            }
            _ => {}
        }
        self.at_object = byte == b'{';
    }

    fn heap_bytes(&self) -> usize {
        // A container with n values has n - 1 commas, so its bracket counts for the last of them.
        let values = self.opened_and_separated.saturating_add(1).saturating_mul(VALUE);
        // An object of n members has n / 6 nodes, rounded up: at most (n + 5) / 6.
        let sixths = self.filled_objects.saturating_mul(NODE_MEMBERS - 1).saturating_add(self.members);
        let nodes = sixths.div_ceil(NODE_MEMBERS).saturating_mul(NODE);
        let strings = self.strings.saturating_mul(PIECE).saturating_add(self.text);
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
    fn dense_objects_are_estimated_by_what_they_take() {
        let list = format!("[{}]", vec!["{\"a\":1}"; 8_000].join(","));
        let (_, measured) = read_measured(list.as_bytes()).unwrap();
        let estimated = max_heap_bytes(list.as_bytes());
        assert!(measured > 80 * list.len(), "{measured}");
        assert!((measured..measured + measured / 20).contains(&estimated), "{estimated} for {measured}");
        // Text takes what it is long, quotation marks and escapes included.
        let text = format!("{{\"text\":\"{}\"}}", "x{[,:\\\"".repeat(10_000));
        assert!(max_heap_bytes(text.as_bytes()) < text.len() + 2_000);
    }

    proptest! {
        #[test]
        fn no_text_takes_more_than_its_estimate(value in values(), indented in any::<bool>()) {
            let text = if indented { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let (_, measured) = read_measured(text.as_bytes()).unwrap();
            prop_assert!(measured <= max_heap_bytes(text.as_bytes()));
        }

        /// What a parser has allocated when it meets a fault is what stands before the fault.
        #[test]
        fn estimates_grow_with_their_text(value in values(), cut in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let (start, _) = text.as_bytes().split_at(cut.index(text.len()));
            prop_assert!(max_heap_bytes(start) <= max_heap_bytes(text.as_bytes()));
        }
    }
}
