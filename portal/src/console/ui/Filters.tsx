import { useEffect, useId, useState, type ReactNode } from "react";
import { useAddress } from "../core/useAddress";
import { useConsoleText, useValueText } from "../i18n";

/** A selection whose value is stored in the address. */
export function FilterSelect({ name, label, options, labelOf, none }: { name: string; label: string; options: readonly string[]; labelOf?: (value: string) => string; none?: string }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [search, change] = useAddress();
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} value={search[name] ?? ""} onChange={(event) => change({ [name]: event.target.value })}>
        <option value="">{none ?? text("all")}</option>
        {options.map((option) => (
          <option key={option} value={option}>
            {(labelOf ?? valueText)(option)}
          </option>
        ))}
      </select>
    </div>
  );
}

/** A text field whose value is stored in the address as soon as it matches the pattern. */
export function FilterText({ name, label, pattern, placeholder, list }: { name: string; label: string; pattern: string; placeholder?: string; list?: readonly string[] }) {
  const text = useConsoleText();
  const [search, change] = useAddress();
  const [typed, setTyped] = useState(search[name] ?? "");
  const stored = search[name] ?? "";
  useEffect(() => setTyped(stored), [stored]);
  const id = useId();
  const fits = typed === "" || new RegExp(`^(?:${pattern})$`, "v").test(typed);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        value={typed}
        autoComplete="off"
        spellCheck={false}
        placeholder={placeholder}
        aria-invalid={!fits}
        aria-describedby={fits ? undefined : `${id}-error`}
        list={list ? `${id}-list` : undefined}
        onChange={(event) => {
          const { value } = event.target;
          setTyped(value);
          if (value === "" || new RegExp(`^(?:${pattern})$`, "v").test(value)) change({ [name]: value });
        }}
      />
      {list && (
        <datalist id={`${id}-list`}>
          {list.map((entry) => (
            <option key={entry} value={entry} />
          ))}
        </datalist>
      )}
      {!fits && (
        <span id={`${id}-error`} className="hint bad">
          {text("filter_incomplete")}
        </span>
      )}
    </div>
  );
}

/** The filters of a list, and a button that clears them. */
export function Filters({ names, children }: { names: readonly string[]; children: ReactNode }) {
  const text = useConsoleText();
  const [search, change] = useAddress();
  const isSet = names.some((name) => search[name]);
  return (
    <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
      {children}
      {isSet && (
        <button type="button" className="plain" onClick={() => change(Object.fromEntries(names.map((name) => [name, ""])))}>
          {text("clear_filters")}
        </button>
      )}
    </form>
  );
}

/** A field of a form. */
export function Field({ label, hint, children }: { label: string; hint?: string; children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {hint && <span className="hint">{hint}</span>}
    </div>
  );
}

/** A field for the comment on a decision. */
export function NoteField({ value, onChange, required = false, label }: { value: string; onChange: (value: string) => void; required?: boolean; label?: string }) {
  const text = useConsoleText();
  return (
    <Field label={label ?? text("note")}>
      {(id) => <textarea id={id} rows={3} maxLength={2_000} required={required} value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}
