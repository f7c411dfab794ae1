import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { createContext, useContext, useMemo } from "react";
import { randomId, type Client } from "../../api/client";
import { Problem } from "../../api/problem";
import { apiPath } from "../../api/paths";
import type { Session } from "../../api/types";
import type { ApiRequest } from "./commands";
import type { Schemas, Workspace } from "./types";

/** The context of all views: identity, session and workspace. */
export interface Console {
  client: Client;
  session: Session;
  workspace: Workspace;
  workspaces: Workspace[];
  actAs: (actor: string) => void;
}

export const ConsoleContext = createContext<Console | null>(null);

export function useConsole(): Console {
  const context = useContext(ConsoleContext);
  if (!context) throw new Error("no console");
  return context;
}

/** A resource with its entity tag, which a change sends as `If-Match`. */
export interface WithEntityTag<T> {
  value: T;
  etag: string | null;
}

/** Interval at which views reload their data, in milliseconds. */
export const REFRESH_MS = 10_000;

/** Reads a resource. While the path is null, no request is sent. */
export function useRead<T>(path: string | null, options: { refresh?: boolean; keep?: boolean } = {}) {
  const { client } = useConsole();
  return useQuery<WithEntityTag<T>, Problem>({
    queryKey: ["read", client.cacheKey, path],
    enabled: path !== null,
    retry: (count, problem) => problem instanceof Problem && problem.isTemporary && count < 2,
    refetchInterval: options.refresh ? REFRESH_MS : false,
    refetchOnWindowFocus: options.refresh ?? false,
    ...(options.keep ? { placeholderData: keepPreviousData } : {}),
    queryFn: async ({ signal }) => {
      const response = await client.send(path ?? "", { signal });
      return { value: (await response.json()) as T, etag: response.headers.get("etag") };
    },
  });
}

/** The path of the next page from a `Link` header; null for other addresses than paths of this server. */
export function nextPage(link: string | null): string | null {
  const target = /<(\/v1\/[^>]*)>\s*;\s*rel="next"/.exec(link ?? "")?.[1];
  return target ?? null;
}

/** A page of a list. */
interface Page<T> {
  rows: T[];
  next: string | null;
  total: number | null;
}

/** Reads a list page by page. */
export function useList<T>(path: string | null, options: { refresh?: boolean } = {}) {
  const { client } = useConsole();
  const query = useInfiniteQuery<Page<T>, Error, InfiniteData<Page<T>, string>, readonly unknown[], string>({
    queryKey: ["list", client.cacheKey, path],
    enabled: path !== null,
    initialPageParam: path ?? "",
    retry: (count, problem) => problem instanceof Problem && problem.isTemporary && count < 2,
    // Refreshes only lists with one loaded page, because a refresh reloads all pages from the beginning.
    refetchInterval: (state) => (options.refresh && (state.state.data?.pages.length ?? 0) <= 1 ? REFRESH_MS : false),
    placeholderData: keepPreviousData,
    // Disabled, because comparing all loaded rows with each new page takes longer than rendering them.
    structuralSharing: false,
    queryFn: async ({ signal, pageParam }) => {
      const response = await client.send(pageParam, { signal });
      const total = Number.parseInt(response.headers.get("x-total-count") ?? "", 10);
      return { rows: (await response.json()) as T[], next: nextPage(response.headers.get("link")), total: Number.isFinite(total) ? total : null };
    },
    getNextPageParam: (page) => page.next,
  });
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.rows) ?? [], [query.data]);
  return {
    rows,
    total: query.data?.pages[0]?.total ?? null,
    isPending: query.isPending,
    problem: query.error instanceof Problem ? query.error : null,
    more: () => {
      if (query.hasNextPage && !query.isFetching) void query.fetchNextPage();
    },
    hasMore: query.hasNextPage,
    refetch: () => void query.refetch(),
  };
}

/** Sends a change, and reloads all displayed data. Repeated attempts of one dialog have the same idempotency key. */
export function useChange(key: string) {
  const { client } = useConsole();
  const queries = useQueryClient();
  return useMutation<unknown, Problem, ApiRequest>({
    mutationFn: async ({ method, path, body, ifMatch }) => {
      const headers: Record<string, string | undefined> = { "If-Match": ifMatch ?? undefined };
      if (method === "POST") headers["Idempotency-Key"] = key;
      const response = await client.send(path, { method, headers, ...(body === undefined ? {} : { body }) });
      return response.status === 204 ? null : ((await response.json()) as unknown);
    },
    // Reloads after a refusal too, because the view may be stale. Versions are excluded, because they never change.
    onSettled: () => queries.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== "versions" }),
  });
}

/** Requests a dry run. The server stores nothing, so no data is reloaded. */
export function useDryRun<T>() {
  const { client } = useConsole();
  return useMutation<T, Problem, ApiRequest>({
    mutationFn: async ({ method, path, body }) => (await (await client.send(path, { method, body })).json()) as T,
  });
}

export { randomId };

/** The scope of a permission. */
export interface Scope {
  kind: "platform" | "tenant" | "workspace" | "workload";
  /** The identifier of the tenant, workspace or workload; absent for the platform. */
  ref?: string;
}

export const accessPath = (operation: string, scope: Scope, actor?: string): string =>
  apiPath("/v1/session/can", {}, { operation, scope_kind: scope.kind, scope_ref: scope.ref, actor });

/**
 * Asks the server whether the caller may perform an operation, so that the page contains no access rules of its own.
 */
export function useAccess(operation: string, scope: Scope | null) {
  const { client } = useConsole();
  const path = scope && accessPath(operation, scope);
  const query = useQuery<Schemas["AccessExplanation"], Problem>({
    queryKey: ["can", client.cacheKey, path],
    enabled: path !== null,
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) => client.get(path ?? "", signal),
  });
  return { answer: query.data ?? null, isPending: path !== null && query.isPending };
}
