import { useEffect, useState } from "react";
import type { Problem } from "../api/problem";
import { knownKey, useText, type Translate } from "../i18n";

/** Explains a problem in a sentence for the user. */
export function explain(problem: Problem, text: Translate): string {
  const reason = String(problem.detail["reason_code"] ?? "–");
  const permission = String(problem.detail["permission"] ?? "–");
  const key = knownKey(`p_${problem.code}`);
  if (key) return text(key, { reason, permission, message: problem.message });
  if (problem.status === 503) return text("p_unavailable");
  if (problem.status >= 500) return text("p_internal");
  return text("p_other", { message: problem.message || problem.code });
}

interface Props {
  problem: Problem;
  onRetry?: (() => void) | undefined;
}

/** Shows a problem with its request id, and a countdown if the server sent `Retry-After`. */
export function ProblemNotice({ problem, onRetry }: Props) {
  const text = useText();
  const [secondsLeft, setSecondsLeft] = useState(problem.retryAfter ?? 0);
  useEffect(() => {
    const end = Date.now() + (problem.retryAfter ?? 0) * 1_000;
    const tick = () => setSecondsLeft(Math.max(0, Math.ceil((end - Date.now()) / 1_000)));
    tick();
    const timer = setInterval(tick, 250);
    return () => clearInterval(timer);
  }, [problem]);
  return (
    // A run that the user cancelled is not styled as an error.
    <div className={problem.code === "cancelled" ? "notice" : "notice notice-error"} data-code={problem.code}>
      <p role="alert">{explain(problem, text)}</p>
      {problem.retryAfter !== null && (
        <p data-testid="countdown">{secondsLeft > 0 ? text("try_later", { seconds: secondsLeft }) : text("try_now")}</p>
      )}
      {problem.requestId && <p className="hint">{text("request_id", { id: problem.requestId })}</p>}
      {problem.executionId && <p className="hint">{text("run_id", { id: problem.executionId })}</p>}
      {onRetry && (
        <button type="button" disabled={secondsLeft > 0} onClick={onRetry}>
          {text("retry")}
        </button>
      )}
    </div>
  );
}
