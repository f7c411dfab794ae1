import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { apiPath } from "../../api/paths";
import type { Json } from "../../api/types";
import { canonical, checksumOf, digestText } from "../core/canonical";
import { blake3 } from "../core/blake3";
import type { Command } from "../core/commands";
import { useConsole, useRead, type Scope, type WithEntityTag } from "../core/console";
import { useVersions, type NamedVersion } from "../core/resources";
import type { Gate, ReleaseDetail, Schemas, Workload } from "../core/types";
import { useId } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Facts, Failed, GuardedRowAction, Id, Loading, Section, Tag, Time } from "../ui/basics";
import { Table } from "../ui/Table";
import { useTitle } from "../ui/useTitle";
import { Comparison } from "./Comparison";
import { BindDialog, UnbindDialog } from "./ReleaseBinding";
import { RolloutSection } from "./Rollout";
import { TransitionDialog, VerdictDialog, TARGETS, operationOf, reasonAgainst, type Target } from "./ReleaseDialogs";

/** The view of a release: its bindings, changes, verdicts and possible transitions. */
export function ReleasePage() {
  const id = useId();
  const text = useConsoleText();
  const path = apiPath("/v1/releases/{release_id}", { release_id: id });
  const read = useRead<ReleaseDetail>(path, { refresh: true });
  const [displayed, setDisplayed] = useState<WithEntityTag<ReleaseDetail> | null>(null);
  // The page retains the state that the reader sees, and only announces a later state. Otherwise a person could
  // approve a release that changed without notice.
  if (read.data && (displayed === null || displayed.value.release_id !== id)) setDisplayed(read.data);
  if (read.error && !displayed) {
    return (
      <>
        <h1>{text("release")}</h1>
        <Failed problem={read.error} onRetry={() => void read.refetch()} />
      </>
    );
  }
  if (!displayed || displayed.value.release_id !== id) return <Loading what={text("release")} />;
  const isStale = read.data !== undefined && read.data.etag !== displayed.etag;
  return <ReleaseView key={id} displayed={displayed} isStale={isStale} onShow={() => setDisplayed(null)} />;
}

type Open = { kind: "verdict"; outcome: "approved" | "changes_requested" | "rejected" } | { kind: "transition"; target: Target } | { kind: "bind" } | { kind: "unbind"; binding: string; name: string };

function ReleaseView({ displayed, isStale, onShow }: { displayed: WithEntityTag<ReleaseDetail>; isStale: boolean; onShow: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { session } = useConsole();
  const release = displayed.value;
  const release_id = release.release_id;
  const workload = useRead<Workload>(apiPath("/v1/workloads/{workload_id}", { workload_id: release.workload_id }));
  const gates = useRead<Gate[]>(apiPath("/v1/releases/{release_id}/gates", { release_id }), { refresh: true });
  const approvals = useRead<Schemas["Approval"][]>(apiPath("/v1/releases/{release_id}/approvals", { release_id }, { limit: "200" }), { refresh: true });
  const active = useRead<ReleaseDetail>(apiPath("/v1/workloads/{workload_id}/active-release", { workload_id: release.workload_id }, { environment: release.environment }));
  const lanes = useRead<Schemas["Lane"][]>(apiPath("/v1/workloads/{workload_id}/lanes", { workload_id: release.workload_id }, { environment: release.environment }));
  // Without an active release, all bindings count as added.
  const serving = active.data?.value ?? null;
  const all = useMemo(() => (serving && serving.release_id !== release_id ? [release, serving] : [release]), [release, serving, release_id]);
  const versions = useVersions(all);
  const checksums = useMemo(() => new Map([...(versions.data ?? [])].map(([id, { version }]) => [id, version.checksum])), [versions.data]);
  const digest = useMemo(() => {
    const approvedText = digestText(release, checksums);
    return approvedText === null ? null : blake3(approvedText);
  }, [release, checksums]);
  const [open, setOpen] = useState<Open | null>(null);
  const slug = workload.data?.value.slug ?? null;
  const title = `${slug ?? "…"}@${release.environment}`;
  useTitle(title);
  const scope = { kind: "workload", ref: release.workload_id } as const;
  const staleReason = isStale ? text("changed_since") : null;
  const isReviewable = release.state === "review_ready";
  const verdictBlocked = staleReason ?? (isReviewable ? (digest === null ? text("digest_unknown") : null) : text("only_in_review"));
  const gateResults = gates.data?.value ?? [];
  const ownGates = gateResults.filter((gate) => gate.to_state !== "approved" || isReviewable);
  const items: Command[] = [
    { label: text("release"), request: { method: "GET", path: apiPath("/v1/releases/{release_id}", { release_id }) }, words: ["releases", "show", release_id] },
    { label: text("gates"), request: { method: "GET", path: apiPath("/v1/releases/{release_id}/gates", { release_id }) }, words: ["releases", "gates", release_id] },
    { label: text("diff"), request: { method: "GET", path: apiPath("/v1/workloads/{workload_id}/active-release", { workload_id: release.workload_id }, { environment: release.environment }) }, words: ["releases", "diff", release_id] },
    { label: text("approve"), request: { method: "POST", path: apiPath("/v1/releases/{release_id}/approvals", { release_id }), ifMatch: displayed.etag, body: { outcome: "approved", subject_kind: "release", subject_ref: release_id } }, words: ["releases", "approve", release_id] },
  ];
  return (
    <>
      <h1>
        {title} <Tag value={release.state} />
      </h1>
      {isStale && (
        <div className="notice notice-wait" role="alert" data-testid="stale">
          <p>{text("changed_since")}</p>
          <button type="button" className="plain" onClick={onShow}>
            {text("show_current")}
          </button>
        </div>
      )}
      <Facts
        items={[
          [text("workload"), <Link key="w" to="/workloads/$id" params={{ id: release.workload_id }}>{slug ?? release.workload_id}</Link>],
          ...(release.use_case_id
            ? [[text("use_case"), <Link key="u" to="/use-cases/$id" params={{ id: release.use_case_id }}>{release.use_case_id}</Link>] as const]
            : []),
          [text("lane"), valueText(release.target_lane)],
          [text("created_by"), release.created_by === session.actor ? `${release.created_by} ${text("you")}` : release.created_by],
          [text("changed"), <Time key="t" value={release.updated_at} />],
          [text("identifier"), <Id key="i" id={release_id} />],
        ]}
      />
      <Section title={text("decide")}>
        <p>{text("digest_text")}</p>
        <p className="digest" data-testid="digest">
          <code>{digest ?? (versions.isPending ? text("computing") : text("digest_unknown"))}</code>
        </p>
        {versions.error && <Failed problem={versions.error} />}
        <div className="buttons">
          <Action label={text("approve")} tone="primary" operation="review_release" scope={scope} blocked={verdictBlocked} onClick={() => setOpen({ kind: "verdict", outcome: "approved" })} />
          <Action label={text("request_changes")} operation="review_release" scope={scope} blocked={verdictBlocked} onClick={() => setOpen({ kind: "verdict", outcome: "changes_requested" })} />
          <Action label={text("reject")} tone="danger" operation="review_release" scope={scope} blocked={verdictBlocked} onClick={() => setOpen({ kind: "verdict", outcome: "rejected" })} />
        </div>
      </Section>
      <Section title={text("next_states")}>
        <div className="buttons">
          {TARGETS.filter((target) => target !== release.state).map((target) => (
            <Action
              key={target}
              label={text(`to_${target}`)}
              operation={operationOf(target, release.state)}
              scope={scope}
              blocked={staleReason ?? reasonAgainst(target, release, gateResults, text)}
              onClick={() => setOpen({ kind: "transition", target })}
            />
          ))}
        </div>
        <h3>{text("gates")}</h3>
        {gates.error && <Failed problem={gates.error} />}
        <Table
          label={text("gates")}
          rows={ownGates}
          keyOf={(gate) => `${gate.to_state} ${gate.gate} ${gate.lane ?? ""} ${gate.code}`}
          empty={<Empty>{text("gates_empty")}</Empty>}
          columns={[
            { name: text("before_state"), render: (gate) => valueText(gate.to_state) },
            { name: text("gate"), render: (gate) => (gate.lane ? `${gate.gate}: ${valueText(gate.lane)}` : gate.gate) },
            { name: text("verdict"), render: (gate) => <Tag value={gate.verdict} /> },
            { name: text("reason"), render: (gate) => (gate.verdict === "pass" ? "" : `${gate.message} (${gate.code})`) },
          ]}
        />
      </Section>
      <Section title={text("diff")}>
        {versions.isPending ? <Loading what={text("bindings")} /> : <Comparison active={serving} release={release} versions={versions.data ?? new Map<string, NamedVersion>()} />}
      </Section>
      <Section
        title={text("bindings")}
        actions={<Action label={text("bind")} operation="bind_version" scope={scope} blocked={staleReason ?? (release.state === "draft" ? null : text("only_in_draft"))} onClick={() => setOpen({ kind: "bind" })} />}
      >
        {release.bindings.length === 0 && <Empty>{text("bindings_empty")}</Empty>}
        <ul className="bindings">
          {release.bindings.map((binding) => (
            <BindingView
              key={binding.binding_id}
              binding={binding}
              scope={scope}
              found={versions.data?.get(binding.asset_version_id) ?? null}
              onUnbind={release.state === "draft" && !isStale ? (name) => setOpen({ kind: "unbind", binding: binding.binding_id, name }) : null}
            />
          ))}
        </ul>
        {release.references.length > 0 && (
          <Table
            label={text("references")}
            rows={release.references}
            keyOf={(reference) => `${reference.from_asset_version_id} ${reference.asset_slug} ${reference.pinned}`}
            columns={[
              { name: text("references"), render: (reference) => `${reference.asset_slug} ${reference.version_label}` },
              { name: text("pinned"), render: (reference) => text(reference.pinned ? "yes" : "no") },
              { name: text("checksum"), render: (reference) => <Id id={checksums.get(reference.asset_version_id) ?? "–"} /> },
            ]}
          />
        )}
      </Section>
      <RolloutSection release={release} etag={displayed.etag} isStale={isStale} />
      <Section title={text("history")}>
        {approvals.error && <Failed problem={approvals.error} />}
        <Table
          label={text("approvals")}
          rows={approvals.data?.value ?? []}
          keyOf={(approval) => approval.approval_id}
          empty={<Empty>{text("approvals_empty")}</Empty>}
          columns={[
            { name: text("verdict"), render: (approval) => <Tag value={approval.outcome} /> },
            { name: text("by"), render: (approval) => approval.approved_by },
            { name: text("time"), render: (approval) => <Time value={approval.approved_at} /> },
            { name: text("note"), render: (approval) => approval.note ?? "" },
            {
              name: text("applies"),
              render: (approval) => (digest === null ? "…" : approval.subject_digest === digest ? text("applies_yes") : <span className="bad">{text("applies_no")}</span>),
            },
            { name: text("digest"), render: (approval) => <Id id={approval.subject_digest} /> },
          ]}
        />
        <p>
          <Link to="/audit" search={{ subject: release_id } as never}>
            {text("events_of")}
          </Link>
        </p>
        <Tenures lanes={lanes.data?.value ?? []} release={release_id} />
      </Section>
      <Commands items={items} />
      {open?.kind === "verdict" && <VerdictDialog release={release} etag={displayed.etag} digest={digest ?? ""} outcome={open.outcome} onClose={() => setOpen(null)} onDone={onShow} />}
      {open?.kind === "transition" && <TransitionDialog release={release} etag={displayed.etag} target={open.target} gates={gateResults} onClose={() => setOpen(null)} onDone={onShow} />}
      {open?.kind === "bind" && <BindDialog release={release} onClose={() => setOpen(null)} onDone={onShow} />}
      {open?.kind === "unbind" && <UnbindDialog release={release} binding={open.binding} name={open.name} onClose={() => setOpen(null)} onDone={onShow} />}
    </>
  );
}

function Tenures({ lanes, release }: { lanes: readonly Schemas["Lane"][]; release: string }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const rows = lanes.flatMap(({ lane, history }) => history.filter((holding) => holding.release_id === release).map((holding) => ({ lane, ...holding })));
  return (
    <Table
      label={text("served")}
      rows={rows}
      keyOf={(row) => `${row.lane} ${row.from}`}
      columns={[
        { name: text("lane"), render: (row) => valueText(row.lane) },
        { name: text("from"), render: (row) => <Time value={row.from} /> },
        { name: text("until"), render: (row) => (row.to ? <Time value={row.to} /> : text("until_now")) },
        { name: text("reason"), render: (row) => valueText(row.reason) },
      ]}
    />
  );
}

/** A bound version with its content, and the comparison of its checksum. */
function BindingView({ binding, scope, found, onUnbind }: { binding: Schemas["Binding"]; scope: Scope; found: NamedVersion | null; onUnbind: ((name: string) => void) | null }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [isOpen, setOpen] = useState(false);
  const content = found?.version.content as Json | undefined;
  const isGenuine = useMemo(() => found !== null && content !== undefined && checksumOf(content) === found.version.checksum, [found, content]);
  const name = found ? `${found.asset.slug} ${found.version.version_label}` : binding.asset_version_id;
  return (
    <li>
      <div className="section-head">
        <span>
          {valueText(binding.role)}: <strong>{name}</strong>
        </span>
        {onUnbind && (
          <GuardedRowAction label={text("unbind", { name })} name={text("unbind", { name })} operation="unbind_version" scope={scope} onClick={() => onUnbind(name)} />
        )}
      </div>
      {found && content !== undefined && (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>{text("exact_bytes")}</summary>
          <p className={isGenuine ? "hint" : "bad"}>
            <code>{found.version.checksum}</code> {text(isGenuine ? "checksum_good" : "checksum_bad")}
          </p>
          {isOpen && (
            <pre tabIndex={0} aria-label={name} className="wrap">
              <code>{canonical(content)}</code>
            </pre>
          )}
        </details>
      )}
    </li>
  );
}
