import { lazy, Suspense } from "react";
import type { Json, OutputDisplay } from "../api/types";
import { useText } from "../i18n";
import { ErrorBoundary } from "../ui/ErrorBoundary";
import { rowsOf } from "./csv";
import { isTooDeep, MAX_MARKDOWN } from "./markdown";
import { parsed, plainText } from "./plain";

const JsonTree = lazy(() => import("./JsonTree"));
const MarkdownOutput = lazy(() => import("./MarkdownOutput"));
const TableOutput = lazy(() => import("./TableOutput"));

/** A result in the output display of the workload. */
export function Output({ value, display }: { value: Json; display: OutputDisplay | undefined }) {
  const text = useText();
  if (value === null || value === "") return <p className="hint">{text("no_output")}</p>;
  const plain = <PlainOutput value={value} />;
  return (
    <div className="stack">
      <ErrorBoundary fallback={plain}>
        <Suspense fallback={plain}>{rendered(value, display) ?? plain}</Suspense>
      </ErrorBoundary>
    </div>
  );
}

function rendered(value: Json, display: OutputDisplay | undefined) {
  switch (display) {
    case "json":
      return <JsonTree value={parsed(value)} />;
    case "table": {
      const rows = rowsOf(parsed(value));
      return rows ? <TableOutput rows={rows} /> : <JsonTree value={parsed(value)} />;
    }
    case "markdown": {
      const source = plainText(value);
      if (source.length > MAX_MARKDOWN || isTooDeep(source)) return null;
      return (
        <div className="markdown" dir="auto">
          <MarkdownOutput value={source} />
        </div>
      );
    }
    default:
      return null;
  }
}

/** Plain text in a panel that can be scrolled by keyboard too. */
export function PlainOutput({ value }: { value: Json }) {
  const text = useText();
  return (
    <pre className="output scroll" dir="auto" tabIndex={0} role="region" aria-label={text("result")}>
      {plainText(value)}
    </pre>
  );
}
