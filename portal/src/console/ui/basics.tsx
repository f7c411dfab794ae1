import { useId, type KeyboardEvent, type ReactNode } from "react";
import { Button } from "@mantine/core";
import type { Problem } from "../../api/problem";
import { CopyButton } from "../../ui/CopyButton";
import { ProblemNotice } from "../../ui/ProblemNotice";
import { curlText, fairwayText, type Command } from "../core/commands";
import { timeText } from "../core/format";
import { useAccess, useConsole, type Scope } from "../core/console";
import { useConsoleText, useValueText } from "../i18n";

/** A time as the reader's language writes it, with the exact one as title. */
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

/** A state as text in a coloured frame; the colour is never the only sign. */
export function Tag({ value }: { value: string }) {
  const named = useValueText();
  return <span className={`tag tag-${TONES[value] ?? "plain"}`}>{named(value)}</span>;
}

/** The beginning of an identifier, with the whole one as title. */
export const shortId = (id: string): string => (id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);
export const Id = ({ id }: { id: string }) => (
  <code title={id} className="id">
    {shortId(id)}
  </code>
);

export function Section({ title, children, actions }: { title: string; children: ReactNode; actions?: ReactNode }) {
  return (
    // No landmark: tables inside have the same name.
    <section className="section">
      <div className="section-head">
        <h2>{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}

/** Says what would be here, and how to get it. */
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

/** The same in a shell: each request of the view for `curl`, and as a command. */
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
      {/* Focusable, because a long line scrolls. */}
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
  /** Why the state of the resource forbids the action; null if it does not. */
  blocked?: string | null;
  tone?: "primary" | "plain" | "danger";
  /** The key that triggers the action while the focus is in its row. */
  shortcut?: string;
  onClick: () => void;
}

/** Why an action is disabled: the missing permission first, else what the resource says. Null for an allowed action. */
export function useDisabledReason(operation: string, scope: Scope | null, blocked: string | null = null): string | null {
  const text = useConsoleText();
  const { answer, isPending } = useAccess(operation, scope);
  if (scope === null || isPending) return text("checking");
  if (answer && !answer.allowed) return text("needs_permission", { permission: answer.permission ?? operation });
  return blocked;
}

/** A button that asks the server whether the caller may act, and says why not. It stays reachable by keyboard. */
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
  /** The whole name, which says which row it belongs to, and begins or ends with the visible words. */
  name: string;
  onClick: () => void;
}

/** A button of a row that everybody who sees the row may use. */
export function RowAction({ label, name, onClick }: RowActionProps) {
  return (
    <button type="button" className="plain" aria-label={name} onClick={onClick}>
      {label}
    </button>
  );
}

/** A button of a row that asks the server whether the caller may act, and says why not. */
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

/** Triggers the action of a row whose shortcut was pressed in it. Keys with modifiers, and those typed into a field, stay as they are. */
export function onRowKey(event: KeyboardEvent<HTMLElement>): void {
  const { target, currentTarget, key } = event;
  // Dialogs are children of their row in React, but not in the document.
  const isOutside = !(target instanceof HTMLElement) || !currentTarget.contains(target) || target.matches("input, select, textarea");
  if (isOutside || event.ctrlKey || event.metaKey || event.altKey) return;
  const button = [...currentTarget.querySelectorAll<HTMLElement>("[data-key]")].find((one) => one.dataset["key"] === key.toLowerCase());
  if (!button) return;
  event.preventDefault();
  button.focus();
  button.click();
}

/** A definition list of facts. */
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
