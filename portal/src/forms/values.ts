import type { FieldProblem } from "../api/problem";
import type { InputField, Json } from "../api/types";
import type { TextKey, Translate } from "../i18n";

/** The values of a form's controls, by field name. */
export type FormValues = Record<string, string | boolean>;

/** Error messages by field name. */
export type FieldMessages = Record<string, string>;

/** The label of a field. */
export const labelOf = (field: InputField): string => field.label ?? field.name;

/** A text with the bounds of a number field; empty if the field has no bounds. */
export function boundsOf(field: InputField, text: Translate): string {
  const { type, min, max } = field;
  const [hasMin, hasMax] = [typeof min === "number", typeof max === "number"];
  if (type !== "number" || (!hasMin && !hasMax)) return "";
  const values = { min: Number(min), max: Number(max) };
  return text(hasMin && hasMax ? "bounds_both" : hasMin ? "bounds_min" : "bounds_max", values);
}

/** The initial values of a form. */
export function initialValues(fields: readonly InputField[]): FormValues {
  return Object.fromEntries(
    fields.map((field) => {
      const defaultValue: unknown = field.default;
      if (field.type === "boolean") return [field.name, defaultValue === true];
      return [field.name, defaultValue === undefined || defaultValue === null ? "" : String(defaultValue)];
    }),
  );
}

/** The inputs of a run, or a message for each invalid field. The server checks the same rules again. */
export function inputsOf(
  fields: readonly InputField[],
  values: FormValues,
  text: Translate,
): { inputs: Record<string, Json>; messages: FieldMessages } {
  const inputs: Record<string, Json> = {};
  const messages: FieldMessages = {};
  for (const field of fields) {
    const value = values[field.name] ?? "";
    if (typeof value === "boolean") {
      inputs[field.name] = value;
      continue;
    }
    if (value.trim() === "") {
      if (field.required) messages[field.name] = text("invalid_missing");
      continue;
    }
    if (field.type !== "number") {
      if (field.type === "date" && !isDate(value)) messages[field.name] = text("invalid_date");
      inputs[field.name] = value;
      continue;
    }
    const number = Number(value.replace(",", "."));
    if (!Number.isFinite(number)) messages[field.name] = text("invalid_number");
    else if (typeof field.min === "number" && number < field.min) messages[field.name] = text("invalid_min", { min: field.min });
    else if (typeof field.max === "number" && number > field.max) messages[field.name] = text("invalid_max", { max: field.max });
    inputs[field.name] = number;
  }
  return { inputs, messages };
}

/** Whether a text is a valid date in the form `YYYY-MM-DD`. */
function isDate(text: string): boolean {
  const day = new Date(`${text}T00:00:00Z`);
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text);
}

/** Text keys by the server's error codes for inputs. */
const SERVER_CODES: ReadonlyMap<string, TextKey> = new Map([
  ["missing", "invalid_missing"],
  ["not_an_option", "invalid_option"],
  ["invalid_date", "invalid_date"],
  ["too_long", "invalid_too_long"],
  ["out_of_bounds", "invalid_bounds"],
  ["invalid", "invalid_other"],
]);

/** Converts the server's field problems to messages by field. */
export function serverMessages(problems: readonly FieldProblem[], text: Translate): FieldMessages {
  const messages: FieldMessages = {};
  for (const problem of problems) {
    const name = problem.path.match(/^inputs\.([a-z][a-z0-9_]*)/)?.[1];
    if (name === undefined) continue;
    const key = SERVER_CODES.get(problem.code);
    messages[name] = key ? text(key) : problem.message || text("invalid_other");
  }
  return messages;
}
