import { useId } from "react";
import type { InputField } from "../api/types";
import { useText } from "../i18n";
import { boundsOf, labelOf } from "./values";

interface Props {
  field: InputField;
  /** The id of the control, so that a summary can link to it. */
  id: string;
  value: string | boolean;
  message: string | undefined;
  onChange: (value: string | boolean) => void;
}

/** One input field with its label and its error message. */
export function Field({ field, id, value, message, onChange }: Props) {
  const text = useText();
  const messageId = useId();
  const boundsId = useId();
  const bounds = boundsOf(field, text);
  const common = {
    id,
    name: field.name,
    dir: "auto" as const,
    "aria-invalid": message !== undefined,
    "aria-describedby": [bounds && boundsId, message !== undefined && messageId].filter(Boolean).join(" ") || undefined,
    "aria-required": field.required ?? false,
    onChange: (event: { target: { value: string } }) => onChange(event.target.value),
  };
  const written = typeof value === "string" ? value : "";
  const control = () => {
    switch (field.type) {
      case "textarea":
        return <textarea {...common} rows={field.rows ?? 4} value={written} />;
      case "select":
        return (
          <select {...common} value={written}>
            <option value="">{text("choose")}</option>
            {field.options?.map((option) => (
              <option key={option}>{option}</option>
            ))}
          </select>
        );
      case "number":
        return <input {...common} type="text" inputMode="decimal" value={written} />;
      case "date":
        return <input {...common} type="date" value={written} />;
      case "boolean":
        return (
          <input {...common} type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />
        );
      default:
        return <input {...common} type="text" value={written} />;
    }
  };
  return (
    <div className={field.type === "boolean" ? "field field-inline" : "field"}>
      <label htmlFor={id} dir="auto">
        {labelOf(field)}
        {field.required && <span className="hint"> ({text("required")})</span>}
      </label>
      {bounds && (
        <p className="hint" id={boundsId}>
          {bounds}
        </p>
      )}
      {control()}
      {message !== undefined && (
        <p className="field-message" id={messageId}>
          {message}
        </p>
      )}
    </div>
  );
}
