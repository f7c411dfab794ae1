import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { randomId, useChange, useConsole, useRead } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Commands, Failed, Loading } from "../ui/basics";
import { CATEGORIES, changeOf, CHANNELS, choiceOf, type Choice } from "./preferences";

type Preference = Schemas["NotificationPreference"];

interface Props {
  /** The name of the scope for the caption. */
  scope: string;
  workspace: string | null;
  workload: string | null;
  environment: string | null;
}

function pathOf({ workspace, workload, environment }: Omit<Props, "scope">): string {
  if (!workspace) return apiPath("/v1/notifications/preferences", {});
  if (!workload) return apiPath("/v1/notifications/workspaces/{workspace_id}/preferences", { workspace_id: workspace });
  const ids = { workspace_id: workspace, workload_id: workload };
  if (!environment) return apiPath("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/preferences", ids);
  return apiPath("/v1/notifications/workspaces/{workspace_id}/workloads/{workload_id}/environments/{environment}/preferences", { ...ids, environment });
}

/**
 * The matrix of categories and channels: the preference of one scope, the effective value, and the scope that decides.
 */
export function PreferenceMatrix(props: Props) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { client } = useConsole();
  const [key] = useState(randomId);
  const change = useChange(key);
  const path = pathOf(props);
  const stored = useRead<Preference[]>(path);
  const effective = useQueries({
    queries: CATEGORIES.map((category) => {
      const explainer = apiPath("/v1/notifications/preferences/effective", {}, {
        category,
        workspace_id: props.workspace ?? undefined,
        workload_id: props.workload ?? undefined,
        environment: props.environment ?? undefined,
      });
      return {
        queryKey: ["effective", client.cacheKey, explainer],
        retry: false,
        queryFn: ({ signal }: { signal: AbortSignal }): Promise<Schemas["EffectivePreference"][]> => client.get(explainer, signal),
      };
    }),
  });
  if (stored.error) return <Failed problem={stored.error} onRetry={() => void stored.refetch()} />;
  if (!stored.data) return <Loading what={text("tab_preferences")} />;
  const { value, etag } = stored.data;
  const set = (wanted: Preference | null) => {
    if (wanted) change.mutate({ method: "PUT", path, body: [wanted], ifMatch: etag });
  };
  return (
    <>
      <p>{text("matrix_text")}</p>
      {change.error && <ProblemNotice problem={change.error} />}
      {change.error?.status === 412 && <p className="notice notice-wait">{text("changed_since")}</p>}
      <div className="frame" tabIndex={0} role="region" aria-label={text("tab_preferences")}>
        <table className="matrix">
          <caption>{text("matrix_scope", { scope: props.scope })}</caption>
          <thead>
            <tr>
              <th scope="col">{text("category")}</th>
              {CHANNELS.map((channel) => (
                <th key={channel} scope="col">
                  {valueText(channel)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {CATEGORIES.map((category, row) => (
              <tr key={category}>
                <th scope="row">{valueText(category)}</th>
                {CHANNELS.map((channel) => {
                  const choice = choiceOf(value, category, channel);
                  const result = (effective[row]?.data as Schemas["EffectivePreference"][] | undefined)?.find((one) => one.channel === channel);
                  return (
                    <td key={channel}>
                      <select
                        aria-label={`${valueText(category)}, ${valueText(channel)}`}
                        value={choice}
                        disabled={change.isPending}
                        onChange={(event) => set(changeOf(category, channel, event.target.value as Choice))}
                      >
                        <option value="inherit" disabled={choice !== "inherit"}>
                          {text("inherit")}
                        </option>
                        <option value="on">{text("on")}</option>
                        <option value="off">{text("off")}</option>
                      </select>
                      <span className="hint" data-testid={`${category} ${channel}`}>
                        {result ? text("effective", { state: text(result.enabled ? "on" : "off"), scope: valueText(result.scope) }) : "…"}
                      </span>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Commands
        items={[
          { label: text("tab_preferences"), request: { method: "GET", path } },
          { label: text("matrix_change"), request: { method: "PUT", path, ifMatch: etag, body: [{ category: "approvals", channel: "portal", enabled: true }] } },
        ]}
      />
    </>
  );
}
