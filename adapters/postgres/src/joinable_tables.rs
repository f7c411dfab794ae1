//! Declares the tables that typed queries join.

use crate::schema::{
    approval, approval_note, asset, asset_version, asset_version_note, contract_revocation, contract_revocation_reason,
    execution, execution_result, execution_review, fact, fact_log, fact_order, identity, knowledge_chunk,
    knowledge_document, knowledge_document_text, knowledge_ingest, knowledge_pin, log_tree, namespace,
    notification_position, session, share_link, workload, workspace,
};

diesel::allow_tables_to_appear_in_same_query!(approval, approval_note);
diesel::allow_tables_to_appear_in_same_query!(namespace, workload, workspace);
diesel::allow_tables_to_appear_in_same_query!(execution, share_link);
diesel::allow_tables_to_appear_in_same_query!(execution_result, execution_review);
diesel::allow_tables_to_appear_in_same_query!(fact, fact_order);
diesel::allow_tables_to_appear_in_same_query!(fact_log, log_tree);
diesel::allow_tables_to_appear_in_same_query!(fact_log, notification_position);
diesel::allow_tables_to_appear_in_same_query!(identity, session);
diesel::allow_tables_to_appear_in_same_query!(knowledge_chunk, knowledge_ingest);
diesel::allow_tables_to_appear_in_same_query!(knowledge_document, knowledge_document_text);
diesel::allow_tables_to_appear_in_same_query!(knowledge_ingest, knowledge_pin);
diesel::allow_tables_to_appear_in_same_query!(asset, asset_version, asset_version_note);
diesel::allow_tables_to_appear_in_same_query!(contract_revocation, contract_revocation_reason);
