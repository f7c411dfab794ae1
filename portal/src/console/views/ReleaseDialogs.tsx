import { useState } from "react";
import { apiPath } from "../../api/paths";
import { LANES, type Gate, type ReleaseDetail, type Schemas } from "../core/types";
import { useConsoleText, useValueText, type ConsoleTranslate } from "../i18n";
import { Dialog } from "../ui/Dialog";
import { Field, NoteField } from "../ui/Filters";

/** The states to which a person can request a transition. */
export const TARGETS = ["review_ready", "draft", "approved", "active", "retired"] as const;
export type Target = (typeof TARGETS)[number];

/** The operation whose permission a transition requires: authors submit and withdraw, other roles transition. */
export const operationOf = (target: Target, _state: string): string => (target === "review_ready" || target === "draft" ? "submit_release" : "transition_release");

/** The reason why a release cannot reach a state now: its current state, else the blocked gates of the transition. */
export function reasonAgainst(target: Target, release: ReleaseDetail, gates: readonly Gate[], text: ConsoleTranslate): string | null {
  if (!release.valid_transitions.includes(target)) return text("not_from_state", { states: release.valid_transitions.join(", ") || "–" });
  const blocked = gates.filter((gate) => gate.to_state === target && gate.verdict === "blocked" && !gate.lane);
  return blocked.length === 0 ? null : blocked.map((gate) => `${gate.message} (${gate.code})`).join(" ");
}

interface Props {
  release: ReleaseDetail;
  etag: string | null;
  onClose: () => void;
  onDone: () => void;
}

type Outcome = "approved" | "changes_requested" | "rejected";
const VERDICTS = { approved: "approve", changes_requested: "request_changes", rejected: "reject" } as const;

/** The dialog for a verdict, which applies to exactly the bytes that the page shows. */
export function VerdictDialog({ release, etag, digest, outcome, onClose, onDone }: Props & { digest: string; outcome: Outcome }) {
  const text = useConsoleText();
  const [note, setNote] = useState("");
  const release_id = release.release_id;
  const body: Schemas["NewApproval"] = { outcome, subject_kind: "release", subject_ref: release_id };
  if (note.trim()) body.note = note.trim();
  const needsNote = outcome !== "approved" && !note.trim();
  return (
    <Dialog
      title={text(VERDICTS[outcome])}
      confirm={text(VERDICTS[outcome])}
      danger={outcome === "rejected"}
      request={{ method: "POST", path: apiPath("/v1/releases/{release_id}/approvals", { release_id }), body, ifMatch: etag }}
      blocked={needsNote ? text("note_needed") : null}
      onClose={onClose}
      onDone={onDone}
    >
      <p>{text(`verdict_${outcome}`)}</p>
      <p className="digest">
        <code>{digest}</code>
      </p>
      <NoteField value={note} onChange={setNote} required={outcome !== "approved"} />
    </Dialog>
  );
}

/** The dialog for a transition. An activation can roll out lane by lane. */
export function TransitionDialog({ release, etag, target, gates, onClose, onDone }: Props & { target: Target; gates: readonly Gate[] }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [staged, setStaged] = useState(false);
  const [soak, setSoak] = useState("60");
  const [automatic, setAutomatic] = useState(false);
  const release_id = release.release_id;
  const minutes = /^\d{1,5}$/.test(soak) && Number(soak) <= 43_200 ? Number(soak) : null;
  const isStaged = target === "active" && staged && release.target_lane === "all";
  const body: Schemas["TransitionRequest"] = { to_state: target };
  if (isStaged) body.rollout_plan = { lane_sequence: [...LANES], soak_duration_minutes: minutes ?? 0, auto_advance: automatic };
  const warnings = gates.filter((gate) => gate.to_state === target && gate.verdict !== "pass");
  return (
    <Dialog
      title={text(`to_${target}`)}
      confirm={text(`to_${target}`)}
      danger={target === "retired"}
      request={{ method: "POST", path: apiPath("/v1/releases/{release_id}/transition", { release_id }), body, ifMatch: etag }}
      blocked={isStaged && minutes === null ? text("soak_invalid") : null}
      onClose={onClose}
      onDone={onDone}
    >
      <p>{text(`consequence_${target}`)}</p>
      {warnings.length > 0 && (
        <ul>
          {warnings.map((gate) => (
            <li key={gate.gate + gate.code}>
              {valueText(gate.verdict)}: {gate.message} ({gate.code})
            </li>
          ))}
        </ul>
      )}
      {target === "active" && release.target_lane === "all" && (
        <>
          <label className="check">
            <input type="checkbox" checked={staged} onChange={(event) => setStaged(event.target.checked)} /> {text("staged", { lanes: LANES.map(valueText).join(", ") })}
          </label>
          {staged && (
            <>
              <Field label={text("soak_minutes")}>{(id) => <input id={id} inputMode="numeric" value={soak} onChange={(event) => setSoak(event.target.value.trim())} />}</Field>
              <label className="check">
                <input type="checkbox" checked={automatic} onChange={(event) => setAutomatic(event.target.checked)} /> {text("auto_advance")}
              </label>
            </>
          )}
        </>
      )}
    </Dialog>
  );
}
