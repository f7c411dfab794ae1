import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useLayoutEffect, useRef, type ReactNode } from "react";
import type { Problem } from "../../api/problem";
import { useConsoleText } from "../i18n";
import { Failed, Loading } from "./basics";

/** The assumed height of a row in pixels until the first row is rendered. */
const ROW_HEIGHT = 44;

export interface Column<T> {
  name: string;
  render: (row: T) => ReactNode;
}

interface Props<T> {
  label: string;
  columns: readonly Column<T>[];
  list: { rows: T[]; total: number | null; isPending: boolean; problem: Problem | null; hasMore: boolean; more: () => void; refetch: () => void };
  keyOf: (row: T) => string;
  empty: ReactNode;
}

/** A paginated list of any length. The document contains only the visible rows. */
export function VirtualTable<T>({ label, columns, list, keyOf, empty }: Props<T>) {
  const text = useConsoleText();
  const { rows, total, more, hasMore } = list;
  const frame = useRef<HTMLDivElement>(null);
  const height = useRef(ROW_HEIGHT);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => frame.current, estimateSize: () => height.current, overscan: 6 });
  const items = virtual.getVirtualItems();
  const lastIndex = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && lastIndex >= rows.length - 20) more();
  }, [hasMore, lastIndex, rows.length, more]);
  // Measures the row height once, because a row of unexpected height moves all later rows, which is slow in long lists.
  const hasRows = rows.length > 0;
  useLayoutEffect(() => {
    const first = frame.current?.querySelector<HTMLElement>("tr[data-index]");
    if (hasRows && first) height.current = first.offsetHeight || ROW_HEIGHT;
  }, [hasRows]);
  if (list.problem) return <Failed problem={list.problem} onRetry={list.refetch} />;
  if (list.isPending) return <Loading what={label} />;
  if (rows.length === 0) return <>{empty}</>;
  const before = items[0]?.start ?? 0;
  const after = virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <>
      <p role="status" className="hint">
        {text("rows_loaded", { count: rows.length, total: total ?? rows.length })}
      </p>
      <div ref={frame} className="frame" tabIndex={0} role="region" aria-label={label}>
        <table aria-rowcount={total ?? -1}>
          <thead>
            <tr>
              {columns.map(({ name }) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {before > 0 && <Gap height={before} span={columns.length} />}
            {items.map((item) => {
              const row = rows[item.index];
              return row !== undefined && <Row key={keyOf(row)} row={row} index={item.index} columns={columns} measure={virtual.measureElement} />;
            })}
            {after > 0 && <Gap height={after} span={columns.length} />}
          </tbody>
        </table>
      </div>
    </>
  );
}

interface RowProps<T> {
  row: T;
  index: number;
  columns: readonly Column<T>[];
  measure: (element: Element | null) => void;
}

/** A row, which is memoized so that scrolling does not render it again. */
const Row = memo(function Row<T>({ row, index, columns, measure }: RowProps<T>) {
  return (
    <tr data-index={index} ref={measure} aria-rowindex={index + 2}>
      {columns.map((column) => (
        <td key={column.name}>{column.render(row)}</td>
      ))}
    </tr>
  );
}) as <T>(props: RowProps<T>) => ReactNode;

/** A placeholder with the height of the rows that are not in the document. */
const Gap = ({ height, span }: { height: number; span: number }) => (
  <tr aria-hidden>
    <td colSpan={span} className="gap" style={{ height }} />
  </tr>
);
