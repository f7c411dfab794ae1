import type { Json } from "../../api/types";

/** The input field for an argument of a prompt template. */
export interface ArgumentField {
  name: string;
  type: "string" | "number" | "boolean" | "array";
}

const TYPES: readonly string[] = ["string", "number", "boolean", "array"] satisfies ArgumentField["type"][];
/** The older syntax of an argument, `{{name}}`, which needs no declaration. */
const PLACEHOLDER = /\{\{ *([A-Za-z_]\w{0,62}) *\}\}/g;

/**
 * The arguments of a template: declared variables, then undeclared placeholders. Excludes arguments of included assets.
 */
export function argumentFields(content: Record<string, Json> | null): ArgumentField[] {
  const fields = new Map<string, ArgumentField>();
  const declared = content?.["variables"];
  for (const variable of Array.isArray(declared) ? declared : []) {
    const { name, type = "string" } = (variable ?? {}) as { name?: Json; type?: Json };
    if (typeof name === "string" && name !== "" && TYPES.includes(String(type))) fields.set(name, { name, type: type as ArgumentField["type"] });
  }
  const prompt = content?.["system_prompt"];
  for (const [, name = ""] of typeof prompt === "string" ? prompt.matchAll(PLACEHOLDER) : []) {
    if (!fields.has(name)) fields.set(name, { name, type: "string" });
  }
  return [...fields.values()];
}

/**
 * Converts typed text to the argument's type; null for an empty field. Text of another type stays text, which the
 * server refuses.
 */
function valueOf({ type }: ArgumentField, typed: string): Json {
  if (type === "string") return typed;
  if (typed.trim() === "") return null;
  try {
    return JSON.parse(typed) as Json;
  } catch {
    return typed;
  }
}

/** The arguments of a preview, by name. Typed arguments override `further` arguments. */
export function argumentValues(fields: readonly ArgumentField[], typed: Readonly<Record<string, string>>, further: Record<string, Json>): Record<string, Json> {
  const values = fields.filter(({ name }) => typed[name] !== undefined).map((field) => [field.name, valueOf(field, typed[field.name] ?? "")] as const);
  return { ...further, ...Object.fromEntries(values.filter(([, value]) => value !== null)) };
}

/** The arguments as options of `fairway prompt render`. */
export const argumentWords = (values: Record<string, Json>): string[] => Object.entries(values).flatMap(([name, value]) => ["--arg", typeof value === "string" ? `${name}=${value}` : `${name}:=${JSON.stringify(value)}`]);

/** The initial input of a policy trial: the input of the bundle's first test, or an empty input. */
export function firstInput(content: Record<string, Json> | null): Json {
  const tests = content?.["tests"];
  const [first] = Array.isArray(tests) ? tests : [];
  const input = first !== null && typeof first === "object" && !Array.isArray(first) ? first["input"] : undefined;
  return input ?? { environment: "dev", inputs: {} };
}
