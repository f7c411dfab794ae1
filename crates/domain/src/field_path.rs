//! Field paths: the location of a problem in a request, in the form that all error responses use.

/// Converts a JSON pointer (RFC 6901) below a field to a field path. `content` and `/rules/0/outcome` become
/// `content.rules[0].outcome`. A pointer token of digits counts as an index.
#[must_use]
pub fn from_pointer(field: &str, pointer: &str) -> String {
    let mut path = field.to_owned();
    for token in pointer.split('/').skip(1) {
        if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()) {
            push_index(&mut path, token);
        } else {
            push_member(&mut path, &token.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
}

/// Appends a member name to a field path.
pub fn push_member(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Appends an item index to a field path.
pub fn push_index(path: &mut String, index: impl std::fmt::Display) {
    path.push_str(&format!("[{index}]"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_pointers_to_field_paths() {
        for (field, pointer, path) in [
            ("content", "", "content"),
            ("content", "/rules/0/outcome", "content.rules[0].outcome"),
            ("content", "/a~1b/~0c", "content.a/b.~c"),
            ("content", "/matrix/1/02", "content.matrix[1][02]"),
            ("", "/name", "name"),
            ("", "/0/name", "[0].name"),
        ] {
            assert_eq!(from_pointer(field, pointer), path);
        }
    }
}
