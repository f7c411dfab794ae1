// Builds docs/verify.html: a single file with style and script, which works without other files and without a network.
//
// Arguments: the folder of the installed packages, and optionally `--check`, which compares the file instead of
// writing it. The result is not minified, so that readers can review the page that they use.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, mode] = process.argv.slice(2);
const { buildSync } = createRequire(join(modules, "x.js"))("esbuild");
const sources = fileURLToPath(new URL("src", import.meta.url));
const page = fileURLToPath(new URL("../../docs/verify.html", import.meta.url));

const read = (name) => readFileSync(join(sources, name), "utf8");
const bundled = buildSync({
  entryPoints: [join(sources, "page.mjs")],
  bundle: true,
  write: false,
  format: "iife",
  target: "es2023",
  charset: "ascii",
  legalComments: "inline",
  nodePaths: [modules],
  logLevel: "warning",
});
// Removes the comments with paths of source files, because the paths depend on the machine.
const script = `\n${bundled.outputFiles[0].text.replace(/^ *\/\/ [^\n]*\.m?js$/gm, "").replace(/\n{2,}/g, "\n").trim()}\n`;
const style = `\n${read("page.css").trim()}\n`;
if (/<\/(script|style)|<!--/i.test(script + style)) throw new Error("the script would end its element");

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");
const built = read("page.html").replace(/\{\{(policy|style|script)\}\}/g, (_, part) => ({ policy, style, script })[part]);

if (mode === "--check") {
  if (readFileSync(page, "utf8") !== built) {
    console.error("docs/verify.html differs from its sources: run `cargo xtask verify-page`");
    process.exitCode = 1;
  }
} else {
  writeFileSync(page, built);
}
