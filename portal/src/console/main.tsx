import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { loadCatalogue, preferredLanguage, TextContext, translator } from "../i18n";
import { readPage } from "../session/pageAttributes";
import "./styles/mantine.css";
import "./styles/console.css";
import "./styles/views.css";
import "./styles/editor.css";
import { App } from "./App";
import { ConsoleTextContext, consoleTranslator, loadConsoleCatalogue } from "./i18n";

const root = document.getElementById("root");
if (root) {
  const page = readPage(root);
  const language = preferredLanguage(location.search, navigator.languages);
  const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false } } });
  void Promise.all([loadCatalogue(language), loadConsoleCatalogue(language)]).then(([shared, own]) => {
    document.documentElement.lang = language;
    createRoot(root).render(
      // The content security policy forbids the style elements of MantineProvider; the CSS files
      // contain the same values.
      <MantineProvider defaultColorScheme="auto" withCssVariables={false} withGlobalClasses={false} theme={{ fontFamily: "system-ui, sans-serif", focusRing: "never" }}>
        {/* Overrides the shared "not found" text, which mentions only workloads. */}
        <TextContext value={translator({ ...shared, p_not_found: own.resource_not_found })}>
          <ConsoleTextContext value={consoleTranslator(own)}>
            <QueryClientProvider client={queries}>
              <App page={page} />
            </QueryClientProvider>
          </ConsoleTextContext>
        </TextContext>
      </MantineProvider>,
    );
  });
}
