import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Client } from "../api/client";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { FlatEvidence } from "../api/types";
import { useText } from "../i18n";
import { ProblemNotice } from "../ui/ProblemNotice";

/** The evidence of a run, as far as it is visible to the caller. */
export default function WhyPanel({ client, executionId }: { client: Client; executionId: string }) {
  const text = useText();
  const path = apiPath("/v1/executions/{execution_id}/evidence-graph", { execution_id: executionId }, { format: "flat" });
  const evidence = useQuery({
    queryKey: ["evidence", client.cacheKey, executionId],
    queryFn: ({ signal }) => client.get<FlatEvidence>(path, signal),
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (evidence.error) {
    const { error } = evidence;
    const isHidden = error instanceof Problem && [401, 403, 404].includes(error.status);
    if (isHidden) return <p data-testid="why-hidden">{text("why_hidden", { id: executionId })}</p>;
    return error instanceof Problem ? <ProblemNotice problem={error} /> : null;
  }
  if (!evidence.data) return <p>{text("loading")}</p>;
  const { execution, release, approvals, policy_decision: decision, retrieval_events: retrievals, bindings } = evidence.data;
  const slugOf = (role: string) => bindings.find((binding) => binding.role === role)?.asset_slug ?? role;
  const time = new Date(execution.started_at).toLocaleString();
  return (
    <dl className="facts">
      <Fact name={text("why_release")}>
        {text("why_release_text", { release: release.release_id, environment: release.environment, time })}
      </Fact>
      <Fact name={text("why_approvals")}>
        {approvals.length === 0 ? text("why_none") : approvals.map((approval) => approval.approved_by).join(", ")}
      </Fact>
      <Fact name={text("why_policy")}>
        {text("why_policy_text", { outcome: decision.outcome, reason: decision.reason_code })}
      </Fact>
      <Fact name={text("why_documents")}>
        {retrievals.length === 0
          ? text("why_none")
          : retrievals
              .map((event) => text("why_documents_text", { count: event.retrieved_chunk_count, base: slugOf("knowledge_base") }))
              .join(", ")}
      </Fact>
      <Fact name={text("why_versions")}>{bindings.map((binding) => binding.asset_slug).join(", ")}</Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd dir="auto">{children}</dd>
    </div>
  );
}
