//! Stores 100,000 assets with `COPY` for list scenarios. Creating them through the API would take an hour.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::pin::pin;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::connection::{Connection, get};

/// The total number of assets. The filters of the list select two thirds of them.
const ASSETS: u32 = 100_000;
/// Rows of a page. The list has more than 1,000 pages.
const PAGE_ROWS: u32 = 50;
/// The number of the deep page that is read.
const DEEP_PAGE: u32 = 1_000;
/// The identifiers of fixtures that the first start of a server creates.
const TENANT: &str = "00000000-0000-7000-8000-000000000001";
const NAMESPACE: &str = "00000000-0000-7000-8000-000000000002";
const WORKSPACE: &str = "00000000-0000-7000-8000-000000000003";

/// The paths of a shallow and a deep page of one list.
pub(crate) struct Catalogue {
    /// The path of the first page.
    pub(crate) first: String,
    /// The path of the thousandth page, from the `Link` header of the page before.
    pub(crate) thousandth: String,
}

impl Catalogue {
    /// Stores the assets, and follows the list's cursors to the deep page.
    ///
    /// # Errors
    /// When PostgreSQL or the server refuses, or the list ends before the deep page.
    pub(crate) async fn create(database: &Client, address: SocketAddr) -> Result<Catalogue> {
        store_assets(database).await.context("copying the assets")?;
        let mut connection = Connection::open(address).await?;
        let list = format!("/v1/assets?workspace_id={WORKSPACE}&asset_kind=memory&lifecycle_state=active");
        let first = format!("{list}&limit={PAGE_ROWS}");
        // Larger pages reach the deep page with fewer requests; a cursor does not depend on the page size.
        let stride = 200;
        let mut path = format!("{list}&limit={stride}");
        for _ in 0..(DEEP_PAGE - 1) * PAGE_ROWS / stride {
            path = next_page(&mut connection, &path).await?;
        }
        // The remaining distance is shorter than a page of `stride` rows.
        let remaining_rows = (DEEP_PAGE - 1) * PAGE_ROWS % stride;
        path = path.replace(&format!("limit={stride}"), &format!("limit={remaining_rows}"));
        let thousandth = next_page(&mut connection, &path)
            .await?
            .replace(&format!("limit={remaining_rows}"), &format!("limit={PAGE_ROWS}"));
        Ok(Catalogue { first, thousandth })
    }
}

/// Reads a page, and returns the path of the next page.
async fn next_page(connection: &mut Connection, path: &str) -> Result<String> {
    let response = connection.send(get(path)).await?;
    anyhow::ensure!(response.is_success(), "{path} responded with {response}");
    let link = response.link.context("the list ends before its thousandth page")?;
    let target = link.strip_prefix('<').and_then(|link| link.split_once('>'));
    Ok(target.context("the link has no target")?.0.to_owned())
}

/// Stores the assets. Every third asset has another kind or is retired, so that the filters exclude it.
async fn store_assets(database: &Client) -> Result<()> {
    let copy = "COPY asset (tenant_id, asset_id, slug, asset_kind, owner_ref, lifecycle_state, ownership_tier, \
        workspace_id, namespace_id, last_label, revision, created_at, created_by) FROM STDIN";
    let mut sink = pin!(database.copy_in::<_, Bytes>(copy).await?);
    let mut lines = String::new();
    for number in 0..ASSETS {
        let id = Uuid::now_v7();
        let (kind, state) = match number % 6 {
            4 => ("skill", "active"),
            5 => ("memory", "retired"),
            _ => ("memory", "active"),
        };
        writeln!(
            lines,
            "{TENANT}\t{id}\tcatalogue-{number}\t{kind}\tteam:bench\t{state}\tworkspace\t{WORKSPACE}\t{NAMESPACE}\t0\t1\t\
             2026-01-01T00:00:00Z\tuser:bench"
        )?;
        if lines.len() > 1 << 16 {
            sink.send(Bytes::from(std::mem::take(&mut lines))).await?;
        }
    }
    sink.send(Bytes::from(lines)).await?;
    let stored = sink.finish().await?;
    anyhow::ensure!(stored == u64::from(ASSETS), "{stored} assets were stored");
    database.batch_execute("VACUUM ANALYZE asset").await?;
    Ok(())
}
