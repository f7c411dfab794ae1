//! Scans texts and bytes for many tokens, in every spelling in which one might be stored.

use fairway_testkit::TestDatabase;
use std::collections::HashMap;

/// Everything that the database holds, as text. Bytes are shown in hex.
pub(crate) async fn dump(database: &TestDatabase) -> String {
    let owner = database.owner().await.unwrap();
    let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = 'public'::regnamespace";
    let mut all = String::new();
    for table in owner.query(tables, &[]).await.unwrap() {
        let sql =
            format!("SELECT coalesce(string_agg(row::text, E'\\n'), '') FROM \"{}\" AS row", table.get::<_, &str>(0));
        all += owner.query_one(&sql, &[]).await.unwrap().get(0);
    }
    all
}

/// Spellings are told apart by their first bytes.
const START: usize = 16;
/// One bit for each three bytes that a spelling may begin with.
const STARTS: usize = 1 << 24;

/// Finds any of many tokens, in any spelling.
pub(crate) struct TokenScanner<'t> {
    /// Most places of a text are passed over by this alone.
    begins: Vec<bool>,
    known: HashMap<[u8; START], Vec<(Vec<u8>, &'t str)>>,
}

fn index(bytes: &[u8]) -> Option<usize> {
    let [first, second, third] = bytes.first_chunk()?.map(usize::from);
    Some(first << 16 | second << 8 | third)
}

impl<'t> TokenScanner<'t> {
    pub(crate) fn of(tokens: &'t [String]) -> Self {
        let (mut begins, mut known) = (vec![false; STARTS], HashMap::<_, Vec<_>>::new());
        for token in tokens {
            for spelling in spellings(token) {
                begins[index(&spelling).unwrap()] = true;
                known.entry(*spelling.first_chunk().unwrap()).or_default().push((spelling, token.as_str()));
            }
        }
        Self { begins, known }
    }

    /// The first token that the bytes hold.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<&'t str> {
        (0..bytes.len()).find_map(|at| {
            let rest = &bytes[at..];
            if !self.begins[index(rest)?] {
                return None;
            }
            let candidates = self.known.get(rest.first_chunk()?)?;
            candidates.iter().find(|(spelling, _)| rest.starts_with(spelling)).map(|(_, token)| *token)
        })
    }
}

/// A token in the spellings in which it might be stored: as it is, as the bytes that it stands for, and either of them in
/// hexadecimal, in base64 of both alphabets and percent-encoded.
pub(crate) fn spellings(token: &str) -> Vec<Vec<u8>> {
    let secret = &token[token.len() - 43..];
    let decoded = decoded(secret);
    let mut all = vec![secret.as_bytes().to_vec(), decoded.clone(), standard(secret).into_bytes()];
    for bytes in [token.as_bytes(), secret.as_bytes(), &decoded] {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
        all.extend([hex.to_uppercase(), percent.to_uppercase(), hex, percent].map(String::into_bytes));
        // In base64 bytes look different behind none, one and two others; the edges depend on the neighbours.
        for before in 0..3 {
            let encoded = encoded(&[&vec![0; before], bytes].concat());
            let middle = &encoded[4..encoded.len() - 4];
            all.extend([middle.to_owned(), standard(middle)].map(String::into_bytes));
        }
    }
    all
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The same in the alphabet that is not made for addresses.
fn standard(base64url: &str) -> String {
    base64url.replace('-', "+").replace('_', "/")
}

fn decoded(text: &str) -> Vec<u8> {
    let bits: String =
        text.bytes().map(|byte| format!("{:06b}", ALPHABET.iter().position(|one| *one == byte).unwrap())).collect();
    bits.as_bytes()
        .chunks_exact(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect()
}

fn encoded(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let letter =
        |bits: &[u8]| char::from(ALPHABET[usize::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap()]);
    bits.as_bytes().chunks_exact(6).map(letter).collect()
}
