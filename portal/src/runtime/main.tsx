import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { loadCatalogue, preferredLanguage, TextContext, translator } from "../i18n";
import { readPage, takeShareToken } from "../session/pageAttributes";
import "../styles/runtime.css";
import "../styles/chat.css";
import { App } from "./App";

const root = document.getElementById("root");
if (root) {
  const page = readPage(root);
  // Removes the share token from the address first, so that no other code sees it there.
  const token = takeShareToken(page);
  const language = preferredLanguage(location.search, navigator.languages);
  const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false } } });
  void loadCatalogue(language).then((catalogue) => {
    document.documentElement.lang = language;
    createRoot(root).render(
      <TextContext value={translator(catalogue)}>
        <QueryClientProvider client={queries}>
          <App page={page} root={root} token={token} />
        </QueryClientProvider>
      </TextContext>,
    );
  });
}
