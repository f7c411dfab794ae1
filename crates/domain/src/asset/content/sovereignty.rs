//! Sovereignty profiles: the permitted locations and providers of data.

use super::ContentProblem;
use serde::Deserialize;
use serde_json::Value;

/// The member states of the European Union (ISO 3166-1 alpha-2). The jurisdiction `eu` includes all of them.
const EU_MEMBERS: [&str; 27] = [
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IT", "LT", "LU", "LV",
    "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
];

/// The part of a sovereignty profile that model routes must satisfy: permitted jurisdictions, regions and providers.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct SovereigntyProfile {
    jurisdictions_allowed: Vec<String>,
    regions_allowed: Option<Vec<String>>,
    providers_allowed: Option<Vec<String>>,
}

impl SovereigntyProfile {
    /// Parses content that passed the validation of its kind.
    ///
    /// # Errors
    /// Returns a problem when the content is not a sovereignty profile.
    pub fn parse(content: &Value) -> Result<Self, Vec<ContentProblem>> {
        Self::deserialize(content)
            .map_err(|_| vec![ContentProblem::new("", "invalid_content", "the content is not a sovereignty profile")])
    }

    /// Whether data may reside in this jurisdiction. A permitted country includes its subdivisions, and `eu` includes
    /// its member states. A permitted member state does not include `eu`.
    #[must_use]
    pub fn allows_jurisdiction(&self, jurisdiction: &str) -> bool {
        let jurisdiction = jurisdiction.to_ascii_uppercase();
        let country = jurisdiction.split('-').next().unwrap_or_default();
        self.jurisdictions_allowed.iter().any(|allowed| {
            let allowed = allowed.to_ascii_uppercase();
            allowed == jurisdiction || allowed == country || (allowed == "EU" && EU_MEMBERS.contains(&country))
        })
    }

    /// Whether data may be processed in this region of a provider. A profile without a list of regions permits every
    /// region.
    #[must_use]
    pub fn allows_region(&self, region: Option<&str>) -> bool {
        self.regions_allowed
            .as_ref()
            .is_none_or(|allowed| region.is_some_and(|region| allowed.iter().any(|permitted| permitted == region)))
    }

    /// Whether a route may use this provider. A profile without a list of providers permits every provider.
    #[must_use]
    pub fn allows_provider(&self, provider: &str) -> bool {
        self.providers_allowed.as_ref().is_none_or(|allowed| allowed.iter().any(|permitted| permitted == provider))
    }
}

/// Whether a text has the form of a jurisdiction: a country (ISO 3166-1 alpha-2), a subdivision (ISO 3166-2) or `eu`.
/// It is not checked whether the country exists, because the lists of ISO change.
#[must_use]
pub fn has_jurisdiction_code_form(jurisdiction: &str) -> bool {
    let (country, part) =
        jurisdiction.split_once('-').map_or((jurisdiction, None), |(country, part)| (country, Some(part)));
    let is_country = country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_part = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_country && part.is_none_or(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accepts_only_jurisdiction_codes() {
        for jurisdiction in ["eu", "DE", "de-by", "FR-75", "GB-ENG"] {
            assert!(has_jurisdiction_code_form(jurisdiction), "{jurisdiction}");
        }
        for jurisdiction in ["", "europe", "D", "D1", "DE-", "DE-BAYERN", "DE-B-Y", "d\u{e9}", " de"] {
            assert!(!has_jurisdiction_code_form(jurisdiction), "{jurisdiction}");
        }
    }

    #[test]
    fn matches_subdivisions_and_union_members() {
        let allows = |allowed: &str, jurisdiction: &str| {
            SovereigntyProfile::parse(&json!({ "jurisdictions_allowed": [allowed] }))
                .unwrap()
                .allows_jurisdiction(jurisdiction)
        };
        for (allowed, jurisdiction, expected) in [
            ("DE", "DE", true),
            ("de", "DE", true),
            ("DE", "DE-BY", true),
            ("DE-BY", "DE", false),
            ("DE-BY", "DE-BE", false),
            ("eu", "DE", true),
            ("eu", "de-by", true),
            ("eu", "EU", true),
            ("eu", "CH", false),
            ("eu", "GB", false),
            ("DE", "eu", false),
            ("DE", "DEU", false),
            ("DE", "", false),
        ] {
            assert_eq!(allows(allowed, jurisdiction), expected, "{jurisdiction} in {allowed}");
        }
    }
}
