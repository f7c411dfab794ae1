import { Link } from "@tanstack/react-router";
import { apiPath } from "../../api/paths";
import { filtersOf } from "../core/address";
import { useConsole, useList } from "../core/console";
import type { Workload } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Commands, Empty, Tag, Time } from "../ui/basics";
import { Filters, FilterSelect } from "../ui/Filters";
import { useTitle } from "../ui/useTitle";
import { VirtualTable } from "../ui/VirtualTable";

const NAMES = ["status"] as const;

/** The list of the workspace's workloads. */
export function Workloads() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  useTitle(text("nav_workloads"));
  const path = apiPath("/v1/workloads", {}, { workspace_id: workspace.workspace_id, ...filtersOf(search, NAMES), limit: "200" });
  const list = useList<Workload>(path, { refresh: true });
  return (
    <>
      <h1>{text("nav_workloads")}</h1>
      <Filters names={NAMES}>
        <FilterSelect name="status" label={text("state")} options={["registered", "suspended", "retired"]} />
      </Filters>
      <VirtualTable
        label={text("nav_workloads")}
        list={list}
        keyOf={(workload) => workload.workload_id}
        empty={<Empty>{text("workloads_empty")}</Empty>}
        columns={[
          {
            name: text("workload"),
            render: (workload) => (
              <Link to="/workloads/$id" params={{ id: workload.workload_id }}>
                <span dir="auto">{workload.name || workload.slug}</span>
              </Link>
            ),
          },
          { name: text("slug"), render: (workload) => <code>{workload.slug}</code> },
          { name: text("state"), render: (workload) => <Tag value={workload.status} /> },
          { name: text("mode"), render: (workload) => valueText(workload.invocation_mode) },
          { name: text("owner"), render: (workload) => workload.owner_ref },
          { name: text("changed"), render: (workload) => <Time value={workload.updated_at} /> },
        ]}
      />
      <Commands items={[{ label: text("this_list"), request: { method: "GET", path }, words: ["workloads", "list"] }]} />
    </>
  );
}
