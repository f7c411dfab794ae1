import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import type { Client } from "../api/client";
import { apiPath } from "../api/paths";
import { Problem } from "../api/problem";
import type { RuntimeWorkload } from "../api/types";
import { useText } from "../i18n";
import { ProblemNotice } from "../ui/ProblemNotice";
import type { EmbedChannel, HostMessage } from "./embed";
import { FormPage } from "./FormPage";
import { applyTheme } from "./theme";

const ChatPage = lazy(() => import("../chat/ChatPage"));

/** The properties of the component of every presentation mode. */
export interface ModeProps {
  client: Client;
  workload: RuntimeWorkload;
  environment: string;
  isGuest: boolean;
  channel: EmbedChannel | null;
  /** The newest message of the embedding page. */
  host: HostMessage | null;
}

interface Props {
  client: Client;
  slug: string;
  isGuest: boolean;
  root: HTMLElement;
  channel: EmbedChannel | null;
  host: HostMessage | null;
}

/** The page of a workload in its presentation mode. */
export function WorkloadPage({ client, slug, isGuest, root, channel, host }: Props) {
  const text = useText();
  const workload = useQuery({
    queryKey: ["workload", client.cacheKey, slug],
    queryFn: ({ signal }) => client.get<RuntimeWorkload>(apiPath("/v1/workloads/by-slug/{slug}", { slug }), signal),
    retry: (count, error) => error instanceof Problem && error.status === 0 && count < 3,
    // Never reloads the interface: a change takes effect on the next load of the page.
    staleTime: Number.POSITIVE_INFINITY,
  });
  const [requestedEnvironment] = useState(() => new URLSearchParams(location.search).get("environment"));
  const [chosen, setChosen] = useState<string | null>(requestedEnvironment);
  useEffect(() => {
    applyTheme(root, workload.data);
    if (workload.data) document.title = workload.data.name;
  }, [root, workload.data]);
  useEffect(() => {
    if (workload.error instanceof Problem) {
      channel?.send({ type: "fairway:error", code: workload.error.code, requestId: workload.error.requestId });
    }
  }, [workload.error, channel]);

  if (workload.error instanceof Problem) {
    const problem = workload.error;
    return (
      <>
        <h1>{slug}</h1>
        <ProblemNotice problem={problem} onRetry={problem.isTemporary ? () => void workload.refetch() : undefined} />
      </>
    );
  }
  if (!workload.data) return <p role="status">{text("loading")}</p>;
  const { environments, interface_config: config } = workload.data;
  const environment = environmentOf(environments, chosen);
  const mustChoose = environments.length > 1 && !requestedEnvironment && environmentOf(environments, null) === null;
  return (
    <>
      <h1 dir="auto">{workload.data.name}</h1>
      {config.description && (
        <p className="lead" dir="auto">
          {config.description}
        </p>
      )}
      {mustChoose && <EnvironmentChoice names={environments} chosen={chosen} onChoose={setChosen} />}
      {environments.length === 0 && <ProblemNotice problem={new Problem(409, "no_active_release", "")} />}
      {environment !== null && (
        <Suspense fallback={<p role="status">{text("loading")}</p>}>
          {config.presentation_mode === "chat" ? (
            <ChatPage {...{ client, environment, isGuest, channel, host }} workload={workload.data} />
          ) : (
            <FormPage {...{ client, environment, isGuest, channel, host }} workload={workload.data} />
          )}
        </Suspense>
      )}
    </>
  );
}

/**
 * The environment of runs: the chosen environment, else `production`, else the only environment. Null if a person
 * must choose.
 */
export function environmentOf(names: readonly string[], chosen: string | null): string | null {
  if (chosen !== null && chosen !== "") return chosen;
  if (names.includes("production")) return "production";
  return names.length === 1 ? (names[0] ?? null) : null;
}

interface ChoiceProps {
  names: readonly string[];
  chosen: string | null;
  onChoose: (name: string) => void;
}

function EnvironmentChoice({ names, chosen, onChoose }: ChoiceProps) {
  const text = useText();
  return (
    <div className="field">
      <label htmlFor="environment">{text("environment")}</label>
      <select id="environment" value={chosen ?? ""} onChange={(event) => onChoose(event.target.value)}>
        <option value="">{text("choose")}</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </div>
  );
}
