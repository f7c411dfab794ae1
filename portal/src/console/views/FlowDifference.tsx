import { useMemo } from "react";
import type { Json } from "../../api/types";
import { flowGraph } from "../core/graphs";
import { useConsoleText } from "../i18n";
import { GraphPicture } from "../ui/GraphPicture";

/** The differences between the steps of two flow contents, as one graph. */
export default function FlowDifference({ before, after, name }: { before: Json; after: Json; name: string }) {
  const text = useConsoleText();
  const graph = useMemo(() => flowGraph(after, before), [after, before]);
  return graph.nodes.length > 0 ? <GraphPicture {...graph} name={name} label={text("flow_picture")} /> : null;
}
