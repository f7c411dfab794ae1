import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

/** Builds files with hashed names for `/_app/`, and a manifest. The HTML documents come from the server. */
export default defineConfig(({ mode }) => ({
  plugins: [react()],
  base: "/_app/",
  publicDir: false as const,
  resolve: {
    alias: {
      // The package's browser variant decodes entities with `innerHTML`, which the content security policy forbids.
      "decode-named-character-reference": fileURLToPath(
        new URL("node_modules/decode-named-character-reference/index.js", import.meta.url),
      ),
      // The form library's Markdown parser uses `innerHTML` too, and texts of forms contain no Markdown.
      "markdown-to-jsx/react": fileURLToPath(new URL("src/console/forms/plainMarkdown.tsx", import.meta.url)),
    },
  },
  build: {
    outDir: "build-output",
    assetsDir: "",
    // The entries are built separately, so that files of the runtime pages contain no library code that only the
    // console uses. The second build must not delete the files of the first.
    emptyOutDir: mode !== "console",
    manifest: mode === "console" ? "manifest-console.json" : "manifest.json",
    // Disables inlining, because the content security policy permits no `data:` sources.
    assetsInlineLimit: 0,
    target: "es2022",
    // Disables preloading: lazy chunks have few dependencies, and the helper code would enlarge the first view.
    modulePreload: false as const,
    rollupOptions: { input: mode === "console" ? "src/console/main.tsx" : "src/runtime/main.tsx" },
  },
  // Forces production builds of libraries, because Vite sets this value by mode and the console has its own mode.
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
}));
