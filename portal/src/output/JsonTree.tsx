import { useState } from "react";
import type { Json } from "../api/types";
import { useText } from "../i18n";

/** Number of children that a node shows at first and with each further click. */
const PAGE = 100;
/** Number of levels that are initially open. */
const OPEN_LEVELS = 2;

/**
 * A collapsible tree of a JSON value. The document contains only the children of open nodes, so large values are cheap.
 */
export default function JsonTree({ value }: { value: Json }) {
  return (
    <div className="json" dir="ltr">
      <Node name={null} value={value} level={0} />
    </div>
  );
}

function Node({ name, value, level }: { name: string | null; value: Json; level: number }) {
  const text = useText();
  const [open, setOpen] = useState(level < OPEN_LEVELS);
  const [limit, setLimit] = useState(PAGE);
  const key = name === null ? null : <span className="json-key">{name}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div className="json-line">
        {key}
        <span className={`json-${value === null ? "null" : typeof value}`}>{JSON.stringify(value)}</span>
      </div>
    );
  }
  const members = Object.entries(value);
  return (
    <div>
      <button type="button" className="json-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span aria-hidden="true">{open ? "▾" : "▸"}</span> {key}
        <span className="hint">
          {Array.isArray(value) ? "[ ]" : "{ }"} {text("json_items", { count: members.length })}
        </span>
      </button>
      {open && (
        <div className="json-children">
          {members.slice(0, limit).map(([member, child]) => (
            <Node key={member} name={member} value={child} level={level + 1} />
          ))}
          {members.length > limit && (
            <button type="button" className="secondary" onClick={() => setLimit(limit + PAGE)}>
              {text("show_more")}
            </button>
          )}
        </div>
      )}
    </div>
  );
}
