-- What a review did not approve is erased with the verdict: the answer, the words beside the evidence, and the answers of
-- providers that were kept for a worker that resumes the run. The events of the run stay, so that their numbers do.
GRANT UPDATE (answer) ON execution_progress TO fairway_service;

-- Runs of before. A run that was denied or cancelled and had an answer was under review: no other run has one.
DELETE FROM evidence_payload AS payload
USING execution_exception AS ended, execution AS run, evidence_artifact AS artifact
WHERE ended.status IN ('denied', 'cancelled')
    AND run.tenant_id = ended.tenant_id AND run.execution_id = ended.execution_id AND run.output_digest IS NOT NULL
    AND payload.tenant_id = ended.tenant_id AND payload.execution_id = ended.execution_id
    AND artifact.tenant_id = payload.tenant_id AND artifact.execution_id = payload.execution_id
    AND artifact.artifact_id = payload.artifact_id AND artifact.artifact_kind <> 'review';
UPDATE execution_progress AS progress SET answer = NULL
FROM execution_exception AS ended, execution AS run
WHERE ended.status IN ('denied', 'cancelled')
    AND run.tenant_id = ended.tenant_id AND run.execution_id = ended.execution_id AND run.output_digest IS NOT NULL
    AND progress.tenant_id = ended.tenant_id AND progress.execution_id = ended.execution_id
    AND progress.answer IS NOT NULL;
