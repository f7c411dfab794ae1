// Merges the manifests of both builds, compresses the built files, and limits the transfer sizes of first views.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const FOLDER = "build-output";
/** Maximum gzipped bytes of each entry's first view: the entry, its static imports and their styles. */
const LIMITS = {
  "src/runtime/main.tsx": { js: 90_000, css: 15_000 },
  "src/console/main.tsx": { js: 250_000, css: 40_000 },
};

// The entries are built separately, so their chunks may have equal names. The names of the console's chunks are marked.
const manifest = JSON.parse(readFileSync(join(FOLDER, "manifest.json"), "utf8"));
const added = JSON.parse(readFileSync(join(FOLDER, "manifest-console.json"), "utf8"));
const ENTRIES = Object.keys(LIMITS);
const marked = (name) => (ENTRIES.includes(name) ? name : `console:${name}`);
for (const [name, { imports, dynamicImports, ...chunk }] of Object.entries(added)) {
  manifest[marked(name)] = { ...chunk, ...(imports && { imports: imports.map(marked) }), ...(dynamicImports && { dynamicImports: dynamicImports.map(marked) }) };
}
writeFileSync(join(FOLDER, "manifest.json"), JSON.stringify(manifest, null, 2));
rmSync(join(FOLDER, "manifest-console.json"));

for (const name of readdirSync(FOLDER)) {
  const bytes = readFileSync(join(FOLDER, name));
  if (name === "manifest.json") continue;
  writeFileSync(join(FOLDER, `${name}.gz`), gzipSync(bytes, { level: 9 }));
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  writeFileSync(join(FOLDER, `${name}.br`), brotliCompressSync(bytes, { params: quality }));
}

for (const [entry, limits] of Object.entries(LIMITS)) {
  const chunks = new Set();
  const visit = (name) => {
    if (chunks.has(name)) return;
    chunks.add(name);
    for (const imported of manifest[name].imports ?? []) visit(imported);
  };
  visit(entry);
  const files = new Set([...chunks].flatMap((name) => [manifest[name].file, ...(manifest[name].css ?? [])]));
  const sizes = { js: 0, css: 0 };
  for (const file of files) {
    sizes[file.endsWith(".css") ? "css" : "js"] += readFileSync(join(FOLDER, `${file}.gz`)).length;
  }
  for (const [kind, limit] of Object.entries(limits)) {
    console.log(`portal: the first view of ${entry} loads ${sizes[kind]} bytes of ${kind} (gzip); the limit is ${limit}`);
    if (sizes[kind] > limit) process.exitCode = 1;
  }
}
