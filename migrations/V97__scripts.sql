-- Runs that are scripts. Nobody goes on with one elsewhere: whether it was handed over died with who held its lease.
ALTER TABLE execution_lease ADD COLUMN script boolean NOT NULL DEFAULT false;

-- A person who settles an unknown run takes it away from among the runs without an answer, or to those that failed.
GRANT DELETE ON execution_exception TO fairway_service;
