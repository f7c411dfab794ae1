// Exports the bundles that the tests change from a running server with the demo: those of a run and of its release.
//
// Arguments: the address of the server, and the folder for `execution.json` and `release.json`.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const [server, folder] = process.argv.slice(2);
const DEADLINE = Date.now() + 60_000;

/** The bundle at a path, once a checkpoint covers its facts. */
async function bundleAt(path) {
  for (;;) {
    const response = await fetch(`${server}/v1/${path}/evidence-bundle`);
    if (response.ok) return response.text();
    if (response.status !== 503 || Date.now() > DEADLINE) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    await response.body?.cancel();
    await pause(200);
  }
}

const started = await fetch(`${server}/v1/workloads/by-slug/ticket-classifier/execute`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ environment: "dev", inputs: { ticket: "I was charged twice this month." } }),
});
if (!started.ok) throw new Error(`the run was refused: ${started.status} ${await started.text()}`);
const { execution_id: execution } = await started.json();
const run = await bundleAt(`executions/${execution}`);
writeFileSync(join(folder, "execution.json"), run);
const { predicate } = JSON.parse(Buffer.from(JSON.parse(run).payload, "base64"));
writeFileSync(join(folder, "release.json"), await bundleAt(`releases/${predicate.evidence.execution.release_id}`));
