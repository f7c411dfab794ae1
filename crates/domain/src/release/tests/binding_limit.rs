//! Tests of the maximum number of bindings.

use super::*;

#[test]
fn limits_bindings_to_one_hundred() {
    let mut release = draft(1);
    for number in 20..120 {
        release = bind(&release, AssetKind::ToolDefinition, number).unwrap();
    }
    assert_eq!(release.bindings.len(), MAX_BINDINGS);
    assert_eq!(bind(&release, AssetKind::ToolDefinition, 120), Err(ReleaseRefusal::TooManyBindings));
}
