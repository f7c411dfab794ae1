import { useMemo } from "react";
import { apiPath } from "../../api/paths";
import { ACTOR_PATTERN } from "../../session/pageAttributes";
import { filtersOf, sinceOf } from "../core/address";
import { useConsole, useList } from "../core/console";
import { useWorkloads } from "../core/resources";
import { ENVIRONMENT_PATTERN, LANES, RUN_STATES, type Execution } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText } from "../i18n";
import { Commands, Empty } from "../ui/basics";
import { Filters, FilterSelect, FilterText } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";
import { runColumns } from "./runColumns";

const NAMES = ["workload_id", "environment", "status", "lane", "error_code", "submitted_by", "release_id"] as const;
const ALL = [...NAMES, "since", "until"] as const;
const TIME_PATTERN = "\\d{1,4}[mhd]|\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d)?Z)?";
const UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";

/** The list of runs that are visible to the caller. The address contains all filters. */
export function Runs() {
  const text = useConsoleText();
  const { session } = useConsole();
  const [search] = useAddress();
  const { byId, slugOf } = useWorkloads();
  useTitle(text("nav_runs"));
  const filters = filtersOf(search, NAMES);
  const [since, until] = [search["since"], search["until"]];
  // Computes relative times once for each address, so that the passage of time does not reload the list.
  const times = useMemo(() => ({ since: sinceOf(since, Date.now()), until: sinceOf(until, Date.now()) }), [since, until]);
  const path = apiPath("/v1/executions", {}, { ...filters, ...times, limit: "200" });
  const list = useList<Execution>(path, { refresh: true });
  // Memoized, so that loading further pages does not render the existing rows again.
  const columns = useMemo(() => runColumns(text, session.actor, slugOf), [text, session.actor, slugOf]);
  const option = (name: string, value: string | null | undefined) => (value ? [name, value] : []);
  const words = [
    "executions", "list",
    ...option("--workload", slugOf(filters["workload_id"] ?? "")), ...option("--env", filters["environment"]), ...option("--status", filters["status"]),
    ...option("--lane", filters["lane"]), ...option("--error", filters["error_code"]), ...option("--by", filters["submitted_by"]), ...option("--since", since), ...option("--until", until),
  ];
  return (
    <>
      <h1>{text("nav_runs")}</h1>
      <Filters names={ALL}>
        <FilterSelect name="workload_id" label={text("workload")} options={[...byId.keys()]} labelOf={(id) => slugOf(id) ?? id} />
        <FilterText name="environment" label={text("environment")} pattern={ENVIRONMENT_PATTERN} />
        <FilterSelect name="status" label={text("state")} options={RUN_STATES} />
        <FilterSelect name="lane" label={text("lane")} options={LANES} />
        <FilterText name="error_code" label={text("error_code")} pattern="[a-z][a-z0-9_]*" placeholder="policy_denied" />
        <FilterText name="submitted_by" label={text("by")} pattern={`${ACTOR_PATTERN}|(group|system|share_link):[a-z0-9][a-z0-9._@+\\-]*`} placeholder="user:ada" />
        <FilterText name="since" label={text("since")} pattern={TIME_PATTERN} placeholder="24h" list={["1h", "24h", "7d", "30d"]} />
        <FilterText name="until" label={text("until")} pattern={TIME_PATTERN} placeholder="1h" />
        <FilterText name="release_id" label={text("release")} pattern={UUID_PATTERN} />
      </Filters>
      <VirtualTable label={text("nav_runs")} list={list} keyOf={(run) => run.execution_id} empty={<Empty>{text("runs_empty")}</Empty>} columns={columns} />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words }]} />
    </>
  );
}
