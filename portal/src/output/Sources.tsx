import { useQuery } from "@tanstack/react-query";
import type { Client } from "../api/client";
import { apiPath } from "../api/paths";
import type { Citation, Execution } from "../api/types";
import { useText } from "../i18n";
import type { RunOutcome } from "../runtime/run";
import { mayCite } from "./plain";

/** The retrieved documents that a result cites: their titles, and the passages that the caller may read. */
export function Sources({ client, outcome }: { client: Client; outcome: RunOutcome }) {
  const text = useText();
  const { executionId, resultToken, output } = outcome;
  const path = apiPath("/v1/executions/{execution_id}", { execution_id: executionId }, { include: "citations" });
  const cited = useQuery({
    queryKey: ["citations", client.cacheKey, executionId],
    enabled: mayCite(output),
    queryFn: async ({ signal }) => {
      const response = await client.send(path, { headers: { "X-Result-Token": resultToken ?? undefined }, signal });
      return ((await response.json()) as Execution).citations ?? [];
    },
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (cited.isError) {
    return (
      <p className="hint">
        {text("sources_failed")}{" "}
        <button type="button" className="link" onClick={() => void cited.refetch()}>
          {text("retry")}
        </button>
      </p>
    );
  }
  if (!cited.data || cited.data.length === 0) return null;
  return (
    <section className="sources" aria-label={text("sources")}>
      <p className="hint">{text("sources")}</p>
      <ul>
        {cited.data.map((citation, index) => (
          <li key={index}>
            <Source citation={citation} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Source({ citation }: { citation: Citation }) {
  const text = useText();
  const { document_id: id, title, passages, withheld } = citation;
  const name = (
    <>
      {title && <bdi className="source-title">{title}</bdi>} <bdi className="source-id">[{id}]</bdi>
    </>
  );
  if (passages.length === 0) {
    return (
      <p className="source">
        {name} <span className="hint">{text(withheld ? "source_withheld" : "source_gone")}</span>
      </p>
    );
  }
  return (
    <details className="source">
      <summary>{name}</summary>
      {passages.map((passage, index) => (
        <blockquote key={index} dir="auto">
          {passage}
        </blockquote>
      ))}
    </details>
  );
}
