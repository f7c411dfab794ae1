import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useState } from "react";
import type { Client } from "../api/client";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { RuntimeWorkloadEntry } from "../api/types";
import { useText } from "../i18n";
import { ProblemNotice } from "../ui/ProblemNotice";

const MODES = ["form", "chat", "block"] as const;

/** The list of workloads that the caller may run, with filters. */
export default function Gallery({ client }: { client: Client }) {
  const text = useText();
  const [search, setSearch] = useState("");
  const [mode, setMode] = useState("");
  const [owner, setOwner] = useState("");
  const q = useDeferredValue(search.trim());
  const filtered = Boolean(q || mode || owner);
  const path = apiPath("/v1/workloads/runtime-enabled", {}, { q, presentation_mode: mode, owner_ref: owner, limit: "200" });
  const list = useQuery({
    queryKey: ["gallery", client.cacheKey, path],
    queryFn: ({ signal }) => client.get<RuntimeWorkloadEntry[]>(path, signal),
    retry: false,
    placeholderData: (before) => before,
  });
  const [owners, setOwners] = useState<string[]>([]);
  useEffect(() => {
    const listedOwners = list.data?.map((entry) => entry.owner_ref) ?? [];
    setOwners((before) => [...new Set([...before, ...listedOwners])].sort());
  }, [list.data]);
  useEffect(() => {
    document.title = text("gallery_title");
  }, [text]);
  return (
    <div className="stack">
      <h1>{text("gallery_title")}</h1>
      <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
        <div className="field">
          <label htmlFor="search">{text("gallery_search")}</label>
          <input id="search" type="search" maxLength={256} value={search} onChange={(event) => setSearch(event.target.value)} />
        </div>
        <div className="field">
          <label htmlFor="mode">{text("gallery_mode")}</label>
          <select id="mode" value={mode} onChange={(event) => setMode(event.target.value)}>
            <option value="">{text("gallery_all")}</option>
            {MODES.map((name) => (
              <option key={name} value={name}>
                {text(`mode_${name}`)}
              </option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor="owner">{text("gallery_owner")}</label>
          <select id="owner" value={owner} onChange={(event) => setOwner(event.target.value)}>
            <option value="">{text("gallery_all")}</option>
            {owners.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </div>
      </form>
      {list.error instanceof Problem && <ProblemNotice problem={list.error} onRetry={() => void list.refetch()} />}
      <p role="status" className="hint">
        {list.data ? text("gallery_count", { count: list.data.length }) : list.error ? "" : text("loading")}
      </p>
      {list.data?.length === 0 && <p>{text(filtered ? "gallery_no_match" : "gallery_empty")}</p>}
      <ul className="cards">
        {list.data?.map((entry) => (
          <li key={entry.slug} className="card">
            <h2>
              <a href={`/workload-runtime/${encodeURIComponent(entry.slug)}`} dir="auto">
                {entry.name}
              </a>
            </h2>
            <p dir="auto">{entry.description}</p>
            <p className="hint">
              {text(`mode_${entry.presentation_mode}`)} · <bdi>{entry.owner_ref}</bdi>
            </p>
          </li>
        ))}
      </ul>
    </div>
  );
}
