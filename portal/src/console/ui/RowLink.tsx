import { useRouter } from "@tanstack/react-router";
import type { MouseEvent, ReactNode } from "react";
import { stringifySearch } from "../core/address";

/**
 * A link in a row of a long list. The router's link component is not used: it tracks the whole address, which costs
 * more than rendering the rest of the row.
 */
export function RowLink({ to, children }: { to: string; children: ReactNode }) {
  const router = useRouter();
  const search = new URLSearchParams(location.search);
  const retainedSearch = stringifySearch({ workspace: search.get("workspace") ?? undefined, lang: search.get("lang") ?? undefined });
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    void router.navigate({ to: to as "/" });
  };
  return (
    <a href={`/console${to}${retainedSearch}`} onClick={follow}>
      {children}
    </a>
  );
}
