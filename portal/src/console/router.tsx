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
const route = <P extends string>(path: P, load: () => Promise<Record<string, unknown>>, name: string) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load as () => Promise<Record<string, () => React.ReactNode>>, name) });

const tree = root.addChildren([
  route("/", () => import("./views/Home"), "Home"),
  route("/workloads", () => import("./views/Workloads"), "Workloads"),
  route("/workloads/$id", () => import("./views/WorkloadPage"), "WorkloadPage"),
  route("/assets", () => import("./views/Assets"), "Assets"),
  route("/assets/$id", () => import("./views/AssetPage"), "AssetPage"),
  route("/lanes", () => import("./views/Lanes"), "Lanes"),
  route("/releases", () => import("./views/Releases"), "Releases"),
  route("/releases/$id", () => import("./views/ReleasePage"), "ReleasePage"),
  route("/runs", () => import("./views/Runs"), "Runs"),
  route("/runs/$id", () => import("./views/RunPage"), "RunPage"),
  route("/reviews", () => import("./views/Reviews"), "Reviews"),
  route("/use-cases", () => import("./views/UseCases"), "UseCases"),
  route("/use-cases/$id", () => import("./views/UseCasePage"), "UseCasePage"),
  route("/connections", () => import("./views/Connections"), "Connections"),
  route("/notifications", () => import("./views/Notifications"), "Notifications"),
  route("/access", () => import("./views/Access"), "Access"),
  route("/audit", () => import("./views/Audit"), "Audit"),
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
