import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, retainSearchParams } from "@tanstack/react-router";
import type { Client } from "../api/client";
import type { Session } from "../api/types";
import { parseSearch, stringifySearch, type Search } from "./core/address";
import { NotFound, Shell } from "./shell/Shell";

export interface RouterContext {
  client: Client;
  session: Session | null;
  actAs: (actor: string) => void;
}

const root = createRootRouteWithContext<RouterContext>()({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: (search: Record<string, unknown>): Search =>
    Object.fromEntries(Object.entries(search).filter((pair): pair is [string, string] => typeof pair[1] === "string")),
  search: { middlewares: [retainSearchParams(["workspace", "lang"])] },
});
const at = <P extends string>(path: P, load: () => Promise<Record<string, unknown>>, name: string) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load as () => Promise<Record<string, () => React.ReactNode>>, name) });

const tree = root.addChildren([
  at("/", () => import("./views/Home"), "Home"),
  at("/workloads", () => import("./views/Workloads"), "Workloads"),
  at("/workloads/$id", () => import("./views/WorkloadPage"), "WorkloadPage"),
  at("/assets", () => import("./views/Assets"), "Assets"),
  at("/assets/$id", () => import("./views/AssetPage"), "AssetPage"),
  at("/lanes", () => import("./views/Lanes"), "Lanes"),
  at("/releases", () => import("./views/Releases"), "Releases"),
  at("/releases/$id", () => import("./views/ReleasePage"), "ReleasePage"),
  at("/runs", () => import("./views/Runs"), "Runs"),
  at("/runs/$id", () => import("./views/RunPage"), "RunPage"),
  at("/reviews", () => import("./views/Reviews"), "Reviews"),
  at("/use-cases", () => import("./views/UseCases"), "UseCases"),
  at("/use-cases/$id", () => import("./views/UseCasePage"), "UseCasePage"),
  at("/connections", () => import("./views/Connections"), "Connections"),
  at("/notifications", () => import("./views/Notifications"), "Notifications"),
  at("/access", () => import("./views/Access"), "Access"),
  at("/audit", () => import("./views/Audit"), "Audit"),
]);

export const makeRouter = () =>
  createRouter({
    routeTree: tree,
    basepath: "/console",
    context: undefined as unknown as RouterContext,
    parseSearch,
    stringifySearch,
    defaultPreload: false,
    scrollRestoration: false,
  });

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
