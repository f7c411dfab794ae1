import type { ReactNode } from "react";
import type { Column } from "./VirtualTable";

/** A short table. If it is wider than the page, it scrolls horizontally, also by keyboard. */
export function Table<T>({ label, columns, rows, keyOf, empty }: { label: string; columns: readonly Column<T>[]; rows: readonly T[]; keyOf: (row: T) => string; empty?: ReactNode }) {
  if (rows.length === 0) return <>{empty}</>;
  return (
    <div className="frame frame-short" tabIndex={0} role="region" aria-label={label}>
      <table>
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
          {rows.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.name}>{column.render(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
