import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList } from "../core/console";
import type { Workload } from "../core/types";
import { useConsoleText } from "../i18n";
import { Frame } from "../ui/Frame";
import { entriesOf } from "./palette";
import { VIEWS } from "./views";

/** Leads to a view, a workload, or a run or release by its identifier. */
export function Palette({ onClose }: { onClose: () => void }) {
  const text = useConsoleText();
  const navigate = useNavigate();
  const { workspace } = useConsole();
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const { rows } = useList<Workload>(apiPath("/v1/workloads", {}, { workspace_id: workspace.workspace_id, limit: "200" }));
  const entries = entriesOf(
    typed,
    VIEWS.map(({ to, key }) => ({ label: text(key), to })),
    rows.map((workload) => ({ label: `${workload.name} (${workload.slug})`, to: `/workloads/${workload.workload_id}` })),
    { run: text("palette_run"), release: text("palette_release") },
  );
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
      {entries.length === 0 && <p role="status">{text("palette_none")}</p>}
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
