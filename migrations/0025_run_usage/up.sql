-- The tokens and the cost of a run's model calls, so that a list of runs does not read their evidence.

-- The statement that ends a run stores them. A run that a server of the previous version ended has no stored usage:
-- `has_stored_usage` is null, and readers add up the evidence of the run. The totals are null if no provider reported
-- the value. Their names differ from those in the evidence, because statements of the previous server use the latter
-- without a table.
ALTER TABLE execution ADD COLUMN has_stored_usage boolean,
    ADD COLUMN total_tokens_in bigint,
    ADD COLUMN total_tokens_out bigint,
    ADD COLUMN total_cost_micros bigint;
