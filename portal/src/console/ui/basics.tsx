import { useId, type KeyboardEvent, type ReactNode } from "react";
import { Button } from "@mantine/core";
import type { Problem } from "../../api/problem";
import { CopyButton } from "../../ui/CopyButton";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { curlText, fairwayText, type Command } from "../core/commands";
import { timeText } from "../core/format";
import { useAccess, useConsole, type Scope } from "../core/console";
import { useConsoleText, useValueText } from "../i18n";

/** A time in the reader's language, with the exact time as title. */
export function Time({ value }: { value: string | null | undefined }) {
  if (!value) return <>–</>;
  return (
    <time dateTime={value} title={value}>
      {timeText(value)}
    </time>
  );
}

const TONES: Record<string, string> = {
  active: "good", completed: "good", approved: "good", pass: "good", healthy: "good", registered: "good", granted: "good", success: "good",
  failed: "bad", denied: "bad", blocked: "bad", rejected: "bad", suspended: "bad", unhealthy: "bad", critical: "bad", failure: "bad",
  review_ready: "wait", awaiting_review: "wait", pending: "wait", pending_access: "wait", running: "wait", queued: "wait", warn: "wait", warning: "wait",
  changes_requested: "wait", unknown: "wait", requested: "wait", in_progress: "wait",
};

/** A state as text in a coloured frame. The text alone identifies the state, for readers who cannot see the colour. */
export function Tag({ value }: { value: string }) {
  const valueText = useValueText();
  return <span className={`tag tag-${TONES[value] ?? "plain"}`}>{valueText(value)}</span>;
}

/** The beginning and the end of a long identifier; `Id` shows it with the whole identifier as title. */
export const shortId = (id: string): string => (id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);
export const Id = ({ id }: { id: string }) => (
  <code title={id} className="id">
    {shortId(id)}
  </code>
);

export function Section({ title, children, actions }: { title: string; children: ReactNode; actions?: ReactNode }) {
  return (
    // The section has no label, because as a landmark it would have the same name as its tables.
    <section className="section">
      <div className="section-head">
        <h2>{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}

/** The text for an empty list: what the list would contain, and how to create it. */
export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

export function Loading({ what }: { what?: string }) {
  const text = useConsoleText();
  return (
    <p role="status" className="hint">
      {text("loading_what", { what: what ?? text("view") })}
    </p>
  );
}

export function Failed({ problem, onRetry }: { problem: Problem | null | undefined; onRetry?: () => void }) {
  return problem ? <ProblemNotice problem={problem} onRetry={onRetry} /> : null;
}

/** Shows the requests of the view as `curl` commands and as commands of `fairway`. */
export function Commands({ items }: { items: readonly Command[] }) {
  const text = useConsoleText();
  const { client } = useConsole();
  const { origin } = location;
  return (
    <details className="commands">
      <summary>{text("commands")}</summary>
      {items.map(({ label, request, words }) => (
        <div key={label + request.path} className="command">
          <h3>{label}</h3>
          {words && <CommandLine kind="fairway" value={fairwayText(words, origin, client.identity)} />}
          <CommandLine kind="curl" value={curlText(request, origin, client.identity)} />
        </div>
      ))}
    </details>
  );
}

function CommandLine({ kind, value }: { kind: string; value: string }) {
  return (
    <div className="command-line">
      {/* Focusable, so that a long line can be scrolled by keyboard. */}
      <pre tabIndex={0} aria-label={kind}>
        <code>{value}</code>
      </pre>
      <CopyButton value={value} />
    </div>
  );
}

interface ActionProps {
  label: string;
  operation: string;
  scope: Scope | null;
  /** The reason why the state of the resource forbids the action; null if the action is permitted. */
  blocked?: string | null;
  tone?: "primary" | "plain" | "danger";
  /** The key that triggers the action while the focus is in its row. */
  shortcut?: string;
  onClick: () => void;
}

/** The reason why an action is disabled: the missing permission, else `blocked`. Null if the action is permitted. */
export function useDisabledReason(operation: string, scope: Scope | null, blocked: string | null = null): string | null {
  const text = useConsoleText();
  const { answer, isPending } = useAccess(operation, scope);
  if (scope === null || isPending) return text("checking");
  if (answer && !answer.allowed) return text("needs_permission", { permission: answer.permission ?? operation });
  return blocked;
}

/**
 * A button that asks the server for permission, and shows the reason if it is disabled. It stays focusable by keyboard.
 */
export function Action({ label, operation, scope, blocked = null, tone = "plain", shortcut, onClick }: ActionProps) {
  const id = useId();
  const reason = useDisabledReason(operation, scope, blocked);
  return (
    <span className="action">
      <Button
        size="sm"
        className={`button-${tone}`}
        aria-disabled={reason !== null}
        data-refused={reason !== null || undefined}
        data-key={shortcut}
        aria-keyshortcuts={shortcut}
        {...(reason === null ? {} : { "aria-describedby": id })}
        onClick={() => reason === null && onClick()}
      >
        {label}
      </Button>
      {reason !== null && (
        <span id={id} className="hint reason">
          {reason}
        </span>
      )}
    </span>
  );
}

interface RowActionProps {
  label: string;
  /** The accessible name, which identifies the row, and begins or ends with the visible label. */
  name: string;
  onClick: () => void;
}

/** A button in a row that needs no further permission than reading the row. */
export function RowAction({ label, name, onClick }: RowActionProps) {
  return (
    <button type="button" className="plain" aria-label={name} onClick={onClick}>
      {label}
    </button>
  );
}

/** A button in a row that asks the server for permission, and shows the reason if it is disabled. */
export function GuardedRowAction({ label, name, operation, scope, onClick }: RowActionProps & { operation: string; scope: Scope }) {
  const id = useId();
  const reason = useDisabledReason(operation, scope);
  return (
    <span className="action">
      <button type="button" className="plain" aria-label={name} aria-disabled={reason !== null} aria-describedby={reason === null ? undefined : id} onClick={() => reason === null && onClick()}>
        {label}
      </button>
      {reason !== null && (
        <span id={id} className="hint reason">
          {reason}
        </span>
      )}
    </span>
  );
}

/**
 * Triggers the action of a row when its shortcut key is pressed there. Ignores keys with modifiers and keys typed
 * into fields.
 */
export function onRowKey(event: KeyboardEvent<HTMLElement>): void {
  const { target, currentTarget, key } = event;
  // Ignores events from dialogs. React propagates them to the row, although dialogs are elsewhere in the document.
  const isOutside = !(target instanceof HTMLElement) || !currentTarget.contains(target) || target.matches("input, select, textarea");
  if (isOutside || event.ctrlKey || event.metaKey || event.altKey) return;
  const button = [...currentTarget.querySelectorAll<HTMLElement>("[data-key]")].find((one) => one.dataset["key"] === key.toLowerCase());
  if (!button) return;
  event.preventDefault();
  button.focus();
  button.click();
}

/** Names and values as a definition list. */
export function Facts({ items }: { items: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
