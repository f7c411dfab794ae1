import type { RegistryWidgetsType, WidgetProps } from "@rjsf/utils";
import { useQueries } from "@tanstack/react-query";
import { apiPath } from "../../api/paths";
import { useConsole } from "../core/console";
import type { Asset } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { useDescription } from "./messages";
import { typesOf } from "./schema";

/** Maximum length for which a text has a single-line field. */
const LINE = 300;

const isItem = (id: string): boolean => /\.\d+$/.test(id);

/** A field for a text or a number. An empty field is omitted from the content, unless it is required. */
function TextWidget({ id, value, onChange, required = false, schema }: WidgetProps) {
  const described = useDescription(id, required);
  const isText = typesOf(schema)[0] === "string";
  const kinds = schema["x-asset-kinds"] as string[] | undefined;
  const common = {
    id,
    ...described,
    value: value === undefined || value === null ? "" : String(value),
    autoComplete: "off",
    spellCheck: false,
    onChange: (event: { target: { value: string } }) => onChange(event.target.value === "" && !(isText && (required || isItem(id))) ? undefined : event.target.value),
  };
  const longest = schema.maxLength ?? 0;
  if (isText && longest > LINE && !schema.pattern) return <textarea {...common} dir="auto" rows={longest > 100_000 ? 10 : longest > 2_000 ? 3 : 2} />;
  if (kinds) return <AssetInput common={common} kinds={kinds} />;
  return <input {...common} inputMode={isText ? undefined : "decimal"} />;
}

/** A field for a slug, which suggests assets of the permitted kinds. */
function AssetInput({ common, kinds }: { common: React.ComponentProps<"input"> & { id: string }; kinds: readonly string[] }) {
  const valueText = useValueText();
  const { client, workspace } = useConsole();
  const assets = useQueries({
    queries: kinds.map((kind) => ({
      queryKey: ["offered", client.cacheKey, workspace.workspace_id, kind],
      staleTime: 60_000,
      retry: false,
      queryFn: ({ signal }: { signal: AbortSignal }) => client.get<Asset[]>(apiPath("/v1/assets", {}, { workspace_id: workspace.workspace_id, asset_kind: kind, limit: "200" }), signal),
    })),
    combine: (results) => results.flatMap(({ data }) => data ?? []),
  });
  const list = `${common.id}__assets`;
  return (
    <>
      <input {...common} list={list} />
      <datalist id={list}>
        {assets.map(({ asset_id, slug, asset_kind }) => (
          <option key={asset_id} value={slug}>
            {valueText(asset_kind)}
          </option>
        ))}
      </datalist>
    </>
  );
}

/** A selection of one value from a fixed set, or of no value. A stored value outside the set stays selectable. */
function SelectWidget(props: WidgetProps) {
  const { id, value, onChange, required = false, options } = props;
  const text = useConsoleText();
  const described = useDescription(id, required);
  if (props.multiple) return <Choices {...props} />;
  const choices = options.enumOptions ?? [];
  const index = choices.findIndex((option) => option.value === value);
  const isStrange = index < 0 && value !== undefined && value !== null && value !== "";
  return (
    <select id={id} {...(id.endsWith("_select") ? {} : described)} value={isStrange ? "strange" : index < 0 ? "" : String(index)} onChange={(event) => onChange(choices[Number(event.target.value || -1)]?.value)}>
      {!id.endsWith("_select") && <option value="">{text("form_unset")}</option>}
      {isStrange && <option value="strange">{JSON.stringify(value)}</option>}
      {choices.map(({ label }, position) => (
        <option key={label} value={String(position)}>
          {label}
        </option>
      ))}
    </select>
  );
}

/** A selection of several values from a fixed set. */
function Choices({ id, value, onChange, required = false, options }: WidgetProps) {
  const { "aria-required": _, "aria-invalid": __, ...described } = useDescription(id, required);
  const chosen: unknown[] = Array.isArray(value) ? value : [];
  const permittedValues = (options.enumOptions ?? []).map((option) => option.value as unknown);
  const offered = [...permittedValues, ...chosen.filter((choice) => !permittedValues.includes(choice))];
  const toggle = (choice: unknown, isChosen: boolean) => {
    const next = offered.filter((offeredValue) => (offeredValue === choice ? isChosen : chosen.includes(offeredValue)));
    onChange(next.length === 0 && !required ? undefined : next);
  };
  return (
    <div id={id} role="group" aria-labelledby={`${id}__label`} {...described} className="inline-field" tabIndex={-1}>
      {offered.map((choice) => (
        <label key={String(choice)} className="check">
          <input type="checkbox" checked={chosen.includes(choice)} onChange={(event) => toggle(choice, event.target.checked)} />
          {String(choice)}
        </label>
      ))}
    </div>
  );
}

export const widgets: RegistryWidgetsType = { TextWidget, TextareaWidget: TextWidget, UpDownWidget: TextWidget, SelectWidget, CheckboxWidget: SelectWidget };
