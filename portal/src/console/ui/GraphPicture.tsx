import { useEffect, useMemo, useRef, useState } from "react";
import { Graph, layout } from "@dagrejs/dagre";
import { sortedJson } from "../core/diff";
import type { Json } from "../../api/types";
import { useConsoleText, useValueText } from "../i18n";

/** A node of a graph. Its data is shown when the node is selected. */
export interface GraphNode {
  id: string;
  type: string;
  title: string;
  data: unknown;
  /** The result of a comparison for this node; absent if the node is unchanged. */
  change?: "added" | "removed" | "changed";
}

export interface GraphEdge {
  source: string;
  target: string;
  relationship: string;
}

interface Graphic {
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
}

const [WIDTH, HEIGHT] = [190, 52];
/** Maximum height in pixels; a larger picture scrolls. */
const MAX_HEIGHT = 384;

interface Placed extends GraphNode {
  x: number;
  y: number;
}

function layOutGraph({ nodes, edges }: Graphic) {
  const graph = new Graph<{ rankdir: string; nodesep: number; ranksep: number; marginx: number; marginy: number }>();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 60, marginx: 6, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { width: WIDTH, height: HEIGHT });
  for (const edge of edges) if (graph.hasNode(edge.source) && graph.hasNode(edge.target)) graph.setEdge(edge.source, edge.target);
  layout(graph);
  const positionOf = (id: string) => graph.node(id) as { x: number; y: number };
  const placedNodes: Placed[] = nodes.map((node) => ({ ...node, ...pick(positionOf(node.id)) }));
  const largest = (values: number[]) => values.reduce((maximum, value) => Math.max(maximum, value), 0);
  const size = { width: largest(placedNodes.map(({ x }) => x)) + WIDTH / 2 + 10, height: largest(placedNodes.map(({ y }) => y)) + HEIGHT / 2 + 10 };
  return { placedNodes, size, positionOf };
}
const pick = ({ x, y }: { x: number; y: number }) => ({ x, y });

/** A graph as a picture that can be navigated by keyboard and downloaded as a file. */
export function GraphPicture({ nodes, edges, name, label }: Graphic & { name: string; label: string }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const picture = useRef<SVGSVGElement>(null);
  const { placedNodes, size, positionOf } = useMemo(() => layOutGraph({ nodes, edges }), [nodes, edges]);
  const [chosen, setChosen] = useState(placedNodes[0]?.id ?? null);
  const node = nodes.find(({ id }) => id === chosen) ?? null;
  const relations = edges.filter(({ source, target }) => source === chosen || target === chosen);
  const move = (step: number) => {
    const index = placedNodes.findIndex(({ id }) => id === chosen);
    setChosen(placedNodes[(index + step + placedNodes.length) % placedNodes.length]?.id ?? null);
  };
  const active = useRef<SVGGElement>(null);
  const hasMoved = useRef(false);
  useEffect(() => {
    if (hasMoved.current) active.current?.focus();
  }, [chosen]);
  return (
    <>
      <p className="hint">{text("picture_keys")}</p>
      <div className="buttons">
        <button type="button" className="plain" onClick={() => picture.current && save(svgText(picture.current, size), `${name}.svg`, "image/svg+xml")}>
          {text("save_svg")}
        </button>
        <button type="button" className="plain" onClick={() => picture.current && void savePng(svgText(picture.current, size), size, `${name}.png`)}>
          {text("save_png")}
        </button>
      </div>
      <div className="frame frame-tall" style={{ blockSize: Math.min(size.height + 24, MAX_HEIGHT) }} tabIndex={0} role="region" aria-label={label}>
        <svg ref={picture} role="group" aria-label={label} width={size.width} height={size.height} viewBox={`0 0 ${size.width} ${size.height}`} className="graph">
          {edges.map(({ source, target, relationship }) => {
            const [from, to] = [positionOf(source), positionOf(target)];
            return from && to && <line key={`${source} ${target} ${relationship}`} x1={from.x + WIDTH / 2} y1={from.y} x2={to.x - WIDTH / 2} y2={to.y} className="edge" />;
          })}
          {placedNodes.map(({ id, type, title, change, x, y }) => (
            <g
              key={id}
              ref={id === chosen ? active : null}
              role="button"
              aria-pressed={id === chosen}
              tabIndex={id === chosen ? 0 : -1}
              className={`node ${id === chosen ? "node-chosen" : ""} ${change ? `node-${change}` : ""}`}
              onClick={() => setChosen(id)}
              onKeyDown={(event) => {
                const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
                if (step === undefined) return;
                event.preventDefault();
                hasMoved.current = true;
                move(step);
              }}
            >
              <rect x={x - WIDTH / 2} y={y - HEIGHT / 2} width={WIDTH} height={HEIGHT} rx={6} />
              <text x={x - WIDTH / 2 + 10} y={y - 6} className="node-type">
                {valueText(type)}
                {change && ` (${text(`step_${change}`)})`}
              </text>{" "}
              <text x={x - WIDTH / 2 + 10} y={y + 14}>
                {title.length > 24 ? `${title.slice(0, 23)}…` : title}
              </text>
            </g>
          ))}
        </svg>
      </div>
      {node && (
        <section aria-label={text("chosen_node")} aria-live="polite">
          <h2>
            {valueText(node.type)} {node.title}
          </h2>
          <ul>
            {relations.map(({ source, target, relationship }) => (
              <li key={source + target + relationship}>
                {source === chosen ? `${valueText(relationship)} → ${target}` : `${source} → ${valueText(relationship)}`}
              </li>
            ))}
          </ul>
          <pre tabIndex={0} aria-label={node.id} className="wrap">
            {sortedJson(node.data as unknown as Json)}
          </pre>
        </section>
      )}
    </>
  );
}

/** The picture as an SVG file. It contains its styles, because those of the page do not apply to the file. */
function svgText(picture: SVGSVGElement, size: { width: number; height: number }): string {
  const copy = picture.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "sans-serif");
  copy.setAttribute("font-size", "13");
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: String(size.width), height: String(size.height), fill: "#ffffff" })) back.setAttribute(name, value);
  for (const rect of copy.querySelectorAll("rect")) {
    rect.setAttribute("fill", "#ffffff");
    rect.setAttribute("stroke", "#50565e");
  }
  for (const line of copy.querySelectorAll("line")) line.setAttribute("stroke", "#50565e");
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

function save(content: BlobPart, name: string, type: string): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function savePng(svg: string, size: { width: number; height: number }, name: string): Promise<void> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.min(8_000, Math.ceil(size.width * 2));
  canvas.height = Math.min(8_000, Math.ceil(size.height * 2));
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save(blob, name, "image/png"), "image/png");
}
