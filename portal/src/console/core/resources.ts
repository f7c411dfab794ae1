import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import type { Client } from "../../api/client";
import { apiPath } from "../../api/paths";
import { Problem } from "../../api/problem";
import { nextPage, useConsole, useList } from "./console";
import type { Asset, AssetVersion, ReleaseDetail, Workload } from "./types";

/** The workloads of the workspace by identifier, so that lists can show their slugs. */
export function useWorkloads() {
  const { workspace } = useConsole();
  const list = useList<Workload>(apiPath("/v1/workloads", {}, { workspace_id: workspace.workspace_id, limit: "200" }));
  const byId = useMemo(() => new Map(list.rows.map((workload) => [workload.workload_id, workload])), [list.rows]);
  const slugOf = useCallback((id: string) => byId.get(id)?.slug ?? null, [byId]);
  return { list, byId, slugOf };
}

/** A bound version with its asset. */
export interface NamedVersion {
  asset: Asset;
  version: AssetVersion;
}

/** Maximum number of pages of a list that a search for a version reads. */
const MAX_PAGES = 50;

/** Visits the rows of a list, page by page, until `visit` returns true. */
async function visitRows<T>(client: Client, path: string, signal: AbortSignal, visit: (row: T) => Promise<boolean> | boolean): Promise<void> {
  let next: string | null = path;
  for (let page = 0; next !== null && page < MAX_PAGES; page += 1) {
    const response: Response = await client.send(next, { signal });
    for (const row of (await response.json()) as T[]) if (await visit(row)) return;
    next = nextPage(response.headers.get("link"));
  }
}

/**
 * Finds the versions that releases bind or reference. A binding contains only the identifier of its version, so the
 * search covers all assets of the kind.
 */
export function useVersions(releases: readonly ReleaseDetail[]) {
  const { client, workspace } = useConsole();
  const versionsByKind = useMemo(() => {
    const byKind = new Map<string, Set<string>>();
    for (const { role, asset_version_id: id } of releases.flatMap(({ bindings }) => bindings)) {
      byKind.set(role, (byKind.get(role) ?? new Set()).add(id));
    }
    return [...byKind].map(([kind, ids]) => [kind, [...ids].sort()] as const).sort();
  }, [releases]);
  const references = useMemo(() => releases.flatMap((release) => release.references), [releases]);
  return useQuery<Map<string, NamedVersion>, Problem>({
    queryKey: ["versions", client.cacheKey, workspace.workspace_id, versionsByKind, references.map((reference) => reference.asset_version_id)],
    enabled: releases.length > 0,
    // The result never becomes stale, because versions are immutable.
    staleTime: Infinity,
    retry: false,
    queryFn: async ({ signal }) => {
      const versions = new Map<string, NamedVersion>();
      const workspace_id = workspace.workspace_id;
      for (const [kind, ids] of versionsByKind) {
        const missing = new Set(ids);
        await visitRows<Asset>(client, apiPath("/v1/assets", {}, { workspace_id, asset_kind: kind, limit: "200" }), signal, async (asset) => {
          const path = apiPath("/v1/assets/{asset_id}/versions", { asset_id: asset.asset_id }, { workspace_id, limit: "200" });
          await visitRows<AssetVersion>(client, path, signal, (version) => {
            if (missing.delete(version.asset_version_id)) versions.set(version.asset_version_id, { asset, version });
            return missing.size === 0;
          });
          return missing.size === 0;
        });
      }
      for (const { asset_id, asset_version_id } of references) {
        if (versions.has(asset_version_id)) continue;
        const version = await client.get<AssetVersion>(apiPath("/v1/assets/{asset_id}/versions/{asset_version_id}", { asset_id, asset_version_id }, { workspace_id }), signal);
        const asset = await client.get<Asset>(apiPath("/v1/assets/{asset_id}", { asset_id }, { workspace_id }), signal);
        versions.set(asset_version_id, { asset, version });
      }
      return versions;
    },
  });
}
