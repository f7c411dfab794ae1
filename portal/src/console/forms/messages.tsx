import type { RJSFSchema } from "@rjsf/utils";
import { createContext, useContext } from "react";
import { useConsoleText } from "../i18n";

/** A message of the server about a field. */
export interface FieldMessage {
  code: string;
  message: string;
}

/** State that all fields of a form share, by field id. */
export interface FormState {
  messages: ReadonlyMap<string, readonly FieldMessage[]>;
  /** Records whether the text of a field is not valid JSON yet. */
  onUnfinished: (id: string, isUnfinished: boolean) => void;
}

export const FormStateContext = createContext<FormState>({ messages: new Map(), onUnfinished: () => undefined });

export const messageId = (id: string): string => `${id}__error`;
export const hintId = (id: string): string => `${id}__hint`;

/** The ARIA attributes that connect a control to its hint and its messages. */
export function useDescription(id: string, isRequired: boolean) {
  const isWrong = useContext(FormStateContext).messages.has(id);
  return { "aria-required": isRequired || undefined, "aria-invalid": isWrong || undefined, "aria-describedby": isWrong ? `${messageId(id)} ${hintId(id)}` : hintId(id) };
}

/** The server's messages about a field. */
export function Messages({ id }: { id: string }) {
  const messages = useContext(FormStateContext).messages.get(id);
  if (!messages) return null;
  return (
    <ul id={messageId(id)} className="field-messages bad">
      {messages.map(({ code, message }) => (
        <li key={code + message}>
          {message} ({code})
        </li>
      ))}
    </ul>
  );
}

/** The description of a field from its schema, and how the server enforces it. */
export function Hint({ id, schema }: { id: string; schema: RJSFSchema }) {
  const text = useConsoleText();
  const { description, "x-default": preset } = schema;
  return (
    <p id={hintId(id)} className="hint">
      {/* Descriptions in schemas exist only in English. */}
      <span lang="en">{description?.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</span> {preset !== undefined && text("form_default", { value: typeof preset === "string" ? preset : JSON.stringify(preset) })}{" "}
      {schema["x-enforcement"] === "recorded" && <em>{text("form_recorded")}</em>}
    </p>
  );
}
