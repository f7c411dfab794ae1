//! Forbidden dependencies between packages.

use anyhow::{Context, Result};

use crate::workspace_packages::Package;

/// The forbidden direct and indirect dependencies of a package.
#[derive(Debug)]
pub(crate) struct DependencyRule {
    pub(crate) package: String,
    /// Package names; a trailing `*` matches any suffix.
    forbidden: Vec<String>,
    /// Forbidden features by package.
    forbidden_features: &'static [(&'static str, &'static [&'static str])],
}

/// Packages that the domain must not depend on: async runtimes, network and database clients.
const FORBIDDEN_IN_DOMAIN: &[&str] =
    &["tokio", "tokio-*", "deadpool*", "diesel*", "actix*", "reqwest", "hyper", "hyper-*", "object_store"];

/// Packages that `crates/operations` must not depend on, because it calls technologies through ports.
const FORBIDDEN_IN_OPERATIONS: &[&str] =
    &["tokio-postgres*", "deadpool*", "diesel*", "actix*", "reqwest", "hyper", "object_store"];

/// Package features that add a clock or randomness, which the domain receives as arguments instead. The clock of
/// `time` comes with its feature `std`, which the domain needs, so `crates/domain/clippy.toml`
/// forbids the clock's functions.
const FORBIDDEN_FEATURES: &[(&str, &[&str])] = &[
    ("uuid", &["v1", "v4", "v6", "v7", "rng", "rng-getrandom", "rng-rand", "fast-rng", "js"]),
    ("time", &["local-offset", "rand", "rand08", "rand09", "wasm-bindgen"]),
];

/// Packages that operations, adapters and the API use. They must depend on no other workspace package, to prevent
/// cyclic dependencies.
const LEAF_PACKAGES: [&str; 2] = ["crates/fair_queue", "crates/memory_limit"];

/// The dependency rules of the domain, of operations, of each adapter and of the leaf packages among `packages`.
pub(crate) fn rules(packages: &[Package]) -> Result<Vec<DependencyRule>> {
    let adapters: Vec<&str> =
        packages.iter().filter(|package| package.is_adapter()).map(|package| package.name.as_str()).collect();
    let mut rules = Vec::new();
    for (folder, required) in [("crates/domain", true), ("crates/operations", true), ("crates/cli", false)] {
        let package = packages.iter().find(|package| package.folder.as_os_str() == folder);
        let package = match (package, required) {
            (Some(package), _) => package,
            (None, true) => return Err(anyhow::anyhow!("there is no package in {folder}")),
            (None, false) => continue,
        };
        let (technologies, features): (&[&str], _) = match folder {
            "crates/domain" => (FORBIDDEN_IN_DOMAIN, FORBIDDEN_FEATURES),
            "crates/operations" => (FORBIDDEN_IN_OPERATIONS, &[] as &[_]),
            _ => (
                &[
                    "fairway-operations",
                    "fairway-api",
                    "fairway-egress",
                    "tokio",
                    "tokio-postgres*",
                    "deadpool*",
                    "actix*",
                ],
                &[] as &[_],
            ),
        };
        let forbidden = technologies.iter().chain(&adapters).map(|name| (*name).to_owned()).collect();
        rules.push(DependencyRule { package: package.name.clone(), forbidden, forbidden_features: features });
    }
    for adapter in &adapters {
        let other_adapters = adapters.iter().filter(|other| *other != adapter);
        let forbidden =
            ["fairway-operations", "fairway-api"].iter().chain(other_adapters).map(|name| (*name).to_owned()).collect();
        rules.push(DependencyRule { package: (*adapter).to_owned(), forbidden, forbidden_features: &[] });
    }
    let is_leaf = |package: &&Package| LEAF_PACKAGES.iter().any(|folder| package.folder.as_os_str() == *folder);
    for leaf in packages.iter().filter(is_leaf) {
        let other_packages = packages.iter().filter(|other| other.name != leaf.name).map(|other| other.name.clone());
        rules.push(DependencyRule {
            package: leaf.name.clone(),
            forbidden: other_packages.collect(),
            forbidden_features: &[],
        });
    }
    if adapters.is_empty() {
        return Err(anyhow::anyhow!("no package in adapters/")).context("reading the workspace");
    }
    Ok(rules)
}

/// The violations of a rule in the output of `cargo tree`, whose lines are `name vVERSION … features`.
pub(crate) fn violations(rule: &DependencyRule, tree: &str) -> Vec<String> {
    let mut found: Vec<String> = tree.lines().flat_map(|line| violations_in_line(rule, line)).collect();
    found.sort();
    found.dedup();
    found
}

fn violations_in_line(rule: &DependencyRule, line: &str) -> Vec<String> {
    let mut words = line.split_whitespace();
    let Some(name) = words.next() else { return Vec::new() };
    let mut found = Vec::new();
    if rule.forbidden.iter().any(|pattern| matches(pattern, name)) {
        found.push(format!("{} is built with {name}", rule.package));
    }
    // The last field lists the features, separated by commas. The fields before it (version, source, `(*)`) never
    // equal a feature.
    let enabled_features: Vec<&str> = words.flat_map(|word| word.split(',')).collect();
    for (_, features) in rule.forbidden_features.iter().filter(|(package, _)| *package == name) {
        let forbidden_features = features.iter().filter(|feature| enabled_features.contains(feature));
        found.extend(
            forbidden_features.map(|feature| format!("{} is built with the feature {feature} of {name}", rule.package)),
        );
    }
    found
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Vec<Package> {
        vec![
            Package::fake("fairway-domain", "crates/domain"),
            Package::fake("fairway-operations", "crates/operations"),
            Package::fake("fairway-cli", "crates/cli"),
            Package::fake("fairway-fair-queue", "crates/fair_queue"),
            Package::fake("fairway-memory-limit", "crates/memory_limit"),
            Package::fake("fairway-postgres", "adapters/postgres"),
            Package::fake("fairway-artifacts", "adapters/artifacts"),
        ]
    }

    fn violations_of(package: &str, tree: &str) -> Vec<String> {
        let rules = rules(&workspace()).unwrap();
        violations(rules.iter().find(|rule| rule.package == package).unwrap(), tree)
    }

    #[test]
    fn accepts_a_pure_domain() {
        let tree = "fairway-domain v0.1.0 (/checkout/crates/domain) \nuuid v1.26.0 serde,std\n\
                    time v0.3.44 alloc,formatting,macros,parsing,serde,std\nserde v1.0.228 (*)\n\n";
        assert_eq!(violations_of("fairway-domain", tree), [""; 0]);
    }

    #[test]
    fn rejects_runtime_network_and_database_in_the_domain() {
        for name in ["tokio", "tokio-postgres", "deadpool-postgres", "diesel", "actix-web", "reqwest", "hyper"] {
            let tree = format!("fairway-domain v0.1.0\n{name} v1.2.3 default\n");
            assert_eq!(violations_of("fairway-domain", &tree), [format!("fairway-domain is built with {name}")]);
        }
    }

    #[test]
    fn rejects_clock_and_randomness_features_in_the_domain() {
        let found = violations_of("fairway-domain", "uuid v1.26.0 serde,std,v7 (*)\ntime v0.3.44 local-offset,std\n");
        let expected = [
            "fairway-domain is built with the feature local-offset of time",
            "fairway-domain is built with the feature v7 of uuid",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn operations_may_use_a_runtime_but_no_adapter() {
        assert_eq!(violations_of("fairway-operations", "tokio v1.54.0 rt\ntokio-util v0.7.1\n"), [""; 0]);
        assert_eq!(violations_of("fairway-operations", "tokio-postgres v0.7.1\n").len(), 1);
        assert_eq!(violations_of("fairway-operations", "fairway-postgres v0.1.0\n").len(), 1);
    }

    #[test]
    fn adapters_depend_on_neither_operations_nor_adapters() {
        assert_eq!(violations_of("fairway-postgres", "fairway-postgres v0.1.0\nfairway-domain v0.1.0\n"), [""; 0]);
        assert_eq!(violations_of("fairway-postgres", "fairway-artifacts v0.1.0\n").len(), 1);
        assert_eq!(violations_of("fairway-artifacts", "fairway-operations v0.1.0\n").len(), 1);
    }

    #[test]
    fn command_line_depends_on_no_adapter() {
        assert_eq!(violations_of("fairway-cli", "ureq v3.5.2\nfairway-domain v0.1.0\n"), [""; 0]);
        assert_eq!(
            violations_of("fairway-cli", "tokio v1.54.0 rt\n").len(),
            1,
            "the command must start within milliseconds"
        );
        assert_eq!(violations_of("fairway-cli", "fairway-postgres v0.1.0\n").len(), 1);
    }

    #[test]
    fn leaf_packages_depend_on_no_workspace_package() {
        for leaf in ["fairway-fair-queue", "fairway-memory-limit"] {
            assert_eq!(violations_of(leaf, &format!("{leaf} v0.1.0\ntokio v1.54.0 sync\n")), [""; 0]);
            for name in ["fairway-domain", "fairway-operations", "fairway-postgres", "fairway-cli"] {
                let tree = format!("{leaf} v0.1.0\n{name} v0.1.0\n");
                assert_eq!(violations_of(leaf, &tree), [format!("{leaf} is built with {name}")]);
            }
        }
    }

    #[test]
    fn rejects_a_workspace_without_core_packages() {
        let packages = workspace().into_iter().filter(|package| package.name != "fairway-domain").collect::<Vec<_>>();
        assert!(rules(&packages).is_err());
    }
}
