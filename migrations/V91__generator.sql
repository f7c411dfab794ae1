-- Workloads that come with Fairway, such as the generator.
ALTER TABLE workload DROP CONSTRAINT workload_management_source_check,
    ADD CONSTRAINT workload_management_source_check
    CHECK (management_source IN ('workspace_builtin', 'platform_builtin')) NOT VALID;
ALTER TABLE workload VALIDATE CONSTRAINT workload_management_source_check;
