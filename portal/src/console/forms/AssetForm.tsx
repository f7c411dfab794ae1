import Form, { type FormProps } from "@rjsf/core/lib/components/Form.js";
import { TranslatableString, type RJSFSchema } from "@rjsf/utils";
import { useCallback, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import type { Json } from "../../api/types";
import { sortedJson } from "../core/diff";
import { isLostByForm } from "../core/positions";
import { useConsoleText } from "../i18n";
import { fields } from "./fields";
import { FormStateContext, type FieldMessage } from "./messages";
import { fieldId, formSchema, withoutEmptyFields } from "./schema";
import { templates } from "./templates";
import { validator } from "./validator";
import { widgets } from "./widgets";

interface Props {
  schema: RJSFSchema;
  /** The initial content. A later value is ignored, so another content needs a new form. */
  content: Record<string, Json>;
  onChange: (text: string) => void;
  messages: readonly (FieldMessage & { path: string })[];
  /** Focuses the field at a path in the server's form. */
  goTo: RefObject<((path: string) => void) | null>;
  /** Receives the number of fields whose text is not valid JSON yet. */
  onUnfinished: (count: number) => void;
}

/** Disables all defaults of the form library, so that opening a form does not change the content. */
const NO_DEFAULTS: NonNullable<FormProps["experimental_defaultFormStateBehavior"]> = {
  emptyObjectFields: "skipDefaults",
  arrayMinItems: { populate: "never" },
  constAsDefaults: "never",
  requiredBooleanDefault: "skip",
};
const OPTIONS = { "ui:globalOptions": { enableOptionalDataFieldForType: ["object", "array"] as ("object" | "array")[] }, "ui:submitButtonOptions": { norender: true } };

const ROOT = "content";

/** Focuses the field at a path, or its closest existing ancestor. */
function focusField(path: string) {
  for (let id = fieldId(path); id !== ""; id = id.slice(0, Math.max(0, id.lastIndexOf(".")))) {
    const element = document.getElementById(id);
    if (!element) continue;
    const target = element.matches("input, select, textarea, [tabindex]") ? element : element.querySelector<HTMLElement>("input, select, textarea, button");
    target?.focus();
    return;
  }
}

/** Shows a content as a form by the schema of its kind. Members without a field are shown as JSON text or as a note. */
export default function AssetForm({ schema, content, onChange, messages, goTo, onUnfinished }: Props) {
  const text = useConsoleText();
  const prepared = useMemo(() => formSchema(schema), [schema]);
  const [data, setData] = useState<unknown>(content);
  const reported = useRef(sortedJson(content));
  const unfinished = useRef(new Set<string>());
  useEffect(() => {
    goTo.current = focusField;
    return () => {
      goTo.current = null;
    };
  }, [goTo]);
  const note = useCallback(
    (id: string, isUnfinished: boolean) => {
      const { current } = unfinished;
      if (isUnfinished) current.add(id);
      else current.delete(id);
      onUnfinished(current.size);
    },
    [onUnfinished],
  );
  const state = useMemo(() => {
    const byId = new Map<string, FieldMessage[]>();
    for (const { path, ...message } of messages) byId.set(fieldId(path), [...(byId.get(fieldId(path)) ?? []), message]);
    return { messages: byId, onUnfinished: note };
  }, [messages, note]);
  const translate = useCallback(
    (key: TranslatableString, params: string[] = []) =>
      ({ [TranslatableString.YesLabel]: text("yes"), [TranslatableString.NoLabel]: text("no"), [TranslatableString.NewStringDefault]: "" })[key as string] ?? params.reduce((whole, one, place) => whole.replace(`%${place + 1}`, one), key as string),
    [text],
  );
  return (
    <FormStateContext value={state}>
      <Form
        tagName="div"
        className="asset-form"
        schema={prepared}
        validator={validator}
        formData={data}
        uiSchema={OPTIONS}
        idPrefix={ROOT}
        idSeparator="."
        noValidate
        noHtml5Validate
        showErrorList={false}
        templates={templates}
        widgets={widgets}
        fields={fields}
        translateString={translate}
        experimental_defaultFormStateBehavior={NO_DEFAULTS}
        onChange={({ formData }: { formData?: unknown }) => {
          // JSON cannot represent the value (such as an infinite number), so the form returns to its last data.
          if (isLostByForm((formData ?? {}) as Json)) {
            setData((last: unknown) => structuredClone(last));
            return;
          }
          setData(formData);
          const next = sortedJson(withoutEmptyFields(prepared, formData ?? {}) as Json);
          if (next === reported.current) return;
          reported.current = next;
          onChange(next);
        }}
      />
    </FormStateContext>
  );
}
