//! The built-in provider: deterministic and offline, for development and demonstrations.
//!
//! It answers by the first rule that applies, so equal calls have equal answers. The question is the last user message;
//! without a user message, it is the system prompt.
//!
//! 1. If the system prompt or the question has a line `One of: a, b, c`, the answer is one of these options: the option
//!    that shares most words with the question, and the first of several such options. Hints in parentheses, such as
//!    `billing (invoice, refund)`, count as words of the option and are not part of the answer.
//! 2. If the system prompt has a line `Draft: prompt_template`, the answer is a prompt template as JSON, generated from
//!    the question (see [`draft`]). If the question begins with the line `Task: use_case_bundle`, the answer is a
//!    bundle plan instead (see [`bundle`]).
//! 3. If a user message lists documents, each after its name in brackets, the answer is the first sentence of the first
//!    document, followed by the document's name: `Thirty days. [leave]`.
//! 4. If the last user message has lines `Call: name {"its": "arguments"}` for offered tools, the answer requests those
//!    calls. After the calls, the answer is the first sentence of the last tool result (see [`tools`]).
//! 5. Otherwise the answer is the first sentence of the question, cut at 280 characters.
//!
//! Embedding vectors count words (see [`embedding`]), so texts with common words have similar vectors.

mod bundle;
mod draft;
mod embedding;
mod tools;

use async_trait::async_trait;
use fairway_domain::execution::provider::{
    Completion, CompletionInput, DeltaListener, EmbeddingCall, Embeddings, Message, MessageRole, Provider,
    ProviderCall, ProviderFailure,
};
use serde_json::{Map, json};
use std::collections::BTreeSet;

/// The start of a line that lists the options of an answer.
const OPTIONS_PREFIX: &str = "One of:";
/// The start of a message that lists documents.
const DOCUMENTS_PREFIX: &str = "Documents to answer from.";
/// Maximum length of a quoted sentence, in characters.
const MAX_EXTRACT: usize = 280;

/// A provider that computes answers from the call alone, without a model. Each answer's metadata states this.
#[derive(Clone, Copy, Debug)]
pub struct LocalProvider;

#[async_trait]
impl Provider for LocalProvider {
    async fn complete(
        &self,
        call: &ProviderCall,
        _listener: Option<&dyn DeltaListener>,
    ) -> Result<Completion, ProviderFailure> {
        let conversation = &*call.conversation;
        let question = question_of(conversation);
        let tool_calls = tools::requested_calls(conversation, question);
        let answer = if let Some(tool_result) = tools::last_result(conversation) {
            Some(first_sentence(tool_result))
        } else if draft::is_requested(&conversation.system_prompt) {
            // A draft takes precedence over options, because option lines in the question are part of the text to
            // draft from.
            Some(if bundle::is_requested(question) {
                bundle::bundle_plan(question)
            } else {
                draft::prompt_template(question)
            })
        } else {
            let option = options_of(&conversation.system_prompt)
                .or_else(|| options_of(question))
                .and_then(|line| choose_option(line, question));
            option.or_else(|| conversation.messages.iter().find_map(cite_document))
        };
        let text = if tool_calls.is_empty() {
            limit_words(answer.unwrap_or_else(|| first_sentence(question)), conversation.max_tokens)
        } else {
            String::new()
        };
        let mut metadata = Map::new();
        metadata.insert("provider".to_owned(), json!("local"));
        metadata.insert("notice".to_owned(), json!("deterministic development provider, no model was asked"));
        let message_words = conversation.messages.iter().map(|message| count_words(&message.content)).sum::<u64>();
        Ok(Completion {
            tokens_in: count_words(&conversation.system_prompt).saturating_add(message_words),
            tokens_out: count_words(&text),
            text,
            tool_calls,
            metadata,
            ..Completion::default()
        })
    }

    async fn embed(&self, call: &EmbeddingCall) -> Result<Embeddings, ProviderFailure> {
        Ok(Embeddings {
            vectors: call.texts.iter().map(|text| embedding::embed(text)).collect(),
            tokens_in: call.texts.iter().map(|text| count_words(text)).sum(),
            cost_micros: None,
        })
    }

    fn residency(&self, _account_slot: &str) -> Option<&str> {
        None
    }

    fn is_local(&self, _account_slot: &str) -> bool {
        true
    }
}

/// The question of a call: the last user message, or the system prompt if there is no user message.
fn question_of(conversation: &CompletionInput) -> &str {
    let by_user = |message: &&Message| match message.role {
        MessageRole::User => true,
        MessageRole::Assistant | MessageRole::Tool => false,
    };
    conversation.messages.iter().rev().find(by_user).map_or(&*conversation.system_prompt, |message| &*message.content)
}

/// The options in the first line that lists options.
fn options_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim().strip_prefix(OPTIONS_PREFIX))
}

/// The first sentence of the first document that a user message lists, followed by the document's name.
fn cite_document(message: &Message) -> Option<String> {
    match message.role {
        MessageRole::User => {}
        MessageRole::Assistant | MessageRole::Tool => return None,
    }
    let (_, list) = message.content.strip_prefix(DOCUMENTS_PREFIX)?.split_once("\n\n[")?;
    let (name, after_name) = list.split_once(']')?;
    let (_, text) = after_name.split_once('\n')?;
    Some(format!("{} [{name}]", first_sentence(text)))
}

/// The option in `line` that shares most words with the question; `None` if the line lists no options.
fn choose_option(line: &str, question: &str) -> Option<String> {
    // The option line may be part of the question, and would match every option, so it is removed.
    let question: String = question.lines().filter(|line| options_of(line).is_none()).collect::<Vec<_>>().join("\n");
    let question = vocabulary(&question);
    let mut best: Option<(usize, String)> = None;
    for option in split_options(line) {
        let shared = vocabulary(option).intersection(&question).count();
        let name = option.split_once('(').map_or(option, |(name, _)| name).trim();
        if !name.is_empty() && best.as_ref().is_none_or(|(best_shared, _)| shared > *best_shared) {
            best = Some((shared, name.to_owned()));
        }
    }
    best.map(|(_, name)| name)
}

/// Splits a text at commas, except those in parentheses.
fn split_options(line: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    line.trim().trim_end_matches('.').split(move |character| {
        match character {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    })
}

fn vocabulary(text: &str) -> BTreeSet<String> {
    text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).map(singular).collect()
}

/// Converts a word to lower case and removes English plural endings. The result need not be a word: it only makes
/// singular and plural equal.
fn singular(word: &str) -> String {
    let word = word.to_lowercase();
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if word.ends_with(ending) {
            return word.strip_suffix("es").unwrap_or(&word).to_owned();
        }
    }
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with('s'));
    stem.unwrap_or(&word).to_owned()
}

/// The first sentence: up to a full stop, question or exclamation mark before whitespace, or the end of the line.
fn first_sentence(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut sentence = String::new();
    for (count, character) in line.chars().enumerate() {
        let is_complete = sentence.ends_with(['.', '!', '?']) && character.is_whitespace();
        if is_complete || count == MAX_EXTRACT {
            break;
        }
        sentence.push(character);
    }
    sentence.trim_end().to_owned()
}

/// Truncates a text to a number of words. The provider counts words as tokens.
fn limit_words(text: String, limit: Option<u32>) -> String {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if text.split_whitespace().count() <= limit {
        return text;
    }
    text.split_whitespace().take(limit).collect::<Vec<_>>().join(" ")
}

fn count_words(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fairway_domain::execution::provider::RouteTarget;
    use std::sync::Arc;

    /// Builds a call with a system prompt and at most one user message.
    pub(crate) fn call(system_prompt: &str, message: &str) -> ProviderCall {
        let question = (!message.is_empty()).then(|| Message::text(MessageRole::User, message.to_owned()));
        call_of(CompletionInput {
            system_prompt: system_prompt.to_owned(),
            messages: question.into_iter().collect(),
            ..CompletionInput::default()
        })
    }

    fn call_of(conversation: CompletionInput) -> ProviderCall {
        let route = RouteTarget {
            route_id: "primary".to_owned(),
            provider: "local".to_owned(),
            model: "rules".to_owned(),
            account_slot: "local".to_owned(),
        };
        ProviderCall { route, conversation: Arc::new(conversation) }
    }

    async fn answer(system_prompt: &str, message: &str) -> String {
        LocalProvider.complete(&call(system_prompt, message), None).await.unwrap().text
    }

    const TICKETS: &str =
        "Classify the ticket.\n  One of: billing (invoice, refunds), technical (error crash), account access, other.\n";

    #[tokio::test]
    async fn chooses_the_option_that_shares_most_words() {
        for (ticket, expected) in [
            ("I was charged twice, please send two refunds and a new INVOICE", "billing"),
            ("A refund, please", "billing"),
            ("The app crashes with errors", "technical"),
            ("I lost access to my accounts", "account access"),
            ("Some other matter", "other"),
            ("Nothing that matches", "billing"),
        ] {
            assert_eq!(answer(TICKETS, ticket).await, expected, "{ticket}");
        }
    }

    #[tokio::test]
    async fn drafts_a_prompt_if_the_system_prompt_requests_it() {
        let system_prompt = "You write prompts.\nDraft: prompt_template\nAnswer with JSON.";
        let text = answer(system_prompt, "Sort a `ticket` by urgency.\nOne of: high, low").await;
        let draft: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(draft["variables"], json!([{ "name": "ticket", "type": "string" }]));
        // The line requests a draft only in the system prompt, not in the question.
        assert_eq!(answer("Summarize.", "Draft: prompt_template").await, "Draft: prompt_template");
    }

    #[tokio::test]
    async fn finds_the_options_in_the_message_too() {
        assert_eq!(answer("", "The password expired.\nOne of: mail, password").await, "password");
        assert_eq!(answer("Decide.\nOne of: mail, password\nThe passwords expired", "").await, "password");
        assert_eq!(answer("One of:", "First. Second.").await, "First.");
        assert_eq!(answer("One of: , (x)", "First. Second.").await, "First.");
    }

    #[tokio::test]
    async fn cites_the_first_of_the_documents() {
        let list = "Documents to answer from. Cite them.\n\n[leave] Holidays\nThirty days. More later.\n\n[b]\nOther.";
        let call_with = |list: &str, role| {
            let messages = [(role, list), (MessageRole::User, "How many days?")];
            let messages = messages.map(|(role, text)| Message::text(role, text.to_owned())).into();
            call_of(CompletionInput { messages, ..CompletionInput::default() })
        };
        let answer = async |list: &str, role| LocalProvider.complete(&call_with(list, role), None).await.unwrap().text;
        assert_eq!(answer(list, MessageRole::User).await, "Thirty days. [leave]");
        assert_eq!(answer("Documents to answer from. None.", MessageRole::User).await, "How many days?");
        assert_eq!(
            answer(list, MessageRole::Assistant).await,
            "How many days?",
            "messages of the assistant list no documents"
        );
    }

    #[tokio::test]
    async fn answers_the_first_sentence_otherwise() {
        assert_eq!(answer("Summarize.", "  Version 1.5 is out! It is good.").await, "Version 1.5 is out!");
        assert_eq!(answer("Summarize.", "one line\nanother").await, "one line");
        assert_eq!(answer("", "").await, "");
        let long = answer("", &"é".repeat(1000)).await;
        assert_eq!(long.chars().count(), MAX_EXTRACT);
    }

    #[tokio::test]
    async fn uses_the_last_user_message() {
        let messages =
            [(MessageRole::User, "First."), (MessageRole::User, "Second."), (MessageRole::Assistant, "Third.")];
        let messages = messages.map(|(role, text)| Message::text(role, text.to_owned())).into();
        let call = call_of(CompletionInput { messages, ..CompletionInput::default() });
        assert_eq!(LocalProvider.complete(&call, None).await.unwrap().text, "Second.");
    }

    #[tokio::test]
    async fn counts_words_as_tokens_and_identifies_itself() {
        let conversation = (*call("two words", "one two three four").conversation).clone();
        let call = call_of(CompletionInput { max_tokens: Some(2), ..conversation });
        let completion = LocalProvider.complete(&call, None).await.unwrap();
        assert_eq!((completion.text.as_str(), completion.tokens_in, completion.tokens_out), ("one two", 6, 2));
        assert_eq!(
            serde_json::Value::Object(completion.metadata),
            json!({"provider": "local", "notice": "deterministic development provider, no model was asked"})
        );
    }
}
