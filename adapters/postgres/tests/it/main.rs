//! Integration tests of the stores through the domain's ports, with a real PostgreSQL.

#[cfg(test)]
mod asset_grants;
#[cfg(test)]
mod commit_guards;
#[cfg(test)]
mod commits;
#[cfg(test)]
mod delivery_states;
#[cfg(test)]
mod deployments;
#[cfg(test)]
mod erasures;
#[cfg(test)]
mod executions;
#[cfg(test)]
mod fact_log;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod group_commit;
#[cfg(test)]
mod immutability;
#[cfg(test)]
mod impact;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod ingests;
#[cfg(test)]
mod interfaces;
#[cfg(test)]
mod key_reservations;
#[cfg(test)]
mod knowledge;
#[cfg(test)]
mod large_reads;
#[cfg(test)]
mod lock_order;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod migrations;
#[cfg(test)]
#[path = "../../../../crates/domain/tests/release_model/model.rs"]
mod model;
#[cfg(test)]
mod model_conformance;
#[cfg(test)]
mod notifications;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod rollouts;
#[cfg(test)]
mod run_cost;
#[cfg(test)]
mod run_lists;
#[cfg(test)]
mod run_queue;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod use_case_lists;
#[cfg(test)]
mod vector_extension;
#[cfg(test)]
mod vector_search;
#[cfg(test)]
mod version_labels;
#[cfg(test)]
mod version_order;
