import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList, useRead, type WithEntityTag } from "../core/console";
import { ENVIRONMENT_PATTERN, type Release, type Schemas } from "../core/types";
import { useAddress } from "../core/useAddress";
import { useConsoleText } from "../i18n";
import { Action, Commands, Facts, Failed, Loading, Section } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field, FilterText } from "../ui/Filters";

type Tenant = Schemas["TenantSettings"];
type Environment = Schemas["EnvironmentSettings"];

/** A checkbox with a label. */
function Check({ label, value, onChange }: { label: string; value: boolean; onChange: (value: boolean) => void }) {
  return <Field label={label}>{(id) => <input id={id} type="checkbox" checked={value} onChange={(event) => onChange(event.target.checked)} />}</Field>;
}

/** The form for the settings of the organization (tenant). */
export function TenantSettings() {
  const text = useConsoleText();
  const { session } = useConsole();
  const { tenant_id } = session;
  const path = apiPath("/v1/tenants/{tenant_id}/settings", { tenant_id });
  const read = useRead<Tenant>(path, { refresh: true });
  const [open, setOpen] = useState<"notifications" | "hosts" | null>(null);
  if (read.error) return <Failed problem={read.error} onRetry={() => void read.refetch()} />;
  if (!read.data) return <Loading what={text("tab_settings")} />;
  const settings = read.data.value;
  const scope = { kind: "tenant", ref: tenant_id } as const;
  return (
    <>
      <Section title={text("tenant_settings")}>
        <Facts
          items={[
            [text("notifications_enabled"), text(settings.notifications_enabled ? "yes" : "no")],
            [text("advanced_enabled"), text(settings.advanced_notifications_enabled ? "yes" : "no")],
            [text("public_hosts"), settings.public_hosts.join(", ") || "–"],
          ]}
        />
        <div className="buttons">
          <Action label={text("change_settings")} operation="change_tenant_settings" scope={scope} onClick={() => setOpen("notifications")} />
          <Action label={text("change_hosts")} operation="change_tenant_public_hosts" scope={{ kind: "platform" }} onClick={() => setOpen("hosts")} />
        </div>
      </Section>
      <Commands items={[{ label: text("tenant_settings"), request: { method: "GET", path } }]} />
      {open === "notifications" && <NotificationDialog read={read.data} path={path} onClose={() => setOpen(null)} />}
      {open === "hosts" && <HostsDialog read={read.data} path={path} onClose={() => setOpen(null)} />}
    </>
  );
}

function NotificationDialog({ read, path, onClose }: { read: WithEntityTag<Tenant>; path: string; onClose: () => void }) {
  const text = useConsoleText();
  const [enabled, setEnabled] = useState(read.value.notifications_enabled);
  const [advanced, setAdvanced] = useState(read.value.advanced_notifications_enabled);
  const body = { notifications_enabled: enabled, advanced_notifications_enabled: advanced };
  const isChanged = enabled !== read.value.notifications_enabled || advanced !== read.value.advanced_notifications_enabled;
  return (
    <Dialog title={text("change_settings")} confirm={text("change")} request={{ method: "PATCH", path, body, ifMatch: read.etag }} blocked={isChanged ? null : text("nothing_changed")} onClose={onClose}>
      <p>{text("change_settings_text")}</p>
      <Check label={text("notifications_enabled")} value={enabled} onChange={setEnabled} />
      <Check label={text("advanced_enabled")} value={advanced} onChange={setAdvanced} />
    </Dialog>
  );
}

function HostsDialog({ read, path, onClose }: { read: WithEntityTag<Tenant>; path: string; onClose: () => void }) {
  const text = useConsoleText();
  const [hosts, setHosts] = useState(read.value.public_hosts.join("\n"));
  const public_hosts = hosts.split("\n").map((host) => host.trim()).filter(Boolean);
  return (
    <Dialog title={text("change_hosts")} confirm={text("change")} request={{ method: "PATCH", path, body: { public_hosts }, ifMatch: read.etag }} onClose={onClose}>
      <p>{text("change_hosts_text")}</p>
      <Field label={text("public_hosts")} hint={text("one_a_line")}>
        {(id) => <textarea id={id} rows={4} value={hosts} spellCheck={false} onChange={(event) => setHosts(event.target.value)} />}
      </Field>
    </Dialog>
  );
}

/** The form for the settings of the environment that is selected in the address. */
export function EnvironmentSettings() {
  const text = useConsoleText();
  const { workspace } = useConsole();
  const [search] = useAddress();
  const { workspace_id } = workspace;
  const releases = useList<Release>(apiPath("/v1/releases", {}, { workspace_id, limit: "200" }));
  const environments = [...new Set(releases.rows.map(({ environment }) => environment))].sort();
  const environment = search["environment"] || environments[0] || "dev";
  const path = apiPath("/v1/workspaces/{workspace_id}/environments/{environment}/settings", { workspace_id, environment });
  const read = useRead<Environment>(path, { refresh: true });
  const [isOpen, setOpen] = useState(false);
  const settings = read.data?.value;
  return (
    <>
      <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
        <FilterText name="environment" label={text("environment")} pattern={ENVIRONMENT_PATTERN} placeholder={environment} list={environments} />
      </form>
      {read.error && <Failed problem={read.error} onRetry={() => void read.refetch()} />}
      {!settings && !read.error && <Loading what={text("tab_environments")} />}
      {settings && (
        <Section title={text("settings_of", { name: environment })}>
          <Facts
            items={[
              [text("min_approvals"), settings.min_approvals],
              [text("allow_self_approval"), text(settings.allow_self_approval ? "yes" : "no")],
              [text("pin_documents"), text(settings.pin_documents ? "yes" : "no")],
            ]}
          />
        </Section>
      )}
      <div className="buttons">
        <Action label={text("change_environment")} operation="change_environment_settings" scope={{ kind: "workspace", ref: workspace_id }} blocked={settings ? null : text("checking")} onClick={() => setOpen(true)} />
      </div>
      <Commands items={[{ label: text("settings_of", { name: environment }), request: { method: "GET", path }, words: ["environments", "show", environment] }]} />
      {isOpen && read.data && <EnvironmentDialog read={read.data} path={path} onClose={() => setOpen(false)} />}
    </>
  );
}

function EnvironmentDialog({ read, path, onClose }: { read: WithEntityTag<Environment>; path: string; onClose: () => void }) {
  const text = useConsoleText();
  const { environment, ...settings } = read.value;
  const [count, setCount] = useState(String(settings.min_approvals));
  const [self, setSelf] = useState(settings.allow_self_approval);
  const [pin, setPin] = useState(settings.pin_documents);
  const fits = /^([1-9]|10)$/.test(count);
  const body = { min_approvals: Number(count), allow_self_approval: self, pin_documents: pin };
  return (
    <Dialog title={text("settings_of", { name: environment })} confirm={text("change")} request={{ method: "PUT", path, body, ifMatch: read.etag }} blocked={fits ? null : text("min_approvals_invalid")} onClose={onClose}>
      <p>{text("change_environment_text")}</p>
      <Field label={text("min_approvals")}>{(id) => <input id={id} inputMode="numeric" value={count} onChange={(event) => setCount(event.target.value.trim())} />}</Field>
      <Check label={text("allow_self_approval")} value={self} onChange={setSelf} />
      <Check label={text("pin_documents")} value={pin} onChange={setPin} />
    </Dialog>
  );
}
