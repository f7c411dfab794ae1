import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useRead } from "../core/console";
import { impactGraph } from "../core/graphs";
import type { Asset, Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Commands, Empty, Failed, Id, Loading, Tag } from "../ui/basics";
import { GraphPicture } from "../ui/GraphPicture";
import { Table } from "../ui/Table";

/** The dependents of an asset: referring assets, releases that bind it, and their workloads. */
export function AssetUsage({ asset }: { asset: Asset }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const path = apiPath("/v1/assets/{asset_id}/blast-radius", { asset_id: asset.asset_id }, { workspace_id: workspace.workspace_id });
  const read = useRead<Schemas["BlastRadius"]>(path);
  const graph = useMemo(() => (read.data ? impactGraph(asset, read.data.value) : null), [asset, read.data]);
  if (read.error) return <Failed problem={read.error} />;
  if (!read.data || !graph) return <Loading what={text("tab_usage")} />;
  const { releases, workloads, via, truncated } = read.data.value;
  const slugOf = (id: string) => workloads.find((one) => one.workload_id === id)?.slug ?? null;
  return (
    <>
      {releases.length === 0 && via.length === 0 ? (
        <Empty>{text("usage_none")}</Empty>
      ) : (
        <>
          <p data-testid="impact">{text("impact_counts", { workloads: workloads.length, releases: releases.length, active: releases.filter(({ state }) => state === "active").length, via: via.length })}</p>
          {truncated && <p className="notice notice-wait">{text("impact_truncated")}</p>}
          <GraphPicture {...graph} name={`impact-${asset.slug}`} label={text("impact_picture")} />
        </>
      )}
      <Table
        label={text("nav_releases")}
        rows={releases}
        keyOf={(one) => one.release_id}
        columns={[
          { name: text("release"), render: (one) => <Link to="/releases/$id" params={{ id: one.release_id }}>{slugOf(one.workload_id) ?? <Id id={one.workload_id} />}@{one.environment}</Link> },
          { name: text("state"), render: (one) => <Tag value={one.state} /> },
          { name: text("version"), render: (one) => one.version_label },
        ]}
      />
      <Table
        label={text("references")}
        rows={via}
        keyOf={(one) => `${one.asset_version_id} ${one.pointer}`}
        columns={[
          { name: text("asset"), render: (one) => <Link to="/assets/$id" params={{ id: one.asset_id }}>{one.asset_slug}</Link> },
          { name: text("kind"), render: (one) => valueText(one.asset_kind) },
          { name: text("version"), render: (one) => one.version_label },
          { name: text("field"), render: (one) => <code>{one.pointer}</code> },
        ]}
      />
      <Commands items={[{ label: text("tab_usage"), request: { method: "GET", path }, words: ["assets", "impact", asset.slug] }]} />
    </>
  );
}
