import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useRead } from "../core/console";
import { LANES, type Release, type Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Facts, Section, Tag, Time } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, NoteField } from "../ui/Filters";

/** The progress of a rollout, the recommendation of a rollback, and the actions to advance and to roll back. */
export function RolloutSection({ release, etag, isStale }: { release: Release; etag: string | null; isStale: boolean }) {
  const text = useConsoleText();
  const [open, setOpen] = useState<"advance" | "rollback" | null>(null);
  const release_id = release.release_id;
  const serves = release.state === "active";
  const rollout = useRead<Schemas["Rollout"]>(serves && release.rollout_state ? apiPath("/v1/releases/{release_id}/rollout", { release_id }) : null, { refresh: true });
  const advice = useRead<Schemas["RollbackRecommendation"]>(serves ? apiPath("/v1/releases/{release_id}/rollback-recommendation", { release_id }) : null, { refresh: true });
  if (!serves) return null;
  const scope = { kind: "workload", ref: release.workload_id } as const;
  const state = rollout.data?.value ?? null;
  const staleReason = isStale ? text("changed_since") : null;
  return (
    <Section title={text("rollout")}>
      {state ? <RolloutFacts state={state} /> : <p>{text("rollout_none")}</p>}
      {advice.data && <Advice advice={advice.data.value} />}
      <div className="buttons">
        <Action
          label={text("advance")}
          operation="advance_rollout"
          scope={scope}
          blocked={staleReason ?? (state?.status === "in_progress" ? null : text("rollout_not_running"))}
          onClick={() => setOpen("advance")}
        />
        <Action label={text("rollback")} tone="danger" operation="roll_back_release" scope={scope} blocked={staleReason} onClick={() => setOpen("rollback")} />
      </div>
      {open === "advance" && <AdvanceDialog release={release} etag={etag} state={state} onClose={() => setOpen(null)} />}
      {open === "rollback" && <RollbackDialog release={release} etag={etag} advice={advice.data?.value ?? null} onClose={() => setOpen(null)} />}
    </Section>
  );
}

function RolloutFacts({ state }: { state: Schemas["Rollout"] }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const observed = state.observed ?? null;
  return (
    <Facts
      items={[
        [text("state"), <Tag key="s" value={state.status} />],
        [text("lane"), `${valueText(state.current_lane)} → ${state.next_lane ? valueText(state.next_lane) : text("nothing")}`],
        [text("soak_ends"), <Soak key="t" state={state} />],
        [text("auto_advance"), text(state.auto_advance ? "yes" : "no")],
        ...(state.hold_reason ? ([[text("held_because"), valueText(state.hold_reason)]] as const) : []),
        ...(observed
          ? ([[text("observed"), text("observed_text", { ended: observed.runs_ended, needed: observed.runs_needed, rate: percent(observed.error_rate), threshold: percent(observed.threshold) })]] as const)
          : []),
      ]}
    />
  );
}

/** The end of the soak time, and the remaining minutes while the rollout is in progress. */
export function Soak({ state }: { state: Schemas["Rollout"] }) {
  const text = useConsoleText();
  const minutes = Math.ceil((state.observed?.soak_left_seconds ?? 0) / 60);
  return (
    <>
      <Time value={state.soak_ends_at} /> {state.status === "in_progress" && `(${text("soak_left", { minutes })})`}
    </>
  );
}

export const percent = (rate: number): string => `${(rate * 100).toFixed(1)} %`;

/** The server's recommendation of a rollback, with its evidence. */
export function Advice({ advice }: { advice: Schemas["RollbackRecommendation"] }) {
  const text = useConsoleText();
  const values = { rate: percent(advice.error_rate), count: advice.sample_size, threshold: percent(advice.threshold) };
  return advice.recommended ? (
    <p className="notice notice-error" role="status" data-testid="advice">
      {text("advice_yes", values)}
    </p>
  ) : (
    <p className="hint" data-testid="advice">
      {text("advice_no", values)}
    </p>
  );
}

export function AdvanceDialog({ release, etag, state, onClose }: { release: Release; etag: string | null; state: Schemas["Rollout"] | null; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const release_id = release.release_id;
  return (
    <Dialog
      title={text("advance")}
      confirm={text("advance")}
      request={{ method: "POST", path: apiPath("/v1/releases/{release_id}/rollout/advance", { release_id }), body: {}, ifMatch: etag }}
      onClose={onClose}
    >
      <p>{state?.next_lane ? text("advance_text", { lane: valueText(state.next_lane) }) : text("advance_end")}</p>
      {state && <RolloutFacts state={state} />}
    </Dialog>
  );
}

export function RollbackDialog({ release, etag, advice, onClose }: { release: Release; etag: string | null; advice: Schemas["RollbackRecommendation"] | null; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [reason, setReason] = useState("");
  const [lane, setLane] = useState("");
  const release_id = release.release_id;
  const body: Schemas["RollbackRequest"] = { reason: reason.trim() };
  if (lane) body.lane = lane as (typeof LANES)[number];
  return (
    <Dialog
      title={text("rollback")}
      confirm={text("rollback")}
      danger
      request={{ method: "POST", path: apiPath("/v1/releases/{release_id}/rollback", { release_id }), body, ifMatch: etag }}
      blocked={reason.trim() ? null : text("reason_needed")}
      onClose={onClose}
    >
      <p>{text("rollback_text")}</p>
      {advice && <Advice advice={advice} />}
      <Field label={text("lane")}>
        {(id) => (
          <select id={id} value={lane} onChange={(event) => setLane(event.target.value)}>
            <option value="">{text("all_its_lanes")}</option>
            {LANES.map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <NoteField label={text("reason")} value={reason} onChange={setReason} required />
    </Dialog>
  );
}
