/** A problem of one field, as the server reports it. */
export interface FieldProblem {
  path: string;
  code: string;
  message: string;
}

/** A refusal or failure of a request. */
export class Problem extends Error {
  constructor(
    /** The HTTP status; 0 if no response arrived. */
    readonly status: number,
    /** The stable code, such as `policy_denied`. */
    readonly code: string,
    message: string,
    readonly requestId: string | null = null,
    readonly fields: FieldProblem[] = [],
    /** Seconds until the next attempt can succeed. */
    readonly retryAfter: number | null = null,
    readonly detail: Record<string, unknown> = {},
  ) {
    super(message);
  }

  /** Whether the same request can succeed later. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  /** The identifier of the refused run; null if the refusal concerns no run. */
  get executionId(): string | null {
    const id = this.detail["execution_id"];
    return typeof id === "string" ? id : null;
  }
}

/** The problem for a request without a response. */
export const unreachable = (): Problem => new Problem(0, "unreachable", "the server cannot be reached");

/** Reads the error body of a response. An unexpected body becomes a problem with only the status. */
export async function problemOf(response: Response): Promise<Problem> {
  const header = response.headers.get("x-request-id");
  const seconds = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  const retryAfter = Number.isFinite(seconds) ? seconds : null;
  try {
    const body: unknown = await response.json();
    const detail = (body as { detail?: Record<string, unknown> }).detail ?? {};
    const fields = Array.isArray(detail["fields"]) ? (detail["fields"] as FieldProblem[]) : [];
    const code = typeof detail["error"] === "string" ? detail["error"] : `http_${response.status}`;
    const message = typeof detail["message"] === "string" ? detail["message"] : "";
    return new Problem(response.status, code, message, header, fields, retryAfter, detail);
  } catch {
    return new Problem(response.status, `http_${response.status}`, "", header, [], retryAfter);
  }
}
