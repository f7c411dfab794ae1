//! Promise R17 in `docs/security.md`: all checkpoints that were ever published belong to one history of the log.

use crate::server_process::wait_until;
use fairway_domain::transparency_log::{Checkpoint, SignedNote, TreeEdge, TreeHash};
use std::{fs, path::Path, time::Duration};
use tokio_postgres::Client;

const TENANT: &str = "00000000-0000-7000-8000-000000000001";
/// Time limit for a checkpoint over all facts.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a checkpoint covers the whole log. Then asserts that the root of each archived checkpoint equals the
/// root of that many first facts. Returns the number of archived checkpoints.
pub(crate) async fn assert_one_published_history(owner: &Client, archive: &Path) -> usize {
    let is_covered = format!(
        "SELECT NOT EXISTS (SELECT FROM fact_pending) AND EXISTS (
            SELECT FROM fact_log JOIN log_tree USING (tenant_id)
            WHERE tenant_id = '{TENANT}' AND fact_log.size = log_tree.size AND checkpoint IS NOT NULL)"
    );
    let covered = async || owner.query_one(&is_covered, &[]).await.unwrap().get::<_, bool>(0);
    wait_until("a checkpoint covers the log", PATIENCE, covered).await;
    // PostgreSQL's hash function computes the leaf hashes independently of the server.
    let leaves = format!(
        "SELECT sha256('\\x00'::bytea || fact.body) FROM fact_order JOIN fact USING (tenant_id, fact_id)
         WHERE tenant_id = '{TENANT}' ORDER BY index"
    );
    let mut roots = vec![TreeEdge::default().root()];
    let mut tree = TreeEdge::default();
    for row in owner.query(&leaves, &[]).await.unwrap() {
        drop(tree.append(TreeHash::from_slice(row.get(0)).unwrap()));
        roots.push(tree.root());
    }
    let mut published = 0;
    let mut folders = vec![archive.join("checkpoints").join(TENANT)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let note = SignedNote::parse(&fs::read(entry.path()).unwrap()).unwrap();
            let checkpoint = Checkpoint::parse(note.text()).unwrap();
            let root = roots.get(usize::try_from(checkpoint.size).unwrap());
            assert_eq!(root, Some(&checkpoint.root), "the published checkpoint over {} facts", checkpoint.size);
            published += 1;
        }
    }
    published
}
