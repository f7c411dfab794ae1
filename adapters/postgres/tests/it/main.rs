//! Integration tests of the stores through the domain's ports, with a real PostgreSQL.

#[cfg(test)]
mod asset_grants_of_many_assets;
#[cfg(test)]
mod commit_cases;
#[cfg(test)]
mod commit_guards;
#[cfg(test)]
mod concurrent_ingests;
#[cfg(test)]
mod concurrent_lane_changes;
#[cfg(test)]
mod contract_revocations;
#[cfg(test)]
mod delivery_states;
#[cfg(test)]
mod erasure_batches;
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
mod impact_limit;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod key_reservations;
#[cfg(test)]
mod knowledge_search;
#[cfg(test)]
mod large_reads;
#[cfg(test)]
mod lock_order;
#[cfg(test)]
mod memory_with_many_turns;
#[cfg(test)]
mod migrations;
#[cfg(test)]
#[path = "../../../../crates/domain/tests/release_model/model.rs"]
mod model;
#[cfg(test)]
mod model_conformance;
#[cfg(test)]
mod notification_projection;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod reembedding;
#[cfg(test)]
mod release_reads;
#[cfg(test)]
mod run_lists;
#[cfg(test)]
mod run_queue;
#[cfg(test)]
mod run_round_trips_and_wal;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod settings_changes;
#[cfg(test)]
mod soak_status;
#[cfg(test)]
mod use_case_list_cost;
#[cfg(test)]
mod vector_extension;
#[cfg(test)]
mod vector_search_limit;
#[cfg(test)]
mod version_labels;
#[cfg(test)]
mod version_order;
#[cfg(test)]
mod workload_interfaces;
