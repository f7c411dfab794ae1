import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useRead, type WithEntityTag } from "../core/console";
import { ROLES, type Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Empty, Loading, Tag } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { Table } from "../ui/Table";
import { Advanced } from "./NotificationProfile";
import { CATEGORIES, CHANNELS } from "./preferences";

type Default = Schemas["DefaultPreference"];
const PATH = apiPath("/v1/notifications/default-profiles", {});

/** The notification preferences that apply to holders of a role by default. */
export function Defaults() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { session } = useConsole();
  const read = useRead<Default[]>(PATH);
  const [isOpen, setOpen] = useState(false);
  if (read.error) return <Advanced problem={read.error} />;
  if (!read.data) return <Loading what={text("tab_defaults")} />;
  return (
    <>
      <p>{text("defaults_text")}</p>
      <div className="buttons">
        <Action label={text("change_default")} operation="change_default_profiles" scope={{ kind: "tenant", ref: session.tenant_id }} onClick={() => setOpen(true)} />
      </div>
      <Table
        label={text("tab_defaults")}
        rows={read.data.value}
        keyOf={(one) => `${one.profile_ref} ${one.category} ${one.channel}`}
        empty={<Empty>{text("defaults_empty")}</Empty>}
        columns={[
          { name: text("role"), render: (one) => valueText(one.profile_ref) },
          { name: text("category"), render: (one) => valueText(one.category) },
          { name: text("channel"), render: (one) => valueText(one.channel) },
          { name: text("state"), render: (one) => <Tag value={one.enabled ? "on" : "off"} /> },
        ]}
      />
      <Commands items={[{ label: text("tab_defaults"), request: { method: "GET", path: PATH } }]} />
      {isOpen && <DefaultDialog read={read.data} onClose={() => setOpen(false)} />}
    </>
  );
}

function DefaultDialog({ read, onClose }: { read: WithEntityTag<Default[]>; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [profile, setProfile] = useState<Default>({ profile_ref: "viewer", category: "executions", channel: "email", enabled: true });
  const choice = <K extends keyof Default>(key: K, label: string, options: readonly (Default[K] & string)[]) => (
    <Field label={label}>
      {(id) => (
        <select id={id} value={String(profile[key])} onChange={(event) => setProfile({ ...profile, [key]: event.target.value })}>
          {options.map((option) => (
            <option key={option} value={option}>
              {valueText(option)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
  return (
    <Dialog title={text("change_default")} confirm={text("change")} request={{ method: "PUT", path: PATH, body: [profile], ifMatch: read.etag }} onClose={onClose}>
      <p>{text("change_default_text")}</p>
      {choice("profile_ref", text("role"), ROLES)}
      {choice("category", text("category"), CATEGORIES)}
      {choice("channel", text("channel"), CHANNELS)}
      <Field label={text("default_on")}>{(id) => <input id={id} type="checkbox" checked={profile.enabled} onChange={(event) => setProfile({ ...profile, enabled: event.target.checked })} />}</Field>
    </Dialog>
  );
}
