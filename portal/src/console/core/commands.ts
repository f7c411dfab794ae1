import type { Identity } from "../../api/client";

/** A request to the API, which the page sends or shows as a command. */
export interface ApiRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  ifMatch?: string | null;
}

/** A request, and the equivalent command of `fairway`. */
export interface Command {
  label: string;
  request: ApiRequest;
  /** The words of the command; null if the command line has no equivalent. */
  words?: readonly string[] | null;
}

/** Quotes a text for a POSIX shell. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_./:@=+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The request as a `curl` command. It contains no secret, because it reads tokens from environment variables. */
export function curlText(request: ApiRequest, origin: string, identity: Identity): string {
  const parts = ["curl -sS"];
  if (request.method !== "GET") parts.push(`-X ${request.method}`);
  parts.push(quote(origin + request.path));
  if (identity.kind === "local" && identity.actor) parts.push(`-H ${quote(`X-Actor-Ref: ${identity.actor}`)}`);
  if (identity.kind !== "local") parts.push('-H "Authorization: Bearer $FAIRWAY_CLI_TOKEN"');
  if (request.ifMatch) parts.push(`-H ${quote(`If-Match: ${request.ifMatch}`)}`);
  if (request.body !== undefined) parts.push(`-H 'Content-Type: application/json'`, `-d ${quote(JSON.stringify(request.body))}`);
  return parts.join(" \\\n  ");
}

/** The command line of `fairway` with the options for server and identity. */
export function fairwayText(words: readonly string[], origin: string, identity: Identity): string {
  const options: string[] = [];
  if (origin !== "http://127.0.0.1:8080") options.push("--server", origin);
  if (identity.kind === "local" && identity.actor) options.push("--actor", identity.actor);
  return ["fairway", ...words, ...options].map(quote).join(" ");
}
