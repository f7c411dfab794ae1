import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import { REFRESH_MS, useConsole, useList, useRead } from "../core/console";
import { useWorkloads } from "../core/resources";
import type { Release, ReleaseDetail, Schemas, Workload } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Failed, Id, Loading, onRowKey, shortId, Tag, Time } from "../ui/basics";
import { Filters, FilterSelect } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { Advice, AdvanceDialog, RollbackDialog, Soak } from "./Rollout";

const NAMES = ["environment", "workload_id"] as const;

/** The lane table: the release that serves each lane of each workload, and the actions that change it. */
export function Lanes() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { byId, list, slugOf } = useWorkloads();
  useTitle(text("nav_lanes"));
  const path = apiPath("/v1/releases", {}, { workspace_id: workspace.workspace_id, state: "active", limit: "200" });
  const active = useList<Release>(path, { refresh: true });
  const environments = [...new Set(active.rows.map(({ environment }) => environment))].sort();
  // During a rollout two releases are active. Actions apply to the newest, which is first in the list.
  const keys = new Map(active.rows.toReversed().map((release) => [`${release.workload_id} ${release.environment}`, release]));
  const displayedReleases = [...keys.values()].filter(
    ({ workload_id, environment }) => (!search["environment"] || environment === search["environment"]) && (!search["workload_id"] || workload_id === search["workload_id"]),
  );
  displayedReleases.sort((left, right) => `${slugOf(left.workload_id)} ${left.environment}`.localeCompare(`${slugOf(right.workload_id)} ${right.environment}`));
  return (
    <>
      <h1>{text("nav_lanes")}</h1>
      <Filters names={NAMES}>
        <FilterSelect name="environment" label={text("environment")} options={environments} labelOf={(name) => name} />
        <FilterSelect name="workload_id" label={text("workload")} options={[...byId.keys()]} labelOf={(id) => slugOf(id) ?? id} />
      </Filters>
      {active.problem && <Failed problem={active.problem} onRetry={active.refetch} />}
      {(active.isPending || list.isPending) && <Loading what={text("nav_lanes")} />}
      {!active.isPending && !active.problem && displayedReleases.length === 0 && <Empty>{text("lanes_empty")}</Empty>}
      <p className="hint">{text("lanes_keys")}</p>
      <ul className="board">
        {displayedReleases.map((release) => (
          <Row key={`${release.workload_id} ${release.environment}`} release={release} workload={byId.get(release.workload_id) ?? null} />
        ))}
      </ul>
      <Commands items={[{ label: text("nav_releases"), request: { method: "GET", path }, words: ["releases", "list", "--state", "active"] }]} />
    </>
  );
}

function Row({ release, workload }: { release: Release; workload: Workload | null }) {
  const text = useConsoleText();
  const { client } = useConsole();
  const { workload_id, environment } = release;
  const path = apiPath("/v1/workloads/{workload_id}/lanes", { workload_id }, { environment });
  const lanes = useQuery<Schemas["Lane"][], Problem>({
    queryKey: ["lanes", client.cacheKey, path],
    refetchInterval: REFRESH_MS,
    retry: false,
    queryFn: ({ signal }) => client.get(path, signal),
  });
  const slug = workload?.slug ?? shortId(workload_id);
  return (
    <li className="board-row" onKeyDown={onRowKey} data-testid={`board ${slug}@${environment}`}>
      <h2>
        <Link to="/workloads/$id" params={{ id: workload_id }}>
          {slug}
        </Link>
        @{environment} {workload && workload.status !== "registered" && <Tag value={workload.status} />}
      </h2>
      {lanes.error && <Failed problem={lanes.error} />}
      <ol className="lanes">
        {lanes.data?.map((lane) => (
          <LaneCell key={lane.lane} lane={lane} />
        ))}
      </ol>
      <Controls release={release} />
      <details>
        <summary>{text("served_history", { name: `${slug}@${environment}` })}</summary>
        <ul>
          {lanes.data?.flatMap(({ lane, history }) =>
            history.map((holding) => (
              <li key={`${lane} ${holding.from}`}>
                <TenureText lane={lane} holding={holding} />
              </li>
            )),
          )}
        </ul>
      </details>
    </li>
  );
}

function TenureText({ lane, holding }: { lane: string; holding: Schemas["Holding"] }) {
  const text = useConsoleText();
  const valueText = useValueText();
  return (
    <>
      {valueText(lane)}: <Link to="/releases/$id" params={{ id: holding.release_id }}>{text("release")} <Id id={holding.release_id} /></Link>, <Time value={holding.from} /> –{" "}
      {holding.to ? <Time value={holding.to} /> : text("until_now")} ({valueText(holding.reason)})
    </>
  );
}

function LaneCell({ lane }: { lane: Schemas["Lane"] }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const since = lane.history.find((holding) => holding.release_id === lane.holder && !holding.to);
  return (
    <li className={`lane ${lane.holder ? "" : "lane-empty"}`}>
      <strong>{valueText(lane.lane)}</strong>
      {lane.holder ? (
        <>
          <Link to="/releases/$id" params={{ id: lane.holder }}>
            {text("release")} <Id id={lane.holder} />
          </Link>
          <span className="hint">{since && <Time value={since.from} />}</span>
        </>
      ) : (
        <span className="hint">{text("lane_free")}</span>
      )}
    </li>
  );
}

function Controls({ release }: { release: Release }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const release_id = release.release_id;
  const detail = useRead<ReleaseDetail>(apiPath("/v1/releases/{release_id}", { release_id }), { refresh: true });
  const hasRollout = Boolean(detail.data?.value.rollout_state);
  const rollout = useRead<Schemas["Rollout"]>(hasRollout ? apiPath("/v1/releases/{release_id}/rollout", { release_id }) : null, { refresh: true });
  const advice = useRead<Schemas["RollbackRecommendation"]>(apiPath("/v1/releases/{release_id}/rollback-recommendation", { release_id }), { refresh: true });
  const [open, setOpen] = useState<"advance" | "rollback" | null>(null);
  const scope = { kind: "workload", ref: release.workload_id } as const;
  const state = rollout.data?.value ?? null;
  const etag = detail.data?.etag ?? null;
  return (
    <>
      {state && (
        <p className="hint">
          <Tag value={state.status} /> {state.next_lane ? text("next_lane", { lane: valueText(state.next_lane) }) : ""} {text("soak_ends")}: <Soak state={state} />{" "}
          {state.hold_reason && `${text("held_because")}: ${valueText(state.hold_reason)}`}
        </p>
      )}
      {advice.data && <Advice advice={advice.data.value} />}
      <div className="buttons">
        <Action label={text("advance")} shortcut="a" operation="advance_rollout" scope={scope} blocked={state?.status === "in_progress" ? null : text("rollout_not_running")} onClick={() => setOpen("advance")} />
        <Action label={text("rollback")} shortcut="r" tone="danger" operation="roll_back_release" scope={scope} onClick={() => setOpen("rollback")} />
      </div>
      {open === "advance" && <AdvanceDialog release={release} etag={etag} state={state} onClose={() => setOpen(null)} />}
      {open === "rollback" && <RollbackDialog release={release} etag={etag} advice={advice.data?.value ?? null} onClose={() => setOpen(null)} />}
    </>
  );
}
