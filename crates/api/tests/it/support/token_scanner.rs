//! Searches texts and bytes for many tokens, in every encoding in which the server might store a token.

use fairway_testkit::TestDatabase;
use std::collections::HashMap;

/// All rows of the database as text. Binary values are in hexadecimal.
pub(crate) async fn dump_database(database: &TestDatabase) -> String {
    let owner = database.connect_as_owner().await.unwrap();
    let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = 'public'::regnamespace";
    let mut text = String::new();
    for table in owner.query(tables, &[]).await.unwrap() {
        let sql =
            format!("SELECT coalesce(string_agg(row::text, E'\\n'), '') FROM \"{}\" AS row", table.get::<_, &str>(0));
        text += owner.query_one(&sql, &[]).await.unwrap().get(0);
    }
    text
}

/// Number of leading bytes by which spellings are indexed.
const PREFIX_LENGTH: usize = 16;
/// Number of possible three-byte prefixes of a spelling.
const PREFIX_COUNT: usize = 1 << 24;

/// Finds any of many tokens, in any of their spellings.
pub(crate) struct TokenScanner<'t> {
    /// For each three-byte prefix, whether a spelling starts with it. This check skips most positions of a text.
    prefixes: Vec<bool>,
    spellings: HashMap<[u8; PREFIX_LENGTH], Vec<(Vec<u8>, &'t str)>>,
}

fn prefix_index(bytes: &[u8]) -> Option<usize> {
    let [first, second, third] = bytes.first_chunk()?.map(usize::from);
    Some(first << 16 | second << 8 | third)
}

impl<'t> TokenScanner<'t> {
    pub(crate) fn new(tokens: &'t [String]) -> Self {
        let (mut prefixes, mut spellings) = (vec![false; PREFIX_COUNT], HashMap::<_, Vec<_>>::new());
        for token in tokens {
            for spelling in token_spellings(token) {
                prefixes[prefix_index(&spelling).unwrap()] = true;
                spellings.entry(*spelling.first_chunk().unwrap()).or_default().push((spelling, token.as_str()));
            }
        }
        Self { prefixes, spellings }
    }

    /// The first token that occurs in the bytes.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&'t str> {
        (0..bytes.len()).find_map(|offset| {
            let remaining = &bytes[offset..];
            if !self.prefixes[prefix_index(remaining)?] {
                return None;
            }
            let candidates = self.spellings.get(remaining.first_chunk()?)?;
            candidates.iter().find(|(spelling, _)| remaining.starts_with(spelling)).map(|(_, token)| *token)
        })
    }
}

/// The spellings in which a token might be stored. Both its text and its decoded bytes may occur directly, in
/// hexadecimal, in base64 of both alphabets, and percent-encoded.
pub(crate) fn token_spellings(token: &str) -> Vec<Vec<u8>> {
    let secret = &token[token.len() - 43..];
    let decoded = decode_base64url(secret);
    let mut spellings = vec![secret.as_bytes().to_vec(), decoded.clone(), to_standard_base64(secret).into_bytes()];
    for bytes in [token.as_bytes(), secret.as_bytes(), &decoded] {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
        spellings.extend([hex.to_uppercase(), percent.to_uppercase(), hex, percent].map(String::into_bytes));
        // Base64 of embedded bytes depends on their offset modulo three. Its first and last characters also depend
        // on neighbouring bytes.
        for prefix_length in 0..3 {
            let encoded = encode_base64url(&[&vec![0; prefix_length], bytes].concat());
            let middle = &encoded[4..encoded.len() - 4];
            spellings.extend([middle.to_owned(), to_standard_base64(middle)].map(String::into_bytes));
        }
    }
    spellings
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Converts base64url to the standard base64 alphabet.
fn to_standard_base64(base64url: &str) -> String {
    base64url.replace('-', "+").replace('_', "/")
}

fn decode_base64url(text: &str) -> Vec<u8> {
    let bits: String = text
        .bytes()
        .map(|byte| format!("{:06b}", ALPHABET.iter().position(|candidate| *candidate == byte).unwrap()))
        .collect();
    bits.as_bytes()
        .chunks_exact(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect()
}

fn encode_base64url(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let to_character =
        |bits: &[u8]| char::from(ALPHABET[usize::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap()]);
    bits.as_bytes().chunks_exact(6).map(to_character).collect()
}
