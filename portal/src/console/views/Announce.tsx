import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole } from "../core/console";
import { ROLES, type Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";

/** The form that sends an announcement to all inboxes, to the holders of roles, or to a workspace. */
export function Announce() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { session, workspace } = useConsole();
  const [title, setTitle] = useState("");
  const [body, setBody] = useState("");
  const [roles, setRoles] = useState<readonly string[]>([]);
  const [isHere, setHere] = useState(true);
  const [isOpen, setOpen] = useState(false);
  const [announcement, setAnnouncement] = useState<Schemas["Announcement"] | null>(null);
  const audience = { ...(roles.length > 0 ? { roles } : {}), ...(isHere ? { workspaces: [workspace.workspace_id] } : {}) };
  const path = apiPath("/v1/notifications/announcements", {});
  const request = { method: "POST" as const, path, body: { title: title.trim(), body: body.trim(), audience } };
  const blocked = title.trim() && body.trim() ? null : text("announcement_needed");
  const words = ["notifications", "announce", title.trim() || "TITLE", body.trim() || "BODY", ...roles.flatMap((role) => ["--role", role])];
  return (
    <>
      <p>{text("announce_text")}</p>
      {announcement && (
        <p className="notice notice-good" role="status" data-testid="announced">
          {text("announced", { title: announcement.title })}
        </p>
      )}
      <div className="stack">
        <Field label={text("title")}>{(id) => <input id={id} maxLength={200} value={title} onChange={(event) => setTitle(event.target.value)} />}</Field>
        <Field label={text("message")}>{(id) => <textarea id={id} rows={4} maxLength={4_000} value={body} onChange={(event) => setBody(event.target.value)} />}</Field>
        <Field label={text("only_workspace", { name: workspace.name })}>{(id) => <input id={id} type="checkbox" checked={isHere} onChange={(event) => setHere(event.target.checked)} />}</Field>
        <fieldset className="field-row">
          <legend>{text("only_roles")}</legend>
          <div className="filters">
            {ROLES.map((role) => (
              <Field key={role} label={valueText(role)}>
                {(id) => <input id={id} type="checkbox" checked={roles.includes(role)} onChange={(event) => setRoles(event.target.checked ? [...roles, role] : roles.filter((one) => one !== role))} />}
              </Field>
            ))}
          </div>
        </fieldset>
      </div>
      <div className="buttons">
        <Action label={text("announce")} tone="primary" operation="make_announcement" scope={{ kind: "tenant", ref: session.tenant_id }} blocked={blocked} onClick={() => setOpen(true)} />
      </div>
      <Commands items={[{ label: text("announce"), request, words }]} />
      {isOpen && (
        <Dialog
          title={text("announce")}
          confirm={text("announce")}
          request={request}
          onClose={() => setOpen(false)}
          onDone={(answer) => {
            setAnnouncement(answer as Schemas["Announcement"]);
            setTitle("");
            setBody("");
          }}
        >
          <p>{text("announce_audience", { roles: roles.map(valueText).join(", ") || text("all"), workspace: isHere ? workspace.name : text("all") })}</p>
          <blockquote dir="auto">
            <strong>{title}</strong>
            <br />
            {body}
          </blockquote>
        </Dialog>
      )}
    </>
  );
}
