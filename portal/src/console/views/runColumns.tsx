import type { Execution } from "../core/types";
import type { ConsoleTranslate } from "../i18n";
import { Tag, Time } from "../ui/basics";
import { RowLink } from "../ui/RowLink";
import type { Column } from "../ui/VirtualTable";
import { cost, duration } from "../core/format";

/** The columns of lists of runs. */
export const runColumns = (text: ConsoleTranslate, actor: string, slugOf: (id: string) => string | null): Column<Execution>[] => [
  {
    name: text("run"),
    render: (run) => (
      <RowLink to={`/runs/${encodeURIComponent(run.execution_id)}`}>
        <Time value={run.started_at} />
      </RowLink>
    ),
  },
  { name: text("workload"), render: (run) => run.workload_slug ?? slugOf(run.workload_id) ?? run.workload_id },
  { name: text("environment"), render: (run) => run.environment },
  { name: text("state"), render: (run) => <Tag value={run.status} /> },
  { name: text("error_code"), render: (run) => run.error?.code ?? "" },
  { name: text("by"), render: (run) => (run.submitted_by === actor ? `${run.submitted_by} ${text("you")}` : run.submitted_by) },
  { name: text("took"), render: (run) => duration(run.duration_ms) },
  { name: text("tokens"), render: (run) => (run.tokens_in === null || run.tokens_in === undefined ? "–" : `${run.tokens_in} / ${run.tokens_out ?? 0}`) },
  { name: text("cost"), render: (run) => cost(run.cost_micros) },
];
