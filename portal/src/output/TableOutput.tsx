import { useMemo, useState } from "react";
import { useText } from "../i18n";
import { cellText, columnsOf, sorted, toCsv, type Row } from "./csv";

/** Number of rows that are shown at first and with each further click. */
const PAGE = 200;
/** Maximum number of columns that are shown. The CSV file contains all columns. */
const MAX_COLUMNS = 50;

/** A sortable table with a CSV download. */
export default function TableOutput({ rows }: { rows: Row[] }) {
  const text = useText();
  const [order, setOrder] = useState<{ column: string; descending: boolean } | null>(null);
  const [limit, setLimit] = useState(PAGE);
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const sortedRows = useMemo(() => (order ? sorted(rows, order.column, order.descending) : rows), [rows, order]);
  const download = () => {
    const address = URL.createObjectURL(new Blob([toCsv(columns, sortedRows)], { type: "text/csv;charset=utf-8" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = "result.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  const sortBy = (column: string) =>
    setOrder({ column, descending: order?.column === column ? !order.descending : false });
  const directionOf = (column: string) => {
    if (order?.column !== column) return "none" as const;
    return order.descending ? ("descending" as const) : ("ascending" as const);
  };
  return (
    <div className="stack">
      <div className="scroll" tabIndex={0} role="region" aria-label={text("result")}>
        <table>
          <caption className="hint">{text("table_rows", { count: rows.length })}</caption>
          <thead>
            <tr>
              {columns.slice(0, MAX_COLUMNS).map((column) => (
                <th key={column} scope="col" aria-sort={directionOf(column)}>
                  <button type="button" className="link" title={text("sort_by", { column })} onClick={() => sortBy(column)}>
                    <bdi>{column}</bdi>
                    <span aria-hidden="true">{{ none: "", ascending: " ↑", descending: " ↓" }[directionOf(column)]}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sortedRows.slice(0, limit).map((row, index) => (
              <tr key={index}>
                {columns.slice(0, MAX_COLUMNS).map((column) => (
                  <td key={column} dir="auto">
                    {cellText(row.get(column))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div className="actions">
        {rows.length > limit && (
          <button type="button" className="secondary" onClick={() => setLimit(limit + PAGE)}>
            {text("show_more")}
          </button>
        )}
        <button type="button" className="secondary" onClick={download}>
          {text("download_csv")}
        </button>
      </div>
    </div>
  );
}
