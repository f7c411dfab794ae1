//! Parses the `Link` header of list responses.

/// The URL of the next page in a `Link` header.
pub(super) fn next_link(link: &str) -> Option<String> {
    let next = link.split(',').find(|entry| entry.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    Some(rest.split_once('>')?.0.to_owned())
}

/// The cursor in the query of a page's URL.
pub(super) fn cursor_of(link: &str) -> Option<String> {
    let (_, query) = link.split_once('?')?;
    let found = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "cursor");
    found.map(|(_, cursor)| cursor.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_next_link_among_several() {
        assert_eq!(next_link("</v1/a?cursor=x>; rel=\"next\"").as_deref(), Some("/v1/a?cursor=x"));
        assert_eq!(next_link("</a>; rel=\"prev\", </b>; rel=\"next\"").as_deref(), Some("/b"));
        assert_eq!(next_link("</a>; rel=\"prev\""), None);
    }
}
