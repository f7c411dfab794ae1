-- A month's partition begins empty and without statistics. There every index whose leading columns fit costs the
-- planner the same, and of equals it takes the youngest: that was the index by release, which finds one run only by
-- reading all of its tenant's. With the primary key made last, the tie falls to the key, and so in every partition to
-- come, because a partition gets its indexes in the order of its parent's.
ALTER TABLE execution DROP CONSTRAINT execution_pkey, ADD PRIMARY KEY (tenant_id, execution_id);
