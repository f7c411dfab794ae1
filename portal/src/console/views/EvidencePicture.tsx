import { useMemo } from "react";
import { apiPath } from "../../api/paths";
import { useRead } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText } from "../i18n";
import { Failed, Loading } from "../ui/basics";
import { GraphPicture } from "../ui/GraphPicture";

/** The evidence graph of a run as a picture. */
export function EvidencePicture({ execution }: { execution: string }) {
  const text = useConsoleText();
  const read = useRead<Schemas["GraphEvidence"]>(apiPath("/v1/executions/{execution_id}/evidence-graph", { execution_id: execution }, { format: "graph" }));
  const nodes = useMemo(() => read.data?.value.nodes.map((node) => ({ ...node, title: titleOf(node) })) ?? [], [read.data]);
  if (read.error) return <Failed problem={read.error} />;
  if (!read.data) return <Loading what={text("tab_evidence")} />;
  return <GraphPicture nodes={nodes} edges={read.data.value.edges} name={`evidence-${execution}`} label={text("tab_evidence")} />;
}

/** The title of a node: the first of its fields that contains a name. */
function titleOf(node: Schemas["EvidenceNode"]): string {
  const data = node.data as unknown as Record<string, unknown>;
  for (const field of ["slug", "asset_slug", "reason_code", "obligation_name", "approved_by", "artifact_kind", "environment", "execution_id"]) {
    if (typeof data[field] === "string") return data[field];
  }
  return node.id;
}
