import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList } from "../core/console";
import type { Asset, Workload } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Frame } from "../ui/Frame";
import { entriesOf, MAX_ENTRIES } from "./palette";
import { VIEWS } from "./views";

/** Maximum number of assets that the palette reads. It reads all, because the API cannot search by a part of a slug. */
const MAX_ASSETS = 5_000;

/** The command palette. It opens views, workloads and assets by name, and runs and releases by identifier. */
export function Palette({ onClose }: { onClose: () => void }) {
  const text = useConsoleText();
  const navigate = useNavigate();
  const valueText = useValueText();
  const { workspace, session } = useConsole();
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const { rows } = useList<Workload>(apiPath("/v1/workloads", {}, { workspace_id: workspace.workspace_id, limit: "200" }));
  const mayView = session.permissions.includes("asset.view");
  const assets = useList<Asset>(mayView ? apiPath("/v1/assets", {}, { workspace_id: workspace.workspace_id, limit: "200" }) : null);
  const entries = entriesOf(
    typed,
    VIEWS.map(({ to, key }) => ({ label: text(key), to })),
    [
      ...rows.map((workload) => ({ label: `${workload.name} (${workload.slug})`, to: `/workloads/${workload.workload_id}` })),
      ...assets.rows.map((asset) => ({ label: `${asset.slug} (${valueText(asset.asset_kind)})`, to: `/assets/${asset.asset_id}` })),
    ],
    { run: text("palette_run"), release: text("palette_release") },
  );
  const { hasMore, more, problem } = assets;
  const isSearching = typed.trim() !== "" && hasMore && problem === null && entries.length < MAX_ENTRIES && assets.rows.length < MAX_ASSETS;
  useEffect(() => {
    if (isSearching) more();
  }, [isSearching, more]);
  const index = Math.min(chosen, entries.length - 1);
  const go = (to: string) => {
    onClose();
    void navigate({ to: to as "/" });
  };
  return (
    <Frame title={text("palette_title")} onClose={onClose}>
      <input
        data-autofocus
        className="palette-input"
        role="combobox"
        aria-label={text("palette_title")}
        aria-expanded={entries.length > 0}
        aria-controls="palette-list"
        aria-activedescendant={index >= 0 ? `palette-${index}` : undefined}
        value={typed}
        placeholder={text("palette_hint")}
        onChange={(event) => {
          setTyped(event.target.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          const entry = entries[index];
          if (event.key === "ArrowDown") setChosen(Math.min(index + 1, entries.length - 1));
          else if (event.key === "ArrowUp") setChosen(Math.max(index - 1, 0));
          else if (event.key === "Enter" && entry) go(entry.to);
          else return;
          event.preventDefault();
        }}
      />
      {(entries.length === 0 || isSearching) && <p role="status">{text(isSearching ? "palette_searching" : "palette_none")}</p>}
      <ul role="listbox" id="palette-list" aria-label={text("palette_title")} className="palette-list">
        {entries.map(({ label, to }, position) => (
          <li key={to} id={`palette-${position}`} role="option" aria-selected={position === index} onClick={() => go(to)}>
            {label}
          </li>
        ))}
      </ul>
    </Frame>
  );
}
