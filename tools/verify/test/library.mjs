// Loads the modules of the page for tests in Node. They are bundled like the page, because the npm packages are
// installed in another folder.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const sources = fileURLToPath(new URL("../src", import.meta.url));

/** Loads the verifier and the functions that the mutations use; `modules` is the folder of the installed packages. */
export async function loadLibrary(modules) {
  const { buildSync } = createRequire(join(modules, "x.js"))("esbuild");
  const exported = `
    export * from "${sources}/verify.mjs";
    export * from "${sources}/bytes.mjs";
    export * from "${sources}/signature.mjs";
    export * from "${sources}/proof.mjs";
    export { canonical } from "${sources}/json.mjs";
    export { CHAIN } from "${sources}/release.mjs";
    export { getPublicKey, sign } from "@noble/ed25519";`;
  const built = buildSync({
    stdin: { contents: exported, resolveDir: sources, loader: "js" },
    bundle: true, write: false, format: "esm", target: "es2023", nodePaths: [modules], logLevel: "warning",
  });
  const folder = mkdtempSync(join(tmpdir(), "verify-page-"));
  try {
    const file = join(folder, "library.mjs");
    writeFileSync(file, built.outputFiles[0].contents);
    return await import(pathToFileURL(file).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
