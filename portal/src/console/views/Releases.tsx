import { Link } from "@tanstack/react-router";
import { apiPath } from "../../api/paths";
import { filtersOf } from "../core/address";
import { useConsole, useList } from "../core/console";
import { useWorkloads } from "../core/resources";
import { ENVIRONMENT_PATTERN, RELEASE_STATES, type Release } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Commands, Empty, Id, shortId, Tag, Time } from "../ui/basics";
import { Filters, FilterSelect, FilterText } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable, type Column } from "../ui/VirtualTable";

const NAMES = ["workload_id", "environment", "state"] as const;

/** The list of the workspace's releases, newest first. */
export function Releases() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { byId, slugOf } = useWorkloads();
  useTitle(text("nav_releases"));
  const filters = filtersOf(search, NAMES);
  const path = apiPath("/v1/releases", {}, { workspace_id: workspace.workspace_id, ...filters, limit: "200" });
  const list = useList<Release>(path, { refresh: true });
  const slug = slugOf(filters["workload_id"] ?? "");
  const words = ["releases", "list", ...(slug ? ["--workload", slug] : []), ...(filters["environment"] ? ["--env", filters["environment"]] : []), ...(filters["state"] ? ["--state", filters["state"]] : [])];
  const columns: Column<Release>[] = [
    {
      name: text("release"),
      render: (release) => (
        <Link to="/releases/$id" params={{ id: release.release_id }}>
          {slugOf(release.workload_id) ?? shortId(release.workload_id)}@{release.environment}
        </Link>
      ),
    },
    { name: text("state"), render: ({ state }) => <Tag value={state} /> },
    { name: text("lane"), render: ({ target_lane: lane }) => valueText(lane) },
    { name: text("created_by"), render: ({ created_by: by }) => by },
    { name: text("changed"), render: ({ updated_at: at }) => <Time value={at} /> },
    { name: text("identifier"), render: ({ release_id: id }) => <Id id={id} /> },
  ];
  return (
    <>
      <h1>{text("nav_releases")}</h1>
      <Filters names={NAMES}>
        <FilterSelect name="workload_id" label={text("workload")} options={[...byId.keys()]} labelOf={(id) => slugOf(id) ?? id} />
        <FilterText name="environment" label={text("environment")} pattern={ENVIRONMENT_PATTERN} placeholder="production" />
        <FilterSelect name="state" label={text("state")} options={RELEASE_STATES} />
      </Filters>
      <VirtualTable label={text("nav_releases")} columns={columns} list={list} keyOf={({ release_id: id }) => id} empty={<Empty>{text("releases_empty")}</Empty>} />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words }]} />
    </>
  );
}
