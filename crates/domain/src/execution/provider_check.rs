//! The check of a provider account. It sends one short request and describes the result in one sentence.

use super::provider::{
    CompletionInput, Message, MessageRole, ProviderCall, ProviderError, ProviderFailure, RouteTarget,
};
use crate::secret::ServerSecretRef;
use std::{sync::Arc, time::Duration};

/// The text of the request. Its answer is one word, so the request costs almost nothing.
const QUESTION: &str = "Answer with the single word: ready.";
/// The maximum number of output tokens. Models that reason before they answer need more tokens than the one word.
const MAX_TOKENS: u32 = 1_024;

/// A provider account, with the properties that its check reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountToCheck {
    /// The name by which model routes refer to the account.
    pub account_slot: String,
    /// The protocol of the provider, as the server's settings name it.
    pub kind: &'static str,
    /// The reference to the secret that contains the API key.
    pub secret_ref: Option<ServerSecretRef>,
    /// The model that the check calls, if one is configured.
    pub model: Option<String>,
}

/// The result of the check of one account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckResult {
    /// The model answered after this time.
    Answered(Duration),
    /// The account has no model that the check can call.
    NoModel,
    /// The call failed, or the key could not be read.
    Failed(ProviderFailure),
}

impl AccountToCheck {
    /// The provider call that sends the check's request to a model of this account.
    #[must_use]
    pub fn provider_check_call(&self, model: &str) -> ProviderCall {
        let route = RouteTarget {
            route_id: "check".to_owned(),
            provider: self.account_slot.clone(),
            model: model.to_owned(),
            account_slot: self.account_slot.clone(),
        };
        let conversation = CompletionInput {
            messages: vec![Message::text(MessageRole::User, QUESTION.to_owned())],
            max_tokens: Some(MAX_TOKENS),
            ..CompletionInput::default()
        };
        ProviderCall { route, conversation: Arc::new(conversation) }
    }

    /// Describes a result in one sentence. It contains no address, no key and no text of the provider.
    #[must_use]
    pub fn sentence(&self, result: &CheckResult) -> String {
        let description = match result {
            CheckResult::Answered(latency) => {
                let model = self.model.as_deref().unwrap_or_default();
                format!("model `{model}` answered in {} ms", latency.as_millis())
            }
            CheckResult::NoModel => "no model to ask: set its `test_model`, or pass `--model`".to_owned(),
            CheckResult::Failed(failure) => self.describe_failure(failure),
        };
        format!("{}: {description}", self.account_slot)
    }

    fn describe_failure(&self, failure: &ProviderFailure) -> String {
        if let Some(sentence) = failure.cause.and_then(|cause| self.describe_cause(cause)) {
            return sentence;
        }
        let status = failure.status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
        let model = self.model.as_deref().unwrap_or_default();
        match (failure.error, &self.secret_ref) {
            (ProviderError::KeyRefused, Some(secret)) => {
                format!("the provider refused the key{status}: check the value of `{secret}`")
            }
            (ProviderError::KeyRefused, None) => format!("the provider requires a key{status}: set `secret_ref`"),
            (ProviderError::UnknownModel, _) => {
                format!("the provider does not have the model `{model}`{status}: check its name, and your access to it")
            }
            (ProviderError::ContentRefused, _) => {
                format!("the content rules of the provider refused a harmless question{status}")
            }
            (ProviderError::Busy, _) => {
                format!("the rate limit or the quota of the account is exhausted{status}: wait, or raise it")
            }
            (ProviderError::Unavailable, _) => format!("the provider is not available{status}: try again later"),
            (ProviderError::TimedOut, _) => format!("no answer arrived within the `timeout` of the account{status}"),
            (ProviderError::Refused, _) if failure.status == Some(404) => {
                format!("the address has no API of the kind `{}`{status}: check `base_url`", self.kind)
            }
            (ProviderError::Refused, _) => {
                format!("the provider refused the question{status}: check that `{model}` is a chat model")
            }
            (ProviderError::Malformed, _) => {
                format!("the response is not one of the kind `{}`: check `kind` and `base_url`", self.kind)
            }
            (ProviderError::UnknownAccount, _) => "this server has no such account".to_owned(),
            (ProviderError::Unsupported, _) => "the provider does not support this question".to_owned(),
        }
    }

    /// The sentence for a failed connection or an unreadable API key; `None` for other causes.
    fn describe_cause(&self, cause: &'static str) -> Option<String> {
        let secret = self.secret_ref.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(match cause {
            "secret_missing" => {
                format!("the key is missing: `{secret}` does not exist where the server runs")
            }
            "secret_malformed" => {
                format!("the value of `{secret}` cannot be a key: it is empty, too long, or has invalid characters")
            }
            "secret_backend_not_configured" => format!("no vault is configured, so `{secret}` cannot be read"),
            "secret_backend_unavailable" | "secret_foreign" => format!("the secret `{secret}` cannot be read"),
            "egress_unresolved" => "the host name of `base_url` cannot be resolved".to_owned(),
            "egress_unreachable" => "nothing accepts connections at `base_url`".to_owned(),
            "egress_tls" => "TLS failed: the certificate of `base_url` is not trusted, or its server does not use TLS \
                             (a private authority is added by `SSL_CERT_FILE`)"
                .to_owned(),
            "egress_broken" => "the server at `base_url` closed the connection without a response".to_owned(),
            "egress_redirected" => {
                "`base_url` redirects, and redirections are not followed: use the final address".to_owned()
            }
            "egress_timeout" => "no answer arrived within the `timeout` of the account".to_owned(),
            "egress_network"
            | "egress_port"
            | "egress_scheme"
            | "egress_too_many_addresses"
            | "egress_no_address"
            | "egress_credentials"
            | "egress_elsewhere" => {
                format!("the egress guard refuses the address of `base_url` ({cause})")
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretError;

    fn account(secret_ref: Option<&str>) -> AccountToCheck {
        AccountToCheck {
            account_slot: "openai".to_owned(),
            kind: "openai",
            secret_ref: secret_ref.map(|text| ServerSecretRef::parse(text).unwrap()),
            model: Some("small".to_owned()),
        }
    }

    #[test]
    fn every_failure_has_its_own_sentence() {
        let account = account(Some("env:KEY"));
        let with_status = |error: ProviderError| ProviderFailure { status: Some(418), ..error.into() };
        let errors = ProviderError::ALL.map(with_status);
        let secrets = SecretError::ALL
            .into_iter()
            .filter(|error| *error != SecretError::OtherTenant)
            .map(|error| ProviderFailure::caused_by(ProviderError::Unavailable, error.code()));
        let egress = ["unresolved", "unreachable", "tls", "broken", "redirected", "timeout", "network", "port"];
        let egress = egress.map(|name| {
            let code: &'static str = format!("egress_{name}").leak();
            ProviderFailure::caused_by(ProviderError::Unavailable, code)
        });
        let mut sentences: Vec<String> = errors
            .into_iter()
            .chain(secrets)
            .chain(egress)
            .map(|failure| account.sentence(&CheckResult::Failed(failure)))
            .collect();
        let count = sentences.len();
        sentences.sort();
        sentences.dedup();
        assert_eq!(sentences.len(), count, "{sentences:#?}");
        assert!(sentences.iter().all(|sentence| sentence.starts_with("openai: ")), "{sentences:#?}");
    }

    #[test]
    fn names_the_setting_to_change() {
        let sentence = |account: &AccountToCheck, failure| account.sentence(&CheckResult::Failed(failure));
        let key_refused = ProviderFailure { status: Some(401), ..ProviderError::KeyRefused.into() };
        assert_eq!(
            sentence(&account(Some("env:KEY")), key_refused),
            "openai: the provider refused the key (HTTP 401): check the value of `env:KEY`"
        );
        assert_eq!(
            sentence(&account(None), key_refused),
            "openai: the provider requires a key (HTTP 401): set `secret_ref`"
        );
        let not_found = ProviderFailure { status: Some(404), ..ProviderError::Refused.into() };
        assert_eq!(
            sentence(&account(None), not_found),
            "openai: the address has no API of the kind `openai` (HTTP 404): check `base_url`"
        );
        let answered = CheckResult::Answered(Duration::from_millis(7));
        assert_eq!(account(None).sentence(&answered), "openai: model `small` answered in 7 ms");
    }
}
