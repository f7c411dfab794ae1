import type { ConsoleKey } from "../i18n";

/** The views of the navigation. */
export const VIEWS = [
  { to: "/", key: "nav_home" },
  { to: "/workloads", key: "nav_workloads" },
  { to: "/assets", key: "nav_assets" },
  { to: "/lanes", key: "nav_lanes" },
  { to: "/releases", key: "nav_releases" },
  { to: "/runs", key: "nav_runs" },
  { to: "/reviews", key: "nav_reviews" },
  { to: "/use-cases", key: "nav_use_cases" },
  { to: "/connections", key: "nav_connections" },
  { to: "/notifications", key: "nav_notifications" },
  { to: "/access", key: "nav_access" },
  { to: "/audit", key: "nav_audit" },
] as const satisfies readonly { to: string; key: ConsoleKey }[];
