//! Computes embedding vectors without a model, by feature hashing.
//!
//! A text is split into words: lower-case runs of letters and digits. Each word is hashed with BLAKE3. The first four
//! bytes of the hash, as a little-endian number, select one of 256 dimensions. The lowest bit of the fifth byte selects
//! the sign with which the word counts, so that collisions cancel on average. The sum is scaled to length 1. A text
//! without words has the zero vector. Equal texts have equal vectors on every machine and in every version of Fairway.

/// The number of dimensions of a vector.
const DIMENSIONS: usize = 256;

/// Computes the vector of a text.
pub(super) fn embed(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0_f32; DIMENSIONS];
    for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let hash = blake3::hash(word.to_lowercase().as_bytes());
        let [a, b, c, d, sign, ..] = *hash.as_bytes();
        let dimension = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(0) % DIMENSIONS;
        if let Some(count) = vector.get_mut(dimension) {
            *count += if sign & 1 == 0 { 1.0 } else { -1.0 };
        }
    }
    let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|part| *part /= length);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(left: &str, right: &str) -> f32 {
        embed(left).iter().zip(embed(right)).map(|(left, right)| left * right).sum()
    }

    #[test]
    fn texts_with_common_words_are_similar() {
        let refund = "How do I get a refund for my invoice?";
        assert!((similarity(refund, "how do I get A REFUND for my: invoice") - 1.0).abs() < 1e-5);
        let similar = similarity(refund, "A refund for an invoice takes three days.");
        let different = similarity(refund, "Passwords expire after ninety nights.");
        assert!(similar > 0.3 && different.abs() < 0.2, "{similar} {different}");
    }

    #[test]
    fn vectors_are_normalized_and_stable() {
        let vector = embed("Fairway");
        assert_eq!(vector.len(), DIMENSIONS);
        let set: Vec<(usize, f32)> = vector.into_iter().enumerate().filter(|(_, part)| *part != 0.0).collect();
        assert_eq!(set, [(119, -1.0)]);
        assert!(embed(" …  ").iter().all(|part| *part == 0.0));
    }
}
