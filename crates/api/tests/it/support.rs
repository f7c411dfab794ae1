//! Support of the tests in this directory; contains no tests.

pub(crate) mod captured_telemetry;
pub(crate) mod documented_routes;
pub(crate) mod resource_measurement;
pub(crate) mod token_scanner;
pub(crate) mod workspace_fixture;
