//! The tables, as the migrations make them. Written by `cargo xtask schema`; do not edit.
//!
//! Columns of types that diesel does not know (`tsvector`, `vector`) are left out.

diesel::table! {
    access_contract (tenant_id, contract_id) {
        tenant_id -> Uuid,
        contract_id -> Text,
        asset_id -> Uuid,
        revoked -> Bool,
    }
}

diesel::table! {
    access_request (tenant_id, access_request_id) {
        tenant_id -> Uuid,
        access_request_id -> Uuid,
        workspace_id -> Uuid,
        use_case_id -> Uuid,
        connection_name -> Text,
        status -> Text,
        connection_id -> Nullable<Uuid>,
        reason -> Nullable<Text>,
        requested_by -> Text,
        created_at -> Timestamptz,
        decided_by -> Nullable<Text>,
        decided_at -> Nullable<Timestamptz>,
        revision -> BigInt,
    }
}

diesel::table! {
    announcement (tenant_id, announcement_id) {
        tenant_id -> Uuid,
        announcement_id -> Uuid,
        title -> Text,
        body -> Text,
        audience_roles -> Array<Text>,
        audience_workspaces -> Array<Uuid>,
        created_at -> Timestamptz,
        created_by -> Text,
        text_salt -> Nullable<Bytea>,
    }
}

diesel::table! {
    approval (tenant_id, approval_id) {
        tenant_id -> Uuid,
        approval_id -> Uuid,
        release_id -> Uuid,
        outcome -> Text,
        subject_digest -> Text,
        approved_by -> Text,
        approved_at -> Timestamptz,
        release_revision -> BigInt,
        recorded_at -> Timestamptz,
    }
}

diesel::table! {
    approval_note (tenant_id, approval_id) {
        tenant_id -> Uuid,
        approval_id -> Uuid,
        body -> Text,
    }
}

diesel::table! {
    asset (tenant_id, asset_id) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        slug -> Text,
        asset_kind -> Text,
        owner_ref -> Text,
        lifecycle_state -> Text,
        ownership_tier -> Text,
        workspace_id -> Uuid,
        namespace_id -> Uuid,
        last_label -> BigInt,
        last_ordinal -> BigInt,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    asset_grant (tenant_id, grant_id) {
        tenant_id -> Uuid,
        grant_id -> Uuid,
        asset_id -> Uuid,
        principal -> Nullable<Text>,
        grantee_workspace_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    asset_reference (tenant_id, asset_version_id, position) {
        tenant_id -> Uuid,
        asset_version_id -> Uuid,
        position -> Integer,
        target_slug -> Text,
        target_label -> Nullable<Text>,
        pointer -> Text,
    }
}

diesel::table! {
    asset_version (tenant_id, asset_version_id) {
        tenant_id -> Uuid,
        asset_version_id -> Uuid,
        asset_id -> Uuid,
        version_label -> Text,
        ordinal -> BigInt,
        content -> Text,
        artifact_ref -> Text,
        checksum -> Text,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    asset_version_note (tenant_id, asset_version_id) {
        tenant_id -> Uuid,
        asset_version_id -> Uuid,
        body -> Text,
    }
}

diesel::table! {
    asset_version_source (tenant_id, asset_version_id) {
        tenant_id -> Uuid,
        asset_version_id -> Uuid,
        body -> Text,
    }
}

diesel::table! {
    bound_principal (principal) {
        principal -> Text,
    }
}

diesel::table! {
    chore (name) {
        name -> Text,
        due_at -> Timestamptz,
    }
}

diesel::table! {
    connection (tenant_id, connection_id) {
        tenant_id -> Uuid,
        connection_id -> Uuid,
        workspace_id -> Uuid,
        name -> Text,
        connector_kind -> Text,
        endpoint -> Nullable<Text>,
        secret_bindings -> Jsonb,
        expires_at -> Nullable<Timestamptz>,
        status -> Text,
        health -> Text,
        health_code -> Nullable<Text>,
        checked_at -> Nullable<Timestamptz>,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    connection_check (tenant_id, connection_check_id) {
        tenant_id -> Uuid,
        connection_check_id -> Uuid,
        connection_id -> Uuid,
        health -> Text,
        health_code -> Nullable<Text>,
        checked_at -> Timestamptz,
        checked_by -> Text,
    }
}

diesel::table! {
    connection_expiry_notice (tenant_id, connection_id, expires_at, days) {
        tenant_id -> Uuid,
        connection_id -> Uuid,
        expires_at -> Timestamptz,
        days -> Integer,
        noticed_at -> Timestamptz,
    }
}

diesel::table! {
    context_lineage (tenant_id, execution_id, lineage_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        lineage_id -> Uuid,
        origin -> Text,
        influence_role -> Text,
        action_class -> Text,
        #[sql_name = "ref"]
        ref_ -> Text,
        digest -> Bytea,
        size_bytes -> BigInt,
        untrusted_reason -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    contract_revocation (tenant_id, contract_id) {
        tenant_id -> Uuid,
        contract_id -> Text,
        revocation_id -> Uuid,
        asset_id -> Uuid,
        revoked_at -> Timestamptz,
        revoked_by -> Text,
    }
}

diesel::table! {
    contract_revocation_reason (tenant_id, revocation_id) {
        tenant_id -> Uuid,
        revocation_id -> Uuid,
        body -> Text,
    }
}

diesel::table! {
    deployment (tenant_id, workload_id, environment) {
        tenant_id -> Uuid,
        workload_id -> Uuid,
        environment -> Text,
        restricted_release_id -> Nullable<Uuid>,
        guided_release_id -> Nullable<Uuid>,
        standard_release_id -> Nullable<Uuid>,
        revision -> BigInt,
        soaking_lanes -> Array<Text>,
    }
}

diesel::table! {
    deployment_history (tenant_id, workload_id, environment, revision, lane) {
        tenant_id -> Uuid,
        workload_id -> Uuid,
        environment -> Text,
        revision -> BigInt,
        lane -> Text,
        from_release_id -> Nullable<Uuid>,
        to_release_id -> Nullable<Uuid>,
        reason -> Text,
        actor -> Text,
        moved_at -> Timestamptz,
    }
}

diesel::table! {
    environment_settings (tenant_id, workspace_id, environment) {
        tenant_id -> Uuid,
        workspace_id -> Uuid,
        environment -> Text,
        min_approvals -> SmallInt,
        allow_self_approval -> Bool,
        pin_documents -> Bool,
        revision -> BigInt,
        updated_at -> Timestamptz,
        updated_by -> Text,
    }
}

diesel::table! {
    evidence_artifact (tenant_id, execution_id, artifact_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        artifact_id -> Uuid,
        artifact_kind -> Text,
        storage_ref -> Text,
        body -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    evidence_payload (tenant_id, execution_id, artifact_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        artifact_id -> Uuid,
        salt -> Bytea,
        body -> Text,
    }
}

diesel::table! {
    evidence_snapshot (tenant_id, digest) {
        tenant_id -> Uuid,
        digest -> Bytea,
        body -> Text,
    }
}

diesel::table! {
    execution (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        workload_id -> Uuid,
        workspace_id -> Uuid,
        release_id -> Uuid,
        deployment_revision -> BigInt,
        environment -> Text,
        lane -> Text,
        submitter -> Text,
        delegate -> Nullable<Text>,
        share_link_id -> Nullable<Uuid>,
        result_token -> Nullable<Bytea>,
        snapshot -> Bytea,
        input_digest -> Bytea,
        output_digest -> Nullable<Bytea>,
        status -> Text,
        outcome -> Nullable<Text>,
        error_code -> Nullable<Text>,
        error_message -> Nullable<Text>,
        error_offset -> Nullable<BigInt>,
        started_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
        erasure_id -> Nullable<Uuid>,
        erased_at -> Nullable<Timestamptz>,
        has_stored_usage -> Nullable<Bool>,
        total_tokens_in -> Nullable<BigInt>,
        total_tokens_out -> Nullable<BigInt>,
        total_cost_micros -> Nullable<BigInt>,
    }
}

diesel::table! {
    execution_exception (tenant_id, status, execution_id) {
        tenant_id -> Uuid,
        status -> Text,
        execution_id -> Uuid,
        workload_id -> Uuid,
        workspace_id -> Uuid,
        release_id -> Uuid,
    }
}

diesel::table! {
    execution_input (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        salt -> Bytea,
        body -> Text,
        sender -> Nullable<Text>,
    }
}

diesel::table! {
    execution_lease (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        token -> Uuid,
        lease_for -> Interval,
        lapses_at -> Timestamptz,
        deadline_at -> Timestamptz,
        takeovers -> SmallInt,
        cancelled_by -> Nullable<Text>,
        script -> Bool,
    }
}

diesel::table! {
    execution_progress (tenant_id, execution_id, position) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        position -> SmallInt,
        answer -> Nullable<Text>,
        events -> Text,
    }
}

diesel::table! {
    execution_queue (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
    }
}

diesel::table! {
    execution_result (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        salt -> Bytea,
        body -> Text,
    }
}

diesel::table! {
    execution_review (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        workload_id -> Uuid,
        workspace_id -> Uuid,
        release_id -> Uuid,
        asked_at -> Timestamptz,
        lapses_at -> Timestamptz,
    }
}

diesel::table! {
    execution_step (tenant_id, execution_id, position) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        position -> SmallInt,
        step_id -> Text,
        step_type -> Text,
        failure -> Nullable<Text>,
        duration_us -> BigInt,
    }
}

diesel::table! {
    fact (tenant_id, fact_id) {
        tenant_id -> Uuid,
        fact_id -> Uuid,
        workspace_id -> Nullable<Uuid>,
        kind -> Text,
        body -> Bytea,
        leaf_hash -> Bytea,
    }
}

diesel::table! {
    fact_log (tenant_id) {
        tenant_id -> Uuid,
        size -> BigInt,
    }
}

diesel::table! {
    fact_order (tenant_id, index) {
        tenant_id -> Uuid,
        index -> BigInt,
        fact_id -> Uuid,
        workspace_id -> Nullable<Uuid>,
        workload_id -> Nullable<Uuid>,
        subject_id -> Nullable<Uuid>,
        is_categorized -> Bool,
        leaf_hash -> Nullable<Bytea>,
    }
}

diesel::table! {
    fact_pending (tenant_id, fact_id) {
        tenant_id -> Uuid,
        fact_id -> Uuid,
    }
}

diesel::table! {
    idempotency_key (tenant_id, caller, route, key) {
        tenant_id -> Uuid,
        caller -> Text,
        route -> Text,
        key -> Text,
        body_digest -> Bytea,
        status -> Nullable<SmallInt>,
        resource -> Uuid,
        created_at -> Timestamptz,
        leased_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    identity (tenant_id, identity_id) {
        tenant_id -> Uuid,
        identity_id -> Uuid,
        issuer -> Text,
        subject -> Text,
        actor -> Text,
        groups -> Array<Text>,
        email -> Nullable<Text>,
        first_seen_at -> Timestamptz,
        last_seen_at -> Timestamptz,
    }
}

diesel::table! {
    installation (one) {
        one -> Bool,
        installation_id -> Uuid,
        cursor_key -> Bytea,
    }
}

diesel::table! {
    knowledge_chunk (tenant_id, chunk_id) {
        tenant_id -> Uuid,
        chunk_id -> Uuid,
        asset_id -> Uuid,
        entry_id -> Uuid,
        document_id -> Text,
        position -> Integer,
        starts -> Integer,
        ends -> Integer,
        tokens -> Integer,
        digest -> Text,
        from_revision -> BigInt,
        until_revision -> Nullable<BigInt>,
        embedded_by -> Text,
        body -> Text,
        embedding -> Nullable<Bytea>,
    }
}

diesel::table! {
    knowledge_document (tenant_id, entry_id) {
        tenant_id -> Uuid,
        entry_id -> Uuid,
        asset_id -> Uuid,
        document_id -> Text,
        revision -> BigInt,
        digest -> Text,
        text_bytes -> Integer,
        chunk_count -> Integer,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    knowledge_document_text (tenant_id, entry_id) {
        tenant_id -> Uuid,
        entry_id -> Uuid,
        title -> Nullable<Text>,
        source_ref -> Nullable<Text>,
        metadata -> Text,
        body -> Text,
    }
}

diesel::table! {
    knowledge_index (tenant_id, asset_id) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        revision -> BigInt,
        chunks -> BigInt,
    }
}

diesel::table! {
    knowledge_index_model (tenant_id, asset_id, embedded_by, revision) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        embedded_by -> Text,
        revision -> BigInt,
        chunks -> BigInt,
    }
}

diesel::table! {
    knowledge_ingest (tenant_id, asset_id, revision) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        revision -> BigInt,
        ingest_id -> Uuid,
        chunk_strategy -> Text,
        chunk_tokens -> Integer,
        embedding_account -> Nullable<Text>,
        embedding_model -> Nullable<Text>,
        chunks -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        reembeds -> Bool,
    }
}

diesel::table! {
    knowledge_pin (tenant_id, release_id, asset_id) {
        tenant_id -> Uuid,
        release_id -> Uuid,
        asset_id -> Uuid,
        revision -> BigInt,
    }
}

diesel::table! {
    knowledge_word (tenant_id, asset_id, word, revision) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        word -> Text,
        revision -> BigInt,
        chunks -> BigInt,
    }
}

diesel::table! {
    log_tree (tenant_id) {
        tenant_id -> Uuid,
        size -> BigInt,
        edge -> Array<Bytea>,
        checkpoint -> Nullable<Text>,
        signed_by -> Nullable<Text>,
    }
}

diesel::table! {
    memory_session (tenant_id, workload_id, owner, session_id) {
        tenant_id -> Uuid,
        workload_id -> Uuid,
        owner -> Text,
        session_id -> Text,
        erasure -> Nullable<Uuid>,
        touched_at -> Timestamptz,
    }
}

diesel::table! {
    memory_turn (tenant_id, execution_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        workload_id -> Uuid,
        asset_id -> Uuid,
        owner -> Text,
        session_id -> Text,
        said -> Text,
        answered -> Text,
        bytes -> Integer,
        salt -> Bytea,
        digest -> Bytea,
        clean -> Bool,
        contracts -> Array<Text>,
        erased_on_revoke -> Bool,
        remembered_at -> Timestamptz,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    namespace (tenant_id, namespace_id) {
        tenant_id -> Uuid,
        namespace_id -> Uuid,
        slug -> Text,
    }
}

diesel::table! {
    notification (tenant_id, notification_id) {
        tenant_id -> Uuid,
        notification_id -> Uuid,
        recipient -> Text,
        status -> Text,
        category -> Text,
        severity -> Text,
        title -> Text,
        body -> Text,
        event_kind -> Text,
        event_id -> Uuid,
        log_index -> BigInt,
        workspace_id -> Nullable<Uuid>,
        workload_id -> Nullable<Uuid>,
        environment -> Nullable<Text>,
        created_at -> Timestamptz,
        read_at -> Nullable<Timestamptz>,
        revision -> BigInt,
        link -> Nullable<Text>,
    }
}

diesel::table! {
    notification_default_profiles (tenant_id) {
        tenant_id -> Uuid,
        settings -> Jsonb,
        revision -> BigInt,
        updated_at -> Timestamptz,
        updated_by -> Text,
    }
}

diesel::table! {
    notification_delivery (tenant_id, delivery_id) {
        tenant_id -> Uuid,
        delivery_id -> Uuid,
        lane -> Uuid,
        channel -> Text,
        destination_id -> Nullable<Uuid>,
        recipient -> Nullable<Text>,
        status -> Text,
        attempts -> Integer,
        due_at -> Timestamptz,
        claim_id -> Nullable<Uuid>,
        last_error -> Nullable<Text>,
        last_http_status -> Nullable<SmallInt>,
        notification_generation -> BigInt,
        advanced_notification_generation -> Nullable<BigInt>,
        destination_generation -> Nullable<BigInt>,
        digest -> Nullable<Text>,
        category -> Text,
        severity -> Text,
        title -> Text,
        body -> Text,
        event_kind -> Text,
        event_id -> Uuid,
        workspace_id -> Nullable<Uuid>,
        workload_id -> Nullable<Uuid>,
        environment -> Nullable<Text>,
        created_at -> Timestamptz,
        queued_at -> Timestamptz,
        sent_at -> Nullable<Timestamptz>,
        revision -> BigInt,
        link -> Nullable<Text>,
    }
}

diesel::table! {
    notification_destination (tenant_id, destination_id) {
        tenant_id -> Uuid,
        destination_id -> Uuid,
        workspace_id -> Nullable<Uuid>,
        destination_type -> Text,
        display_name -> Text,
        configuration -> Jsonb,
        secret_ref -> Nullable<Text>,
        is_enabled -> Bool,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
        revision -> BigInt,
        generation -> BigInt,
    }
}

diesel::table! {
    notification_digest_line (tenant_id, delivery_id, event_id) {
        tenant_id -> Uuid,
        delivery_id -> Uuid,
        event_id -> Uuid,
        severity -> Text,
        title -> Text,
        body -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    notification_position (tenant_id) {
        tenant_id -> Uuid,
        position -> BigInt,
        cut_recipients -> BigInt,
    }
}

diesel::table! {
    notification_preference (tenant_id, principal, scope_kind, scope_ref, environment) {
        tenant_id -> Uuid,
        principal -> Text,
        scope_kind -> Text,
        scope_ref -> Uuid,
        environment -> Text,
        preference_set_id -> Uuid,
        settings -> Jsonb,
        revision -> BigInt,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    notification_profile (tenant_id, principal) {
        tenant_id -> Uuid,
        principal -> Text,
        profile_id -> Uuid,
        time_zone -> Text,
        digest -> Jsonb,
        chat_secret_ref -> Nullable<Text>,
        revision -> BigInt,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    obligation_fulfilment (tenant_id, execution_id, obligation) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        obligation -> Text,
        fulfilled_at -> Timestamptz,
    }
}

diesel::table! {
    policy_decision (tenant_id, execution_id, decision_id) {
        tenant_id -> Uuid,
        execution_id -> Uuid,
        decision_id -> Uuid,
        outcome -> Text,
        reason_code -> Text,
        obligations -> Array<Text>,
        rules -> Array<Text>,
        evaluated_at -> Timestamptz,
    }
}

diesel::table! {
    principal_binding (tenant_id, workload_id, principal) {
        tenant_id -> Uuid,
        workload_id -> Uuid,
        principal -> Text,
        principal_binding_id -> Uuid,
        lane -> Nullable<Text>,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
        updated_by -> Text,
    }
}

diesel::table! {
    release (tenant_id, release_id) {
        tenant_id -> Uuid,
        release_id -> Uuid,
        workload_id -> Uuid,
        workspace_id -> Uuid,
        environment -> Text,
        target_lane -> Text,
        state -> Text,
        bindings_digest -> Nullable<Text>,
        policy_bundle_id -> Nullable<Uuid>,
        supersedes_release_id -> Nullable<Uuid>,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
        rollout_status -> Nullable<Text>,
        rollout_lanes -> Nullable<Array<Text>>,
        rollout_soak_minutes -> Nullable<Integer>,
        rollout_auto_advance -> Nullable<Bool>,
        rollout_index -> Nullable<SmallInt>,
        rollout_since -> Nullable<BigInt>,
        soak_started_at -> Nullable<Timestamptz>,
        soak_ends_at -> Nullable<Timestamptz>,
        rollout_holds -> Array<Text>,
        rollback_advised -> Bool,
    }
}

diesel::table! {
    release_artifact (tenant_id, release_id, artifact_id) {
        tenant_id -> Uuid,
        release_id -> Uuid,
        artifact_id -> Uuid,
        artifact_kind -> Text,
        content -> Text,
        checksum -> Text,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    release_binding (tenant_id, binding_id) {
        tenant_id -> Uuid,
        binding_id -> Uuid,
        release_id -> Uuid,
        role -> Text,
        asset_version_id -> Uuid,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    release_reference (tenant_id, release_id, bindings_digest, from_version_id, slug, label) {
        tenant_id -> Uuid,
        release_id -> Uuid,
        bindings_digest -> Text,
        from_version_id -> Uuid,
        slug -> Text,
        label -> Text,
        to_version_id -> Uuid,
    }
}

diesel::table! {
    role_binding (tenant_id, role_binding_id) {
        tenant_id -> Uuid,
        role_binding_id -> Uuid,
        principal -> Text,
        role -> Text,
        scope_kind -> Text,
        scope_ref -> Nullable<Uuid>,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    session (tenant_id, session_id) {
        tenant_id -> Uuid,
        session_id -> Uuid,
        secret_hash -> Bytea,
        identity_id -> Uuid,
        issuer_session -> Nullable<Text>,
        display_name -> Text,
        groups -> Array<Text>,
        groups_read_at -> Timestamptz,
        sealed_tokens -> Bytea,
        created_at -> Timestamptz,
        last_used_at -> Timestamptz,
        expires_at -> Timestamptz,
        ended_at -> Nullable<Timestamptz>,
        renewal_id -> Nullable<Uuid>,
        renewal_until -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    share_link (tenant_id, share_link_id) {
        tenant_id -> Uuid,
        share_link_id -> Uuid,
        workload_id -> Uuid,
        token_hash -> Bytea,
        label -> Nullable<Text>,
        lane -> Nullable<Text>,
        max_uses -> Integer,
        use_count -> Integer,
        expires_at -> Timestamptz,
        revoked_at -> Nullable<Timestamptz>,
        revoked_by -> Nullable<Text>,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}

diesel::table! {
    subject_erasure (tenant_id, erasure_id) {
        tenant_id -> Uuid,
        erasure_id -> Uuid,
        subject -> Text,
        status -> Text,
        requested_by -> Text,
        requested_at -> Timestamptz,
        decided_by -> Nullable<Text>,
        decided_at -> Nullable<Timestamptz>,
        covers_before -> Nullable<Uuid>,
        completed_at -> Nullable<Timestamptz>,
        runs -> BigInt,
        turns -> BigInt,
        documents -> BigInt,
        revision -> BigInt,
        run_cursor -> Nullable<Uuid>,
        resume_cursor -> Nullable<Uuid>,
        waits_for -> Nullable<Uuid>,
        runs_done -> Bool,
        document_cursor -> Uuid,
        settles_at -> Nullable<Timestamptz>,
        is_settled -> Bool,
    }
}

diesel::table! {
    suppressed_decision (tenant_id, suppressed_decision_id) {
        tenant_id -> Uuid,
        suppressed_decision_id -> Uuid,
        recipient -> Text,
        category -> Text,
        event_kind -> Text,
        event_id -> Uuid,
        reason_code -> Text,
        deciding_scope -> Nullable<Text>,
        deciding_revision -> Nullable<BigInt>,
        workspace_id -> Nullable<Uuid>,
        workload_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        deciding_channel -> Nullable<Text>,
        unreachable_channels -> Array<Text>,
    }
}

diesel::table! {
    tenant (tenant_id) {
        tenant_id -> Uuid,
        slug -> Text,
        name -> Text,
        notifications_enabled -> Bool,
        advanced_notifications_enabled -> Bool,
        public_hosts -> Array<Text>,
        access_revision -> BigInt,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        notification_generation -> BigInt,
        advanced_notification_generation -> BigInt,
        notifications_on_since -> Nullable<Timestamptz>,
        advanced_notifications_on_since -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    tenant_public_host (host) {
        host -> Text,
        tenant_id -> Uuid,
    }
}

diesel::table! {
    throttle (tenant_id, bucket) {
        tenant_id -> Uuid,
        bucket -> Bytea,
        paid_until -> Timestamptz,
    }
}

diesel::table! {
    use_case (tenant_id, use_case_id) {
        tenant_id -> Uuid,
        use_case_id -> Uuid,
        workspace_id -> Uuid,
        status -> Text,
        name -> Text,
        summary -> Text,
        source_description -> Text,
        bundle -> Jsonb,
        connections -> Array<Text>,
        pieces -> Nullable<Jsonb>,
        supersedes -> Nullable<Uuid>,
        superseded_by -> Nullable<Uuid>,
        workload_id -> Nullable<Uuid>,
        release_id -> Nullable<Uuid>,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    use_case_refinement (tenant_id, workspace_id, refinement_key) {
        tenant_id -> Uuid,
        workspace_id -> Uuid,
        refinement_key -> Text,
        predecessor_id -> Uuid,
        successor_id -> Uuid,
        body_digest -> Bytea,
    }
}

diesel::table! {
    withdrawn_route (tenant_id, asset_id, route_id, ordinal) {
        tenant_id -> Uuid,
        asset_id -> Uuid,
        route_id -> Text,
        ordinal -> BigInt,
        asset_version_id -> Uuid,
        state -> Text,
    }
}

diesel::table! {
    workload (tenant_id, workload_id) {
        tenant_id -> Uuid,
        workload_id -> Uuid,
        slug -> Text,
        name -> Text,
        description -> Text,
        owner_ref -> Text,
        status -> Text,
        invocation_mode -> Text,
        workspace_id -> Uuid,
        revision -> BigInt,
        created_at -> Timestamptz,
        created_by -> Text,
        updated_at -> Timestamptz,
        management_source -> Nullable<Text>,
        interface_config -> Nullable<Jsonb>,
    }
}

diesel::table! {
    workspace (tenant_id, workspace_id) {
        tenant_id -> Uuid,
        workspace_id -> Uuid,
        namespace_id -> Uuid,
        slug -> Text,
        name -> Text,
        created_at -> Timestamptz,
        created_by -> Text,
    }
}
