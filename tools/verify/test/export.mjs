// Exports the bundles that the tests change from a running demo server: the bundle of a run without documents, of a
// run that retrieves documents, and of a release.
//
// Arguments: the address of the server, and the folder for `execution.json`, `retrieval.json` and `release.json`.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const [server, folder] = process.argv.slice(2);
const DEADLINE = Date.now() + 60_000;

/** Downloads the bundle at a path; waits until a checkpoint covers its facts. */
async function bundleAt(path) {
  for (;;) {
    const response = await fetch(`${server}/v1/${path}/evidence-bundle`);
    if (response.ok) return response.text();
    if (response.status !== 503 || Date.now() > DEADLINE) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    await response.body?.cancel();
    await pause(200);
  }
}

/** Starts a run of a workload, and returns its bundle. */
async function bundleOfRun(workload, inputs) {
  const started = await fetch(`${server}/v1/workloads/by-slug/${workload}/execute`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ environment: "dev", inputs }),
  });
  if (!started.ok) throw new Error(`the run was refused: ${started.status} ${await started.text()}`);
  const { execution_id: execution } = await started.json();
  return bundleAt(`executions/${execution}`);
}

const run = await bundleOfRun("ticket-classifier", { ticket: "I was charged twice this month." });
writeFileSync(join(folder, "execution.json"), run);
writeFileSync(join(folder, "retrieval.json"), await bundleOfRun("handbook-chat", { message: "How many days of leave do I have?" }));
const { predicate } = JSON.parse(Buffer.from(JSON.parse(run).payload, "base64"));
writeFileSync(join(folder, "release.json"), await bundleAt(`releases/${predicate.evidence.execution.release_id}`));
