import { lazy, Suspense, useMemo } from "react";
import type { Json } from "../../api/types";
import { changedTexts, diffLines, diffWords, sortedJson } from "../core/diff";
import type { NamedVersion } from "../core/resources";
import { changedRules } from "../core/rules";
import type { ReleaseDetail } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Empty, Loading } from "../ui/basics";
import { Table } from "../ui/Table";

const FlowDifference = lazy(() => import("./FlowDifference"));

interface Pair {
  role: string;
  before: NamedVersion | null;
  after: NamedVersion | null;
}

/** The differing bindings of two releases, paired by role and asset, or else by role. */
export function pairsOf(active: ReleaseDetail | null, release: ReleaseDetail, versions: ReadonlyMap<string, NamedVersion>): Pair[] {
  const bound = (from: ReleaseDetail | null) => from?.bindings.map(({ role, asset_version_id: id }) => ({ role, id, namedVersion: versions.get(id) ?? null })) ?? [];
  const [oldVersions, newVersions] = [bound(active), bound(release)];
  const unchangedIds = new Set(oldVersions.map(({ id }) => id).filter((id) => newVersions.some((other) => other.id === id)));
  const removed = oldVersions.filter(({ id }) => !unchangedIds.has(id));
  const pairs: Pair[] = [];
  for (const { role, namedVersion } of newVersions.filter(({ id }) => !unchangedIds.has(id))) {
    const sameAsset = removed.findIndex((other) => other.role === role && other.namedVersion?.asset.asset_id === namedVersion?.asset.asset_id);
    const index = sameAsset >= 0 ? sameAsset : removed.findIndex((other) => other.role === role);
    const [partner] = index >= 0 ? removed.splice(index, 1) : [];
    pairs.push({ role, before: partner?.namedVersion ?? null, after: namedVersion });
  }
  return [...pairs, ...removed.map(({ role, namedVersion }) => ({ role, before: namedVersion, after: null }))];
}

/** The changes of a release relative to the active release. */
export function Comparison({ active, release, versions }: { active: ReleaseDetail | null; release: ReleaseDetail; versions: ReadonlyMap<string, NamedVersion> }) {
  const text = useConsoleText();
  const pairs = useMemo(() => pairsOf(active, release, versions), [active, release, versions]);
  if (active?.release_id === release.release_id) return <Empty>{text("diff_is_active")}</Empty>;
  if (pairs.length === 0) return <Empty>{text("diff_none")}</Empty>;
  return (
    <>
      {!active && <p>{text("diff_no_active")}</p>}
      {pairs.map((pair) => (
        <PairView key={`${pair.role} ${pair.before?.version.asset_version_id} ${pair.after?.version.asset_version_id}`} {...pair} />
      ))}
    </>
  );
}

/** The comparison of two versions: word by word for long texts, and side by side. */
export function PairView({ role, before, after }: Pair) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [oldContent, newContent] = [before?.version.content as Json | undefined, after?.version.content as Json | undefined];
  const texts = useMemo(() => (oldContent !== undefined && newContent !== undefined ? changedTexts(oldContent, newContent) : []), [oldContent, newContent]);
  const rows = useMemo(
    () => diffLines(oldContent === undefined ? "" : sortedJson(oldContent), newContent === undefined ? "" : sortedJson(newContent)),
    [oldContent, newContent],
  );
  const label = (version: NamedVersion | null) => (version ? `${version.asset.slug} ${version.version.version_label}` : text("nothing"));
  const [from, to] = [label(before), label(after)];
  return (
    <article className="pair">
      <h3>
        {valueText(role)}: {from} → {to}
      </h3>
      {texts.map((change) => (
        <div key={change.path}>
          <h4>{text("diff_words", { path: change.path })}</h4>
          <p className="prose" data-testid="words">
            {diffWords(change.before, change.after).map((piece, index) =>
              piece.kind === "same" ? (
                <span key={index}>{piece.text}</span>
              ) : piece.kind === "removed" ? (
                <del key={index}>{piece.text}</del>
              ) : (
                <ins key={index}>{piece.text}</ins>
              ),
            )}
          </p>
        </div>
      ))}
      {role === "policy_bundle" && oldContent !== undefined && newContent !== undefined && <Rules before={oldContent} after={newContent} />}
      {role === "orchestration_flow" && oldContent !== undefined && newContent !== undefined && (
        <Suspense fallback={<Loading what={text("flow_picture")} />}>
          <FlowDifference before={oldContent} after={newContent} name={`${from} ${to}`.replaceAll(" ", "-")} />
        </Suspense>
      )}
      <details open={texts.length === 0}>
        <summary>{text("diff_json")}</summary>
        <div className="frame frame-short" tabIndex={0} role="region" aria-label={`${from} → ${to}`}>
          <table className="sides">
            <thead>
              <tr>
                <th scope="col">{from}</th>
                <th scope="col">{to}</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row, index) => (
                <tr key={index} className={row.changed ? "changed" : ""}>
                  <td className={row.changed && row.before !== null ? "old" : ""}>{row.changed && row.before !== null ? <del>{row.before}</del> : row.before}</td>
                  <td className={row.changed && row.after !== null ? "new" : ""}>{row.changed && row.after !== null ? <ins>{row.after}</ins> : row.after}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </article>
  );
}

/** The differing rules of two policies. */
function Rules({ before, after }: { before: Json; after: Json }) {
  const text = useConsoleText();
  const rows = useMemo(() => changedRules(before, after), [before, after]);
  const ruleText = (rule: Json | null) => (rule === null ? text("nothing") : <code className="wrap">{sortedJson(rule)}</code>);
  return (
    <Table
      label={text("changed_rules")}
      rows={rows}
      keyOf={({ id }) => id}
      columns={[
        { name: text("rule"), render: ({ id }) => <strong>{id}</strong> },
        { name: text("rule_before"), render: (rule) => ruleText(rule.before) },
        { name: text("rule_after"), render: (rule) => ruleText(rule.after) },
      ]}
    />
  );
}
