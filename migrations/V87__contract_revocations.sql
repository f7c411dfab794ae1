-- Ends of access contracts that somebody said in so many words, beside those that versions say. Nothing takes one back.
CREATE TABLE contract_revocation (
    tenant_id uuid NOT NULL,
    contract_id text NOT NULL,
    revocation_id uuid NOT NULL,
    asset_id uuid NOT NULL,
    revoked_at timestamptz NOT NULL,
    revoked_by text NOT NULL,
    PRIMARY KEY (tenant_id, contract_id),
    CONSTRAINT contract_revocation_id_key UNIQUE (tenant_id, revocation_id),
    FOREIGN KEY (tenant_id, contract_id) REFERENCES access_contract
);
SELECT fairway_make_append_only('contract_revocation');

-- Why, in people's own words.
CREATE TABLE contract_revocation_reason (
    tenant_id uuid NOT NULL,
    revocation_id uuid NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant_id, revocation_id)
);
GRANT SELECT, INSERT, DELETE ON contract_revocation_reason TO fairway_service;
