// Runs the tests of the runtime pages and the console in Chromium, for `cargo xtask browser`. Each test (state) is
// an exported function of a module, and takes screenshots.
import { writeFileSync } from "node:fs";
import { assertionCount, close, canary, open, releaseAnswers, violations } from "./harness.mjs";
import * as access from "./access.mjs";
import * as chat from "./chat.mjs";
import * as citations from "./citations.mjs";
import * as assets from "./console-assets.mjs";
import * as operator from "./console.mjs";
import * as contents from "./console-forms.mjs";
import * as reading from "./console-read-only-jobs.mjs";
import * as work from "./console-work.mjs";
import * as jobs from "./console-job-refusals.mjs";
import * as settings from "./console-settings.mjs";
import * as embeds from "./embeds.mjs";
import * as forms from "./forms.mjs";
import * as hostile from "./hostile.mjs";
import { CELLS, ALL_CELLS, SUBSET } from "./matrix.mjs";
import * as presentation from "./presentation.mjs";
import * as runs from "./runs.mjs";
import * as streams from "./streams.mjs";

/**
 * Names of the required tests by module. The run fails if a module lacks a listed test, or a test makes no assertion.
 */
const STATES = {
  forms: ["gallery", "gallery_filters", "fields", "missing_fields", "server_errors", "defaults", "block"],
  runs: ["streaming", "text_output", "json_output", "markdown_output", "table_output", "reconnect", "left_and_found", "stopped", "review", "failed", "why", "why_hidden"],
  streams: ["stream_form", "stream_chat", "stream_block", "stream_stopped", "stream_stopped_early", "stream_reconnected"],
  citations: ["citations", "citations_chat"],
  access: ["denied", "share_link", "revoked_link", "anonymous", "rate_limit", "unknown", "suspended", "no_release", "environment_choice"],
  chat: ["conversation", "chat_settings", "chat_refusal", "demo_form", "demo_chat", "demo_block"],
  embeds: ["embed_handshake", "embed_themed", "embed_refused", "embed_stranger", "no_other_page_framed"],
  hostile: ["hostile_markdown", "hostile_json", "hostile_table", "hostile_theme", "hostile_sizes"],
  operator: ["console_views", "console_shell", "console_approve", "console_changes", "console_stale", "console_voided", "console_author", "console_suspend", "console_links", "console_lanes"],
  work: [
    "console_runs", "console_evidence", "console_cancel", "console_review", "console_home", "console_preferences", "console_inbox", "console_destinations", "console_access",
    "console_audit", "console_use_case", "console_connection", "console_keyboard", "console_long_lists", "console_narrow", "console_sign_in", "console_suppressed", "console_first_view",
  ],
  assets: ["console_assets", "console_preview", "console_policy_trial", "console_versions", "console_flow", "console_documents", "console_impact"],
  settings: ["console_interface", "console_principals", "console_settings", "console_tenants", "console_can_all", "console_deliveries", "console_announce", "console_defaults"],
  contents: ["console_form", "console_form_kinds", "console_form_keyboard", "console_erasures", "console_palette"],
  jobs: ["console_release_refusals", "console_reading_refusals", "console_failures", "console_verdict_read", "console_resume", "console_anonymous"],
  reading: [
    "console_wrong_read", "console_tenures_read", "console_timeline_read", "console_waiting_read", "console_changes_read", "console_gates_read",
    "console_plan_read", "console_can_read", "console_audit_read", "console_why_read",
  ],
  presentation: ["german", "dark", "scheme_change", "narrow", "right_to_left", "reduced_motion", "keyboard_only", "no_script", "first_view"],
  matrix: SUBSET,
};
const MODULES = {
  operator, work, assets, settings, contents, jobs, reading, forms, runs, streams, citations, access, chat, embeds, hostile, presentation,
  matrix: CELLS,
};

/** Modules by lane. A lane has its own server and browser, and runs its modules sequentially; lanes run in parallel. */
const LANES = {
  pages: ["forms", "runs", "streams", "citations", "access", "chat", "embeds", "hostile", "presentation", "contents", "matrix"],
  console: ["operator", "work", "assets", "settings", "jobs", "reading"],
};

const names = process.argv.slice(2);
const failures = [];

/** The tests of this run by module. */
function selected() {
  // The long form runs every cell of the matrix, and the tests that check more data with `PORTAL_LONG`.
  if (process.env.PORTAL_LONG) return Object.entries({ matrix: ALL_CELLS, work: ["console_long_lists"], contents: ["console_form_kinds"] });
  const lane = process.env.PORTAL_LANE;
  if (!lane) return Object.entries(STATES);
  const tested = (process.env.PORTAL_LANES ?? "").split(" ");
  if (tested.toSorted().join() !== Object.keys(LANES).toSorted().join()) failures.push(`the lanes are ${Object.keys(LANES)}, tested are ${tested}`);
  for (const name of Object.keys(STATES)) {
    if (Object.values(LANES).flat().filter((other) => other === name).length !== 1) failures.push(`${name} is not in exactly one lane`);
  }
  return LANES[lane].map((name) => [name, STATES[name]]);
}

/** Runs a test; returns the first line of its error, or null if it passed. */
async function attempt(state, test) {
  const start = Date.now();
  try {
    releaseAnswers();
    const before = assertionCount();
    await test();
    if (assertionCount() === before) throw new Error("the test asserts nothing");
    console.log(`ok      ${state} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
    return null;
  } catch (error) {
    console.log(`FAILED  ${state}: ${error.stack ?? error}`);
    return String(error).split("\n")[0];
  }
}

const knownNames = new Set(Object.entries(STATES).flatMap(([name, states]) => [name, ...states]));
const misspelt = names.filter((name) => !knownNames.has(name));
if (misspelt.length > 0) throw new Error(`no state or module is called ${misspelt.join(", ")}`);

await open();
try {
  for (const [name, states] of selected()) {
    for (const state of states) {
      if (names.length > 0 && !names.includes(state) && !names.includes(name)) continue;
      const test = MODULES[name][state];
      if (!test) {
        failures.push(`${name}.mjs has no test of ${state}`);
        continue;
      }
      const failure = await attempt(state, test);
      if (failure !== null) failures.push(`${state}: ${failure}`);
    }
  }
  for (const violation of violations) failures.push(violation);
  for (const request of canary) failures.push(`the canary was called: ${request}`);
} finally {
  await close();
}
// `cargo xtask browser` reads this file, and repeats the failures at the end of its output.
writeFileSync(process.env.PORTAL_FAILURES, failures.join("\n"));
if (failures.length > 0) {
  console.log(`\n${failures.length} failures:\n  ${failures.join("\n  ")}`);
  process.exitCode = 1;
}
