//! Integration tests of the stores through their ports, against PostgreSQL.

#[cfg(test)]
mod commits;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod deployments;
#[cfg(test)]
mod executions;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod guards;
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
mod knowledge;
#[cfg(test)]
mod labels;
#[cfg(test)]
mod large_reads;
#[cfg(test)]
mod line;
#[cfg(test)]
mod lockstep;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod migrations;
#[cfg(test)]
#[path = "../../../../crates/domain/tests/machine/model.rs"]
mod model;
#[cfg(test)]
mod order;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod reservations;
#[cfg(test)]
mod rollouts;
#[cfg(test)]
mod run_lists;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod together;
#[cfg(test)]
mod vector_search;
#[cfg(test)]
mod vectors;
