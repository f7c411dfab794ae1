import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import type { Search } from "./address";

/** The state of a view in its address, and a function that changes parts of it. An empty text removes a part. */
export function useAddress(): [Search, (change: Record<string, string>) => void] {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const change = useCallback(
    (parts: Record<string, string>) =>
      void navigate({ to: ".", replace: true, search: ((before: Search) => ({ ...before, ...parts })) as never }),
    [navigate],
  );
  return [search, change];
}

/** The identifier in the path of a view. */
export const useId = (): string => (useParams({ strict: false }) as { id?: string }).id ?? "";
