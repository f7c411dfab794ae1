import type { Json } from "../../api/types";
import type { GraphEdge, GraphNode } from "../ui/GraphPicture";
import { sortedJson } from "./diff";
import type { Asset, Schemas } from "./types";

interface Graphic {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

type Step = { id: string; type?: unknown } & Record<string, Json>;
/** The fields of a step that contain the id of a following step. */
const NEXT = ["next", "on_success", "on_failure"] as const;

function stepsOf(content: Json | undefined): Step[] {
  const steps = content && typeof content === "object" && !Array.isArray(content) ? content["steps"] : null;
  return (Array.isArray(steps) ? steps : []).filter((step): step is Step => step !== null && typeof step === "object" && !Array.isArray(step) && typeof step["id"] === "string");
}

function edgesOf(steps: readonly Step[]): GraphEdge[] {
  const ids = new Set(steps.map(({ id }) => id));
  return steps.flatMap((step) =>
    NEXT.flatMap((field) => {
      const target = step[field];
      return typeof target === "string" && ids.has(target) ? [{ source: step.id, target, relationship: field }] : [];
    }),
  );
}

/** The steps of a flow as a graph. With an older content, added, removed and changed steps are marked. */
export function flowGraph(content: Json | undefined, older?: Json): Graphic {
  const [currentSteps, olderSteps] = [stepsOf(content), stepsOf(older)];
  const olderById = new Map(olderSteps.map((step) => [step.id, step]));
  const currentIds = new Set(currentSteps.map(({ id }) => id));
  const node = (step: Step, change?: GraphNode["change"]): GraphNode => ({
    id: step.id, type: typeof step.type === "string" ? step.type : "step", title: step.id, data: step, ...(change ? { change } : {}),
  });
  const changeOf = (step: Step): GraphNode["change"] => {
    const olderStep = olderById.get(step.id);
    if (older === undefined) return undefined;
    return olderStep === undefined ? "added" : sortedJson(olderStep) === sortedJson(step) ? undefined : "changed";
  };
  const removed = olderSteps.filter(({ id }) => !currentIds.has(id));
  const edges = [...edgesOf(currentSteps), ...edgesOf(olderSteps).filter(({ source, target }) => !currentIds.has(source) || !currentIds.has(target))];
  return { nodes: [...currentSteps.map((step) => node(step, changeOf(step))), ...removed.map((step) => node(step, "removed"))], edges };
}

/** The dependents of an asset as a graph: the asset, referring versions, releases and their workloads. */
export function impactGraph(asset: Asset, impact: Schemas["BlastRadius"]): Graphic {
  const nodes = new Map<string, GraphNode>();
  const edges = new Map<string, GraphEdge>();
  const connect = (source: string, target: string, relationship: string) => edges.set(`${source} ${target}`, { source, target, relationship });
  nodes.set(asset.asset_id, { id: asset.asset_id, type: asset.asset_kind, title: asset.slug, data: asset });
  for (const version of impact.via) {
    nodes.set(version.asset_version_id, { id: version.asset_version_id, type: version.asset_kind, title: `${version.asset_slug} ${version.version_label}`, data: version });
    connect(version.towards ?? asset.asset_id, version.asset_version_id, "referred_by");
  }
  for (const release of impact.releases) {
    nodes.set(release.release_id, { id: release.release_id, type: "release", title: `${release.environment} ${release.state}`, data: release });
    const lastVersion = release.path.at(-1);
    // If the last hop of the path is not visible to the reader, the release is connected to the asset directly.
    connect(lastVersion && nodes.has(lastVersion.asset_version_id) ? lastVersion.asset_version_id : asset.asset_id, release.release_id, "bound_by");
  }
  for (const workload of impact.workloads) {
    nodes.set(workload.workload_id, { id: workload.workload_id, type: "workload", title: workload.slug, data: workload });
    for (const release of workload.release_ids) if (nodes.has(release)) connect(release, workload.workload_id, "release_of");
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}
