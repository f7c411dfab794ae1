import { useEffect, useId, useRef, useState, type FormEvent, type ReactNode } from "react";
import type { InputField, Json } from "../api/types";
import { useText } from "../i18n";
import { Field } from "./Field";
import { inputsOf, labelOf, type FieldMessages, type FormValues } from "./values";

interface Props {
  fields: readonly InputField[];
  values: FormValues;
  onChange: (values: FormValues) => void;
  /** Messages of the server's last response, by field. */
  serverMessages: FieldMessages;
  onSubmit: (inputs: Record<string, Json>) => void;
  /** The buttons of the form. */
  children: ReactNode;
}

/** The form with the inputs of a workload. Errors are listed above the fields, and the list receives the focus. */
export function Form({ fields, values, onChange, serverMessages, onSubmit, children }: Props) {
  const text = useText();
  const prefix = useId();
  const summary = useRef<HTMLDivElement>(null);
  const [ownMessages, setOwnMessages] = useState<FieldMessages>({});
  const messages = { ...serverMessages, ...ownMessages };
  const wrong = fields.filter((field) => messages[field.name] !== undefined);

  useEffect(() => {
    if (Object.keys(ownMessages).length > 0 || Object.keys(serverMessages).length > 0) summary.current?.focus();
  }, [ownMessages, serverMessages]);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const { inputs, messages: found } = inputsOf(fields, values, text);
    setOwnMessages(found);
    if (Object.keys(found).length === 0) onSubmit(inputs);
  };
  return (
    <form noValidate onSubmit={submit} className="stack">
      {wrong.length > 0 && (
        <div className="notice notice-error" role="alert" tabIndex={-1} ref={summary}>
          <p>{text("summary_title")}</p>
          <ul>
            {wrong.map((field) => (
              <li key={field.name}>
                <button
                  type="button"
                  className="link"
                  onClick={() => document.getElementById(`${prefix}${field.name}`)?.focus()}
                >
                  {labelOf(field)}
                </button>
                : {messages[field.name]}
              </li>
            ))}
          </ul>
        </div>
      )}
      {fields.map((field) => (
        <Field
          key={field.name}
          field={field}
          id={`${prefix}${field.name}`}
          value={values[field.name] ?? ""}
          message={messages[field.name]}
          onChange={(value) => {
            setOwnMessages(({ [field.name]: _, ...rest }) => rest);
            onChange({ ...values, [field.name]: value });
          }}
        />
      ))}
      {children}
    </form>
  );
}
