import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

/** Builds hashed files for `/_app/` and a manifest. The server renders the HTML documents itself. */
export default defineConfig(({ mode }) => ({
  plugins: [react()],
  base: "/_app/",
  publicDir: false as const,
  resolve: {
    alias: {
      // Its variant for browsers decodes entities with `innerHTML`, which the pages' policy forbids.
      "decode-named-character-reference": fileURLToPath(
        new URL("node_modules/decode-named-character-reference/index.js", import.meta.url),
      ),
      // The parser of the form library decodes entities with `innerHTML` too, and no text of a form is Markdown.
      "markdown-to-jsx/react": fileURLToPath(new URL("src/console/forms/plainMarkdown.tsx", import.meta.url)),
    },
  },
  build: {
    outDir: "build-output",
    assetsDir: "",
    // The entries are built one by one, so that what only the console uses of a library is not in files of the runtime pages.
    emptyOutDir: mode !== "console",
    manifest: mode === "console" ? "manifest-console.json" : "manifest.json",
    // Inlined files would need `data:` sources.
    assetsInlineLimit: 0,
    target: "es2022",
    // Lazy chunks have no dependencies of their own worth a preload, and its helper counts in the first view.
    modulePreload: false as const,
    rollupOptions: { input: mode === "console" ? "src/console/main.tsx" : "src/runtime/main.tsx" },
  },
  // Other modes than `production` would bundle libraries for development.
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
}));
