import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import { filtersOf } from "../core/address";
import { useConsole, useList } from "../core/console";
import { KINDS, LIFECYCLES, type Asset } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, Filters, FilterSelect } from "../ui/Filters";
import { TabBar } from "../ui/TabBar";
import { useTitle } from "../ui/useTitle";
import { VirtualTable, type Column } from "../ui/VirtualTable";

const NAMES = ["asset_kind", "lifecycle_state"] as const;
const SLUG_PATTERN = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const OWNER_PATTERN = /^(team|user):[a-z0-9][a-z0-9._@+-]{0,126}$/;

/** The list of the workspace's assets by kind, and of its flows. */
export function Assets() {
  const text = useConsoleText();
  const navigate = useNavigate();
  const { workspace } = useConsole();
  const [isOpen, setOpen] = useState(false);
  useTitle(text("nav_assets"));
  return (
    <>
      <h1>{text("nav_assets")}</h1>
      <div className="buttons">
        <Action label={text("new_asset")} operation="create_asset" scope={{ kind: "workspace", ref: workspace.workspace_id }} onClick={() => setOpen(true)} />
      </div>
      <TabBar
        label={text("nav_assets")}
        tabs={[
          { value: "all", label: text("tab_all_assets"), content: () => <AssetList /> },
          { value: "flows", label: text("tab_flows"), content: () => <FlowList /> },
        ]}
      />
      {isOpen && <NewAsset onClose={() => setOpen(false)} onDone={(made) => void navigate({ to: "/assets/$id", params: { id: made.asset_id }, search: { tab: "edit" } as never })} />}
    </>
  );
}

function useColumns(): Column<Asset>[] {
  const text = useConsoleText();
  const valueText = useValueText();
  return [
    {
      name: text("asset"),
      render: (asset) => (
        <Link to="/assets/$id" params={{ id: asset.asset_id }}>
          {asset.slug}
        </Link>
      ),
    },
    { name: text("kind"), render: (asset) => valueText(asset.asset_kind) },
    { name: text("state"), render: (asset) => <Tag value={asset.lifecycle_state} /> },
    { name: text("owner"), render: (asset) => asset.owner_ref },
    { name: text("created_by"), render: (asset) => asset.created_by },
    { name: text("time"), render: (asset) => <Time value={asset.created_at} /> },
  ];
}

function AssetList() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { asset_kind: kind, lifecycle_state: state } = filtersOf(search, NAMES);
  const path = apiPath("/v1/assets", {}, { workspace_id: workspace.workspace_id, asset_kind: kind, lifecycle_state: state, limit: "200" });
  const list = useList<Asset>(path, { refresh: true });
  const columns = useColumns();
  const words = ["assets", "list", ...(kind ? ["--kind", kind] : []), ...(state ? ["--state", state] : [])];
  return (
    <>
      <Filters names={NAMES}>
        <FilterSelect name="asset_kind" label={text("kind")} options={KINDS} />
        <FilterSelect name="lifecycle_state" label={text("state")} options={LIFECYCLES} />
      </Filters>
      <VirtualTable label={text("nav_assets")} list={list} keyOf={(asset) => asset.asset_id} empty={<Empty>{text("assets_empty")}</Empty>} columns={columns} />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words }]} />
    </>
  );
}

function FlowList() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const path = apiPath("/v1/flows", {}, { workspace_id: workspace.workspace_id, limit: "200" });
  const list = useList<Asset>(path, { refresh: true });
  const columns = useColumns();
  return (
    <>
      <VirtualTable label={text("tab_flows")} list={list} keyOf={(asset) => asset.asset_id} empty={<Empty>{text("flows_empty")}</Empty>} columns={columns} />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words: ["flows", "list"] }]} />
    </>
  );
}

function NewAsset({ onClose, onDone }: { onClose: () => void; onDone: (made: Asset) => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace, session } = useConsole();
  const workspace_id = workspace.workspace_id;
  const [kind, setKind] = useState<(typeof KINDS)[number]>("prompt_template");
  const [slug, setSlug] = useState("");
  const [owner, setOwner] = useState(OWNER_PATTERN.test(session.actor) ? session.actor : "team:");
  const blocked = !SLUG_PATTERN.test(slug) ? text("slug_invalid") : OWNER_PATTERN.test(owner) ? null : text("owner_invalid");
  return (
    <Dialog
      title={text("new_asset")}
      confirm={text("new_asset")}
      request={{ method: "POST", path: apiPath("/v1/assets", {}, { workspace_id }), body: { slug, asset_kind: kind, owner_ref: owner } }}
      blocked={blocked}
      onClose={onClose}
      onDone={(made) => onDone(made as Asset)}
    >
      <p>{text("new_asset_text")}</p>
      <Field label={text("kind")}>
        {(id) => (
          <select id={id} value={kind} onChange={(event) => setKind(event.target.value as typeof kind)}>
            {KINDS.map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={text("slug")} hint={text("slug_hint")}>
        {(id) => <input id={id} value={slug} maxLength={63} autoComplete="off" spellCheck={false} onChange={(event) => setSlug(event.target.value.trim())} />}
      </Field>
      <Field label={text("owner")} hint={text("owner_hint")}>
        {(id) => <input id={id} value={owner} autoComplete="off" spellCheck={false} onChange={(event) => setOwner(event.target.value.trim())} />}
      </Field>
    </Dialog>
  );
}
