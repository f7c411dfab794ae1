import { Button } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";
import type { Problem } from "../../api/problem";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { curlText, type ApiRequest } from "../core/commands";
import { randomId, useChange, useConsole } from "../core/console";
import { useConsoleText } from "../i18n";
import { Frame } from "./Frame";

interface Props {
  title: string;
  confirm: string;
  /** The description of the change's consequences. */
  children: ReactNode;
  request: ApiRequest;
  /** The reason why the change cannot be sent now; null if it can. */
  blocked?: string | null;
  danger?: boolean;
  onClose: () => void;
  onDone?: (answer: unknown) => void;
  /** Handles a refusal that the view can show better than the dialog; returning true closes the dialog. */
  onRefused?: (problem: Problem) => boolean;
}

/** Confirms a change: shows its consequences and the exact request, sends it, and shows the server's response. */
export function Dialog({ title, confirm, children, request, blocked = null, danger = false, onClose, onDone, onRefused }: Props) {
  const text = useConsoleText();
  const { client } = useConsole();
  const [key] = useState(randomId);
  const change = useChange(key);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (blocked !== null || change.isPending) return;
    change.mutate(request, {
      onSuccess: (answer) => {
        onDone?.(answer);
        onClose();
      },
      onError: (problem) => {
        if (onRefused?.(problem)) onClose();
      },
    });
  };
  const isStale = change.error?.status === 412 || change.error?.status === 409;
  return (
    <Frame title={title} size="lg" onClose={onClose}>
      <form onSubmit={submit} className="stack">
        {children}
        <details className="commands">
          <summary>{text("exact_request")}</summary>
          <pre tabIndex={0} aria-label="curl">
            <code>{curlText(request, location.origin, client.identity)}</code>
          </pre>
        </details>
        {isStale && (
          <p className="notice notice-wait" data-testid="stale">
            {text("changed_since")}
          </p>
        )}
        {change.error && <ProblemNotice problem={change.error} />}
        {change.error && change.error.fields.length > 0 && (
          <ul data-testid="fields">
            {change.error.fields.map(({ path, code, message }) => (
              <li key={path + code}>
                <code>{path}</code>: {message} ({code})
              </li>
            ))}
          </ul>
        )}
        {blocked !== null && <p className="hint">{blocked}</p>}
        <div className="buttons">
          <Button type="submit" className={danger ? "button-danger" : "button-primary"} aria-disabled={blocked !== null || change.isPending}>
            {change.isPending ? text("sending") : confirm}
          </Button>
          <Button className="button-plain" onClick={onClose}>
            {text("cancel")}
          </Button>
        </div>
      </form>
    </Frame>
  );
}
