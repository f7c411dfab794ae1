import { lazy, Suspense, useEffect, useState } from "react";
import { flushSync } from "react-dom";
import { useText } from "../i18n";
import type { PageInfo } from "../session/pageAttributes";
import { useIdentity } from "../session/useIdentity";
import type { EmbedChannel, HostMessage } from "./embed";
import { Header } from "./Header";
import { followScheme } from "./theme";
import { WorkloadPage } from "./WorkloadPage";

const Gallery = lazy(() => import("./Gallery"));

/** The root component of the runtime pages. */
export function App({ page, root, token }: { page: PageInfo; root: HTMLElement; token: string | null }) {
  const text = useText();
  const { client, session, isGuest, actAs } = useIdentity(page, token);
  const [host, setHost] = useState<HostMessage | null>(null);
  const [channel, setChannel] = useState<EmbedChannel | null>(null);
  useEffect(() => {
    const { kind, slug, ancestors } = page;
    if (kind !== "embed" || !slug) return;
    let close: (() => void) | null = null;
    let isUnmounted = false;
    // The module is loaded only in embedded pages.
    void import("./embed").then((embed) => {
      if (isUnmounted) return;
      // Renders each message synchronously, because a batched update would lose all but the last message.
      const opened = new embed.EmbedChannel(slug, ancestors, (message) => flushSync(() => setHost(message)));
      close = opened.open();
      setChannel(opened);
    });
    return () => {
      isUnmounted = true;
      close?.();
    };
  }, [page]);
  useEffect(() => followScheme(root), [root]);
  if (!client) return <p role="status">{text("loading")}</p>;
  return (
    <>
      {page.kind !== "embed" && <Header page={page} client={client} session={session} onActAs={actAs} />}
      <main className={page.kind}>
        {page.slug ? (
          <WorkloadPage key={client.cacheKey} {...{ client, isGuest, root, channel, host }} slug={page.slug} />
        ) : (
          <Suspense fallback={<p role="status">{text("loading")}</p>}>
            <Gallery client={client} />
          </Suspense>
        )}
      </main>
    </>
  );
}

