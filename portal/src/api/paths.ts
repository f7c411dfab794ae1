import type { paths } from "./schema";

/** The names of the placeholders of a path pattern. */
type Placeholders<P extends string> = P extends `${string}{${infer Name}}${infer Rest}` ? Name | Placeholders<Rest> : never;

/** The path of an API route with percent-encoded values. Only path patterns of the OpenAPI document compile. */
export function apiPath<P extends keyof paths & string>(
  pattern: P,
  values: Record<Placeholders<P>, string>,
  query: Record<string, string | undefined> = {},
): string {
  const path = pattern.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const value = (values as Record<string, string>)[name];
    // An empty segment, `.` or `..` would change the route.
    if (value === undefined || /^\.{0,2}$/.test(value)) throw new Error(`no value for ${name}`);
    return encodeURIComponent(value);
  });
  const pairs = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs)}`;
}
