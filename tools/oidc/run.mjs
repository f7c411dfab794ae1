// Runs the sign-in tests (states) of people and programs against a server in OIDC mode, for `cargo xtask sign-in`.
import { writeFileSync } from "node:fs";
import { close, open, violations } from "./harness.mjs";
import * as people from "./people_sign_in.mjs";
import * as programs from "./program_sign_in.mjs";
import * as provider from "./provider.mjs";
import { required } from "./settings.mjs";

/** Names of the required tests by module. The run fails if a module does not export a listed test. */
const STATES = {
  programs: ["chapter", "command_line", "service", "mcp", "known_keys"],
  people: ["two_people", "sign_out", "backchannel_logout", "stolen_cookie", "foreign_callback", "test_sign_in", "provider_down"],
};
const MODULES = { people, programs };

const only = process.argv.slice(2);
const failures = [];
await provider.start();
await open();
try {
  for (const [name, states] of Object.entries(STATES)) {
    for (const state of states) {
      if (only.length > 0 && !only.includes(state) && !only.includes(name)) continue;
      const start = Date.now();
      try {
        const test = MODULES[name][state];
        if (!test) throw new Error(`${name}.mjs has no test of ${state}`);
        await test();
        console.log(`ok      ${state} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
      } catch (error) {
        failures.push(`${state}: ${error.message ?? error}`);
        console.log(`FAILED  ${state}: ${error.stack ?? error}`);
      }
    }
  }
  failures.push(...violations);
} finally {
  await close();
  await provider.stop();
}
// `cargo xtask sign-in` reads this file, and repeats the failures at the end of its output.
writeFileSync(required("OIDC_FAILURES"), failures.join("\n"));
if (failures.length > 0) {
  for (const report of provider.reports) console.log(`the provider: ${report}`);
  console.log(`\n${failures.length} failures:\n  ${failures.join("\n  ")}`);
  process.exitCode = 1;
}
