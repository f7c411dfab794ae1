import SchemaField from "@rjsf/core/lib/components/fields/SchemaField.js";
import type { FieldProps, RegistryFieldsType } from "@rjsf/utils";
import { useContext, useEffect, useState } from "react";
import type { Json } from "../../api/types";
import { isLostByForm } from "../core/positions";
import { useConsoleText } from "../i18n";
import { FormStateContext, useDescription } from "./messages";
import { isChoice, isMap, needsJson } from "./schema";

/**
 * A field of the form library, or a JSON text for values without a field. The choice stays while the field is shown.
 */
function AnyField(props: FieldProps) {
  const { schema, formData, uiSchema, registry } = props;
  const resolvedSchema = registry.schemaUtils.retrieveSchema(schema, formData);
  const [isJson] = useState(() => needsJson(resolvedSchema, formData));
  const uiOptions = isJson
    ? { "ui:field": "JsonField", "ui:fieldReplacesAnyOrOneOf": true }
    : // A map and a choice show their values at once, without a button that adds them first.
      isMap(resolvedSchema) || isChoice(resolvedSchema)
      ? { "ui:enableOptionalDataFieldForType": [] }
      : {};
  return <SchemaField {...props} uiSchema={{ ...uiSchema, ...uiOptions }} />;
}

const jsonText = (value: unknown): string => (value === undefined ? "" : JSON.stringify(value, null, 2));

/**
 * A part of the content as JSON text. Invalid JSON does not change the content, and blocks the creation of a version.
 */
function JsonField({ fieldPathId, formData, onChange, required = false }: FieldProps) {
  const text = useConsoleText();
  const { $id: id, path } = fieldPathId;
  const { onUnfinished } = useContext(FormStateContext);
  const described = useDescription(id, required);
  const [typed, setTyped] = useState(() => jsonText(formData));
  const [trouble, setTrouble] = useState<"form_json_unfinished" | "form_unkept" | null>(null);
  const isUnfinished = trouble !== null;
  useEffect(() => {
    onUnfinished(id, isUnfinished);
    return () => onUnfinished(id, false);
  }, [onUnfinished, id, isUnfinished]);
  const update = (next: string) => {
    setTyped(next);
    try {
      const value = next.trim() === "" ? undefined : (JSON.parse(next) as Json);
      const isKept = value === undefined || !isLostByForm(value);
      setTrouble(isKept ? null : "form_unkept");
      if (isKept) onChange(value, path);
    } catch {
      setTrouble("form_json_unfinished");
    }
  };
  return (
    <>
      <textarea id={id} {...described} aria-invalid={isUnfinished || described["aria-invalid"]} className="code" rows={Math.min(12, Math.max(2, typed.split("\n").length))} value={typed} spellCheck={false} onChange={(event) => update(event.target.value)} />
      <span className={isUnfinished ? "hint bad" : "hint"} role="status">
        {text(trouble ?? "form_json")}
      </span>
    </>
  );
}

export const fields: RegistryFieldsType = { SchemaField: AnyField, JsonField };
