// Fixtures of the console's browser tests: people, workloads, releases and pages.
import { api, newPage, SERVER, workload } from "./harness.mjs";

export const WORKSPACE = "00000000-0000-7000-8000-000000000003";
/** One person for each role, and one whose role is too weak for each job. Each person has exactly one role. */
export const PEOPLE = {
  runner: "user:console-runner",
  viewer: "user:console-viewer",
  author: "user:console-author",
  approver: "user:console-approver",
  operator: "user:console-operator",
  auditor: "user:console-auditor",
  admin: "user:console-admin",
};
const ROLES = { runner: "runtime_user", viewer: "viewer", author: "author", approver: "approver", operator: "operator", auditor: "auditor", admin: "workspace_admin" };
let roleGrants;
export const people = () =>
  (roleGrants ??= (async () => {
    const bindings = await api("GET", `/v1/role-bindings?workspace_id=${WORKSPACE}&limit=200`, undefined, { as: "user:local" });
    for (const [name, principal] of Object.entries(PEOPLE)) {
      if (bindings.some((binding) => binding.principal === principal)) continue;
      await api("POST", "/v1/role-bindings", { principal, role: ROLES[name], scope_kind: "workspace", scope_ref: WORKSPACE }, { as: "user:local" });
    }
  })());

/** Opens a page of the console as a person. */
export async function visit(path, as, options = {}) {
  await people();
  const page = await newPage({ viewport: { width: 1280, height: 900 }, ...options });
  await page.addInitScript((actor) => localStorage.setItem("fairway.actor", actor), as);
  await page.goto(`${SERVER}/console${path}`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  return page;
}

/**
 * Waits until no view has shown a loading message for 150 ms. Views start their subsequent requests within that time.
 */
export async function settled(page) {
  await page.waitForFunction(() => {
    const busy = [...document.querySelectorAll('[role="status"]')].some((element) => /^(Loading|Wird geladen)/.test(element.textContent));
    globalThis.quietSince = busy ? undefined : (globalThis.quietSince ?? performance.now());
    return !busy && performance.now() - globalThis.quietSince > 150;
  });
}

const PROMPT = "You answer questions of customers about their invoices in two short and friendly sentences.";
const workloads = new Map();

/** Creates a workload with an active release as the author of the tests, unless it exists. */
export function activeWorkload(slug) {
  if (!workloads.has(slug)) {
    workloads.set(slug, workload(slug, { presentation_mode: "form", input_fields: [{ name: "message", label: "Message", type: "text", required: true }] }, { name: slug }));
  }
  return workloads.get(slug);
}

/** Creates a release in review whose prompt differs from that of the active release. The console's author drafts it. */
export async function releaseInReview(slug, { submit = true, as = PEOPLE.author } = {}) {
  await people();
  const id = await activeWorkload(slug);
  const active = await api("GET", `/v1/workloads/${id}/active-release?environment=dev`);
  const assets = await api("GET", `/v1/assets?workspace_id=${WORKSPACE}&asset_kind=prompt_template&limit=200`);
  const prompt = assets.find((one) => one.slug === `${slug}-prompt`);
  const add = async (system_prompt) => (await api("POST", `/v1/assets/${prompt.asset_id}/versions?workspace_id=${WORKSPACE}`, { content: { system_prompt: `${system_prompt} $arg:message`, variables: [{ name: "message" }] } })).asset_version_id;
  const version = await add(`${PROMPT} ${Date.now()}`);
  const release = await api("POST", "/v1/releases", { workload_id: id, environment: "dev", target_lane: "all" }, { as });
  const path = `/v1/releases/${release.release_id}`;
  for (const { role, asset_version_id } of active.bindings) {
    await api("POST", `${path}/bindings`, { role, asset_version_id: role === "prompt_template" ? version : asset_version_id }, { as });
  }
  if (submit) await api("POST", `${path}/transition`, { to_state: "review_ready" }, { as });
  return { id: release.release_id, workload: id, path, add };
}

/** Creates an approved successor of the active release. */
export async function approvedRelease(slug) {
  const release = await releaseInReview(slug);
  await api("POST", `${release.path}/approvals`, { outcome: "approved", subject_kind: "release", subject_ref: release.id }, { as: "user:demo-approver" });
  await api("POST", `${release.path}/transition`, { to_state: "approved" }, { as: "user:demo-approver" });
  return release;
}
