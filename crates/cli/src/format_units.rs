//! Formats durations, token counts and costs for people.

/// Formats a duration in its largest units.
pub(crate) fn milliseconds(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..=3_599_999 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Formats the numbers of input and output tokens; `None` if both are unknown.
pub(crate) fn tokens(input: Option<u64>, output: Option<u64>) -> Option<String> {
    let text = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    (input.is_some() || output.is_some()).then(|| format!("{} in, {} out", text(input), text(output)))
}

/// Formats a cost from millionths of the currency in which the model's prices are configured.
pub(crate) fn cost(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_durations_tokens_and_costs() {
        for (ms, text) in
            [(0, "0 ms"), (999, "999 ms"), (1_260, "1.2 s"), (61_000, "1 min 1 s"), (3_720_000, "1 h 2 min")]
        {
            assert_eq!(milliseconds(ms), text);
        }
        assert_eq!(tokens(Some(12), None).as_deref(), Some("12 in, - out"));
        assert_eq!(tokens(None, None), None);
        assert_eq!((cost(1_250), cost(2_000_001)), ("0.001250".to_owned(), "2.000001".to_owned()));
    }
}
