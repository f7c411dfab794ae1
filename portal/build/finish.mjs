// Compresses the built files, and checks the sizes that the first view of a runtime page transfers.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const FOLDER = "build-output";
const ENTRY = "src/runtime/main.tsx";
/** Maximum gzipped bytes of the first view: the entry, its static imports and their styles. */
const LIMITS = { js: 90_000, css: 15_000 };

for (const name of readdirSync(FOLDER)) {
  const bytes = readFileSync(join(FOLDER, name));
  if (name === "manifest.json") continue;
  writeFileSync(join(FOLDER, `${name}.gz`), gzipSync(bytes, { level: 9 }));
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  writeFileSync(join(FOLDER, `${name}.br`), brotliCompressSync(bytes, { params: quality }));
}

const manifest = JSON.parse(readFileSync(join(FOLDER, "manifest.json"), "utf8"));
const chunks = new Set();
const visit = (name) => {
  if (chunks.has(name)) return;
  chunks.add(name);
  for (const imported of manifest[name].imports ?? []) visit(imported);
};
visit(ENTRY);
const files = new Set([...chunks].flatMap((name) => [manifest[name].file, ...(manifest[name].css ?? [])]));
const sizes = { js: 0, css: 0 };
for (const file of files) {
  sizes[file.endsWith(".css") ? "css" : "js"] += readFileSync(join(FOLDER, `${file}.gz`)).length;
}
for (const [kind, limit] of Object.entries(LIMITS)) {
  console.log(`portal: the first view loads ${sizes[kind]} bytes of ${kind} (gzip); the limit is ${limit}`);
  if (sizes[kind] > limit) process.exitCode = 1;
}
