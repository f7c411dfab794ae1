-- Runtime lists of one presentation mode, of everybody or of one owner: a rare mode is not looked for among all others.
CREATE INDEX workload_runtime_by_mode
    ON workload (tenant_id, (interface_config ->> 'presentation_mode'), workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';
CREATE INDEX workload_runtime_by_mode_owner
    ON workload (tenant_id, (interface_config ->> 'presentation_mode'), owner_ref, workload_id)
    WHERE interface_config IS NOT NULL AND status = 'registered';

-- No statement reads references by what they mean.
DROP INDEX release_reference_by_target;
