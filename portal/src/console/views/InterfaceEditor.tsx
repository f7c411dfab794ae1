import { lazy, Suspense, useState } from "react";
import { apiPath } from "../../api/paths";
import type { WithEntityTag } from "../core/console";
import { THEME_PARTS } from "../core/theme";
import type { Schemas, Workload } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Loading, Section } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { InputFields } from "./InputFields";

type Config = Schemas["InterfaceConfig"];
const InterfacePreview = lazy(() => import("./InterfacePreview"));
const MODES = ["form", "chat", "block"] as const;
const ACCESS = ["authenticated", "link_shared", "public"] as const;
const OUTPUTS = ["text", "json", "markdown", "table"] as const;

/** The editor of a workload's interface, with a preview of the runtime page. */
export function InterfaceEditor({ read }: { read: WithEntityTag<Workload> }) {
  const text = useConsoleText();
  const workload = read.value;
  const { workload_id } = workload;
  const scope = { kind: "workload", ref: workload_id } as const;
  // The state on which the edit is based. Its entity tag ensures that a later state is never overwritten.
  const [base, setBase] = useState(read);
  const stored = base.value.interface_config ?? null;
  // The response to a change has no entity tag, so the tag comes from the next read if it has the same interface.
  const tag = base.etag ?? (JSON.stringify(workload.interface_config ?? null) === JSON.stringify(stored) ? read.etag : null);
  const [config, setConfig] = useState<Config>(stored ?? { presentation_mode: "form", input_fields: [] });
  const [isOpen, setOpen] = useState(false);
  const change = (parts: Partial<Config>) => setConfig((before) => ({ ...before, ...parts }));
  const isChanged = JSON.stringify(config) !== JSON.stringify(stored);
  const isStale = JSON.stringify(workload.interface_config ?? null) !== JSON.stringify(stored);
  const opensAccess = (config.access_mode ?? "authenticated") !== (stored?.access_mode ?? "authenticated");
  const request = { method: "PATCH" as const, path: apiPath("/v1/workloads/{workload_id}", { workload_id }), body: { interface_config: config }, ifMatch: tag };
  const startOver = () => {
    setBase(read);
    setConfig(workload.interface_config ?? { presentation_mode: "form", input_fields: [] });
  };
  return (
    <>
      {isStale && (
        <div className="notice notice-wait" role="alert" data-testid="stale">
          <p>{text("changed_since")}</p>
          <button type="button" className="plain" onClick={startOver}>
            {text("show_current")}
          </button>
        </div>
      )}
      <div className="beside">
        <div>
          <Section title={text("interface")}>
            <Basics config={config} onChange={change} />
          </Section>
          <Section title={text("theme")}>
            <ThemeFields theme={config.theme ?? {}} onChange={(theme) => setConfig(({ theme: _, ...rest }) => (Object.keys(theme).length > 0 ? { ...rest, theme } : rest))} />
          </Section>
          <Section title={text("input_fields")}>
            <InputFields fields={config.input_fields ?? []} onChange={(input_fields) => change({ input_fields })} />
          </Section>
          <div className="buttons">
            <Action
              label={text("save_interface")}
              tone="primary"
              operation={opensAccess ? "change_workload_access" : "change_workload"}
              scope={scope}
              blocked={isStale ? text("changed_since") : isChanged ? null : text("nothing_changed")}
              onClick={() => setOpen(true)}
            />
            {isChanged && (
              <button type="button" className="plain" onClick={startOver}>
                {text("start_over")}
              </button>
            )}
          </div>
        </div>
        <Section title={text("preview")}>
          <p className="hint">{text("preview_text")}</p>
          <Suspense fallback={<Loading what={text("preview")} />}>
            <InterfacePreview workload={workload} config={config} />
          </Suspense>
        </Section>
      </div>
      <Commands items={[{ label: text("save_interface"), request, words: null }]} />
      {isOpen && (
        <Dialog title={text("save_interface")} confirm={text("save_interface")} request={request} onClose={() => setOpen(false)} onDone={(changed) => setBase({ value: changed as Workload, etag: null })}>
          <p>{text("save_interface_text", { slug: workload.slug })}</p>
          {opensAccess && <p className="notice notice-wait">{text("access_changes", { mode: config.access_mode ?? "authenticated" })}</p>}
        </Dialog>
      )}
    </>
  );
}

function Basics({ config, onChange }: { config: Config; onChange: (parts: Partial<Config>) => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const choice = <T extends string>(label: string, value: T, options: readonly T[], set: (value: T) => void) => (
    <Field label={label}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => set(event.target.value as T)}>
          {options.map((one) => (
            <option key={one} value={one}>
              {valueText(one)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
  return (
    <div className="stack">
      {choice(text("mode"), config.presentation_mode, MODES, (presentation_mode) => onChange({ presentation_mode }))}
      {choice(text("access_mode"), config.access_mode ?? "authenticated", ACCESS, (access_mode) => onChange({ access_mode }))}
      {choice(text("output_display"), config.output_display ?? "text", OUTPUTS, (output_display) => onChange({ output_display }))}
      <Field label={text("interface_description")}>
        {(id) => <textarea id={id} rows={2} maxLength={2_000} value={config.description ?? ""} onChange={(event) => onChange({ description: event.target.value })} />}
      </Field>
    </div>
  );
}

function ThemeFields({ theme, onChange }: { theme: Schemas["Theme"]; onChange: (theme: Schemas["Theme"]) => void }) {
  const text = useConsoleText();
  const examples = { accent_color: "#1a56b0", background_color: "oklch(0.98 0.01 250)", font_family: "Georgia, serif", border_radius: "12px" };
  return (
    <div className="stack">
      {THEME_PARTS.map(({ name, property }) => {
        const value = theme[name] ?? "";
        const isWrong = value !== "" && !CSS.supports(property, value);
        return (
          <Field key={name} label={text(`theme_${name}`)}>
            {(id) => (
              <>
                <input
                  id={id}
                  value={value}
                  maxLength={256}
                  placeholder={examples[name]}
                  autoComplete="off"
                  spellCheck={false}
                  aria-invalid={isWrong}
                  aria-describedby={isWrong ? `${id}-error` : undefined}
                  onChange={(event) => {
                    const { [name]: _, ...rest } = theme;
                    onChange(event.target.value ? { ...rest, [name]: event.target.value } : rest);
                  }}
                />
                {isWrong && (
                  <span id={`${id}-error`} className="hint bad">
                    {text("theme_wrong")}
                  </span>
                )}
              </>
            )}
          </Field>
        );
      })}
    </div>
  );
}
