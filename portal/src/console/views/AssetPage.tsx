import { useMemo, useState } from "react";
import { apiPath } from "../../api/paths";
import type { Json } from "../../api/types";
import { useConsole, useList, useRead, type Scope, type WithEntityTag } from "../core/console";
import { sortedJson } from "../core/diff";
import { flowGraph } from "../core/graphs";
import type { Asset, AssetVersion, Schemas } from "../core/types";
import { useAddress, useId } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, Id, Loading, RowAction, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Filters, FilterSelect } from "../ui/Filters";
import { GraphPicture } from "../ui/GraphPicture";
import { TabBar } from "../ui/TabBar";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { AssetDocuments } from "./AssetDocuments";
import { AssetEditor } from "./AssetEditor";
import { AssetUsage } from "./AssetUsage";
import { PairView } from "./Comparison";

/** The view of an asset: its versions, their differences, an editor, and its dependents. */
export function AssetPage() {
  const id = useId();
  const text = useConsoleText();
  const { workspace } = useConsole();
  const read = useRead<Asset>(apiPath("/v1/assets/{asset_id}", { asset_id: id }, { workspace_id: workspace.workspace_id }), { refresh: true });
  if (read.error && !read.data) {
    return (
      <>
        <h1>{text("asset")}</h1>
        <Failed problem={read.error} onRetry={() => void read.refetch()} />
      </>
    );
  }
  if (!read.data) return <Loading what={text("asset")} />;
  return <AssetView key={id} read={read.data} />;
}

/** The scope of permissions for an asset, which is the asset's workspace. */
export const scopeOf = (asset: Asset): Scope => ({ kind: "workspace", ref: asset.workspace_id });

const MOVES = { activate: "active", retire: "retired", archive: "archived" } as const;

function AssetView({ read }: { read: WithEntityTag<Asset> }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const asset = read.value;
  const { asset_id, slug, asset_kind: kind } = asset;
  const workspace_id = workspace.workspace_id;
  const [open, setOpen] = useState<keyof typeof MOVES | null>(null);
  const versionPath = apiPath("/v1/assets/{asset_id}/versions", { asset_id }, { workspace_id, limit: "200" });
  const versions = useList<AssetVersion>(versionPath, { refresh: true });
  useTitle(slug);
  const isFlow = kind === "orchestration_flow";
  const isArchived = asset.lifecycle_state === "archived";
  return (
    <>
      <h1>
        {slug} <Tag value={asset.lifecycle_state} />
      </h1>
      <Facts
        items={[
          [text("kind"), valueText(kind)],
          [text("owner"), asset.owner_ref],
          [text("created_by"), asset.created_by],
          [text("time"), <Time key="t" value={asset.created_at} />],
          [text("identifier"), <Id key="i" id={asset_id} />],
        ]}
      />
      <div className="buttons">
        {(Object.keys(MOVES) as (keyof typeof MOVES)[])
          .filter((move) => MOVES[move] !== asset.lifecycle_state)
          .map((move) => (
            <Action key={move} label={text(`asset_${move}`)} tone={move === "archive" ? "danger" : "plain"} operation={`${move}_asset`} scope={scopeOf(asset)} blocked={isArchived ? text("is_archived") : null} onClick={() => setOpen(move)} />
          ))}
      </div>
      <TabBar
        label={slug}
        tabs={[
          { value: "versions", label: text("tab_versions"), content: () => <Versions asset={asset} list={versions} /> },
          { value: "edit", label: text("tab_edit"), content: () => <AssetEditor asset={asset} newest={versions.rows[0] ?? null} isPending={versions.isPending} /> },
          { value: "diff", label: text("tab_diff"), content: () => <Difference asset={asset} versions={versions.rows} /> },
          ...(kind === "knowledge_base" ? [{ value: "documents", label: text("tab_documents"), content: () => <AssetDocuments asset={asset} /> }] : []),
          { value: "usage", label: text("tab_usage"), content: () => <AssetUsage asset={asset} /> },
        ]}
      />
      <Commands
        items={[
          { label: text("asset"), request: { method: "GET", path: apiPath("/v1/assets/{asset_id}", { asset_id }, { workspace_id }) }, words: ["assets", "show", slug] },
          { label: text("tab_versions"), request: { method: "GET", path: versionPath }, words: ["assets", "versions", slug] },
          ...(isFlow ? [{ label: text("flow_text"), request: { method: "GET", path: apiPath("/v1/flows/{flow_id}", { flow_id: asset_id }, { workspace_id }) } as const, words: ["flows", "show", slug] }] : []),
        ]}
      />
      {open && (
        <Dialog
          title={text(`asset_${open}`)}
          confirm={text(`asset_${open}`)}
          danger={open === "archive"}
          request={{ method: "POST", path: apiPath(`/v1/assets/{asset_id}/${open}`, { asset_id }, { workspace_id }), body: {}, ifMatch: read.etag }}
          onClose={() => setOpen(null)}
        >
          <p>{text(`asset_${open}_text`)}</p>
        </Dialog>
      )}
    </>
  );
}

type VersionList = ReturnType<typeof useList<AssetVersion>>;

function Versions({ asset, list }: { asset: Asset; list: VersionList }) {
  const text = useConsoleText();
  const [search, change] = useAddress();
  const chosen = list.rows.find(({ version_label: label }) => label === search["version"]) ?? list.rows[0] ?? null;
  return (
    <>
      <VirtualTable
        label={text("tab_versions")}
        list={list}
        keyOf={(one) => one.asset_version_id}
        empty={<Empty>{text("versions_empty")}</Empty>}
        columns={[
          { name: text("version"), render: (one) => <strong>{one.version_label}</strong> },
          { name: text("created_by"), render: (one) => one.created_by },
          { name: text("time"), render: (one) => <Time value={one.created_at} /> },
          { name: text("note"), render: (one) => <span dir="auto">{one.change_note ?? ""}</span> },
          { name: text("checksum"), render: (one) => <Id id={one.checksum} /> },
          { name: text("action"), render: (one) => <RowAction label={text("show")} name={text("show_named", { name: one.version_label })} onClick={() => change({ version: one.version_label })} /> },
        ]}
      />
      {chosen && <VersionView key={chosen.asset_version_id} asset={asset} version={chosen} />}
    </>
  );
}

function VersionView({ asset, version }: { asset: Asset; version: AssetVersion }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const { asset_id, asset_version_id } = version;
  const workspace_id = workspace.workspace_id;
  const path = apiPath("/v1/assets/{asset_id}/versions/{asset_version_id}", { asset_id, asset_version_id }, { workspace_id });
  const read = useRead<AssetVersion>(path);
  const content = version.content as Json;
  const graph = useMemo(() => flowGraph(content), [content]);
  return (
    <Section title={text("version_named", { name: version.version_label })}>
      {asset.asset_kind === "orchestration_flow" && graph.nodes.length > 0 && <GraphPicture {...graph} name={`${asset.slug}-${version.version_label}`} label={text("flow_picture")} />}
      <pre tabIndex={0} aria-label={text("content")} className="wrap">
        {read.data?.value.content_yaml ?? sortedJson(content)}
      </pre>
      <Table
        label={text("warnings")}
        rows={read.data?.value.warnings ?? []}
        keyOf={(warning) => `${warning.code} ${warning.pointer}`}
        columns={[
          { name: text("field"), render: (warning) => <code>{warning.pointer || "/"}</code> },
          { name: text("message"), render: (warning) => `${warning.message} (${warning.code})` },
        ]}
      />
      <Commands items={[{ label: text("version_named", { name: version.version_label }), request: { method: "GET", path }, words: ["assets", "content", `${asset.slug}@${version.version_label}`] }]} />
    </Section>
  );
}

/** The differences between two versions in the address, by default the newest version and its predecessor. */
function Difference({ asset, versions }: { asset: Asset; versions: readonly AssetVersion[] }) {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const labels = versions.map(({ version_label: label }) => label);
  const find = (label: string | undefined, otherwise: number) => versions.find((one) => one.version_label === label) ?? versions[otherwise] ?? null;
  const [from, to] = [find(search["from"], 1), find(search["to"], 0)];
  const path =
    from && to && from !== to
      ? apiPath(
          "/v1/assets/{asset_id}/versions/{asset_version_id}/diff/{other_version_id}",
          { asset_id: asset.asset_id, asset_version_id: from.asset_version_id, other_version_id: to.asset_version_id },
          { workspace_id: workspace.workspace_id },
        )
      : null;
  const diff = useRead<Schemas["VersionDiff"]>(path);
  if (versions.length < 2) return <Empty>{text("diff_needs_two")}</Empty>;
  return (
    <>
      <Filters names={["from", "to"]}>
        <FilterSelect name="from" label={text("diff_from")} none={text("version_before")} options={labels} labelOf={(label) => label} />
        <FilterSelect name="to" label={text("diff_to")} none={text("version_newest")} options={labels} labelOf={(label) => label} />
      </Filters>
      {path === null && <Empty>{text("diff_same")}</Empty>}
      {diff.error && <Failed problem={diff.error} />}
      {diff.isLoading && <Loading what={text("tab_diff")} />}
      {diff.data && from && to && (
        <>
          <Section title={text("diff_lines")}>
            <pre tabIndex={0} aria-label={text("diff_lines")} className="wrap" data-testid="readable">
              {diff.data.value.readable || text("diff_none_versions")}
            </pre>
          </Section>
          <PairView key={path} role={asset.asset_kind} before={{ asset, version: from }} after={{ asset, version: to }} />
        </>
      )}
      {path && from && to && <Commands items={[{ label: text("tab_diff"), request: { method: "GET", path }, words: ["assets", "diff", asset.slug, from.version_label, to.version_label] }]} />}
    </>
  );
}
