import type { Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Empty } from "../ui/basics";
import { Field } from "../ui/Filters";

type InputField = Schemas["InputField"];
const TYPES = ["text", "textarea", "number", "select", "boolean", "date"] as const satisfies readonly InputField["type"][];

/** The editor of a form's input fields and their order. */
export function InputFields({ fields, onChange }: { fields: readonly InputField[]; onChange: (fields: InputField[]) => void }) {
  const text = useConsoleText();
  const replace = (index: number, field: InputField) => onChange(fields.map((other, position) => (position === index ? field : other)));
  const move = (index: number, step: number) => {
    const order = [...fields];
    const [movedField] = order.splice(index, 1);
    if (movedField) order.splice(index + step, 0, movedField);
    onChange(order);
  };
  const unused = () => {
    for (let number = fields.length + 1; ; number += 1) if (!fields.some(({ name }) => name === `field_${number}`)) return `field_${number}`;
  };
  return (
    <>
      {fields.length === 0 && <Empty>{text("fields_empty")}</Empty>}
      {fields.map((field, index) => (
        // The key is the index, because the name of a field changes while it is typed.
        <FieldRow
          key={index}
          field={field}
          onChange={(changed) => replace(index, changed)}
          onRemove={() => onChange(fields.filter((_, at) => at !== index))}
          onUp={index > 0 ? () => move(index, -1) : null}
          onDown={index < fields.length - 1 ? () => move(index, 1) : null}
        />
      ))}
      <button type="button" className="plain" disabled={fields.length >= 50} onClick={() => onChange([...fields, { name: unused(), type: "text" }])}>
        {text("add_field")}
      </button>
    </>
  );
}

interface RowProps {
  field: InputField;
  onChange: (field: InputField) => void;
  onRemove: () => void;
  onUp: (() => void) | null;
  onDown: (() => void) | null;
}

function FieldRow({ field, onChange, onRemove, onUp, onDown }: RowProps) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { name } = field;
  /** Sets a part of the field; an empty value removes the part. */
  const set = (part: string, value: unknown) => {
    const { [part]: _, ...rest } = field as unknown as Record<string, unknown>;
    onChange((value === "" || value === undefined ? rest : { ...rest, [part]: value }) as unknown as InputField);
  };
  const number = (part: "min" | "max" | "rows") => (
    <Field label={text(`field_${part}`)}>
      {(id) => <input id={id} type="number" value={field[part] ?? ""} onChange={(event) => set(part, event.target.value === "" ? "" : Number(event.target.value))} />}
    </Field>
  );
  return (
    <fieldset className="field-row">
      <legend>{name}</legend>
      <div className="filters">
        <Field label={text("field_name")}>{(id) => <input id={id} value={name} maxLength={63} spellCheck={false} onChange={(event) => onChange({ ...field, name: event.target.value.trim() })} />}</Field>
        <Field label={text("field_label")}>{(id) => <input id={id} value={field.label ?? ""} maxLength={200} onChange={(event) => set("label", event.target.value)} />}</Field>
        <Field label={text("kind")}>
          {(id) => (
            // A new type removes the other parts of the field, because the server would refuse those of another type.
            <select id={id} value={field.type} onChange={(event) => onChange({ name, type: event.target.value as InputField["type"], ...(field.label ? { label: field.label } : {}), ...(field.required ? { required: true } : {}) })}>
              {TYPES.map((one) => (
                <option key={one} value={one}>
                  {valueText(`field_${one}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label={text("required")}>{(id) => <input id={id} type="checkbox" checked={field.required ?? false} onChange={(event) => set("required", event.target.checked || undefined)} />}</Field>
        {field.type === "number" && number("min")}
        {field.type === "number" && number("max")}
        {field.type === "textarea" && number("rows")}
      </div>
      {field.type === "select" && (
        <Field label={text("field_options")} hint={text("field_options_hint")}>
          {(id) => <textarea id={id} rows={3} value={(field.options ?? []).join("\n")} onChange={(event) => set("options", event.target.value === "" ? "" : event.target.value.split("\n"))} />}
        </Field>
      )}
      <div className="buttons">
        <button type="button" className="plain" disabled={!onUp} aria-label={text("field_up", { name })} onClick={() => onUp?.()}>
          ↑
        </button>
        <button type="button" className="plain" disabled={!onDown} aria-label={text("field_down", { name })} onClick={() => onDown?.()}>
          ↓
        </button>
        <button type="button" className="plain" aria-label={text("field_remove", { name })} onClick={onRemove}>
          {text("delete")}
        </button>
      </div>
    </fieldset>
  );
}
