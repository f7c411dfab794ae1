import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { apiPath } from "../../api/paths";
import type { Problem } from "../../api/problem";
import { useConsole, useRead, type WithEntityTag } from "../core/console";
import type { Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Action, Commands, Facts, Failed, Loading } from "../ui/basics";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";
import { CATEGORIES } from "./preferences";

type Profile = Schemas["NotificationProfile"];
const RHYTHMS = ["off", "hourly", "daily"] as const;
const PATH = apiPath("/v1/notifications/profile", {});

/** The caller's settings for notifications outside the inbox: digests, time zone, and the caller's chat. */
export function NotificationProfile() {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const read = useRead<Profile>(PATH);
  const [isOpen, setOpen] = useState(false);
  if (read.error) return <Advanced problem={read.error} />;
  if (!read.data) return <Loading what={text("tab_profile")} />;
  const { time_zone, digest, chat_secret_ref } = read.data.value;
  return (
    <>
      <p>{text("profile_text")}</p>
      <Facts
        items={[
          [text("time_zone"), time_zone],
          [text("own_chat"), chat_secret_ref ?? "–"],
          ...CATEGORIES.map((category) => [valueText(category), text(`digest_${rhythmOf(digest?.[category])}`)] as const),
        ]}
      />
      <div className="buttons">
        <Action label={text("change_profile")} operation="change_notification_profile" scope={{ kind: "workspace", ref: workspace.workspace_id }} onClick={() => setOpen(true)} />
      </div>
      <Commands items={[{ label: text("tab_profile"), request: { method: "GET", path: PATH } }]} />
      {isOpen && <ProfileDialog read={read.data} onClose={() => setOpen(false)} />}
    </>
  );
}

const rhythmOf = (value: string | undefined) => RHYTHMS.find((one) => one === value) ?? "off";

/** A refusal, with a link to the setting that causes it. */
export function Advanced({ problem }: { problem: Problem }) {
  const text = useConsoleText();
  return (
    <>
      <Failed problem={problem} />
      {problem.code === "enterprise_capability_required" && (
        <p>
          {text("advanced_needed")}{" "}
          <Link to="/access" search={{ tab: "settings" } as never}>
            {text("tab_settings")}
          </Link>
        </p>
      )}
    </>
  );
}

function ProfileDialog({ read, onClose }: { read: WithEntityTag<Profile>; onClose: () => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [zone, setZone] = useState(read.value.time_zone);
  const [chat, setChat] = useState(read.value.chat_secret_ref ?? "");
  const [digest, setDigest] = useState<Record<string, string>>(read.value.digest ?? {});
  const body = { time_zone: zone.trim(), digest, chat_secret_ref: chat.trim() || null };
  return (
    <Dialog title={text("change_profile")} confirm={text("change")} request={{ method: "PUT", path: PATH, body, ifMatch: read.etag }} blocked={zone.trim() ? null : text("time_zone_needed")} onClose={onClose}>
      <Field label={text("time_zone")} hint={text("time_zone_hint")}>
        {(id) => (
          <>
            <input id={id} value={zone} list={`${id}-zones`} autoComplete="off" onChange={(event) => setZone(event.target.value)} />
            <datalist id={`${id}-zones`}>
              {["UTC", "Europe/Berlin", "Europe/London", "America/New_York", "Asia/Tokyo"].map((name) => (
                <option key={name} value={name} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      {CATEGORIES.map((category) => (
        <Field key={category} label={valueText(category)}>
          {(id) => (
            <select id={id} value={rhythmOf(digest[category])} onChange={(event) => setDigest({ ...digest, [category]: event.target.value })}>
              {RHYTHMS.map((one) => (
                <option key={one} value={one}>
                  {text(`digest_${one}`)}
                </option>
              ))}
            </select>
          )}
        </Field>
      ))}
      <Field label={text("own_chat")} hint={text("secret_hint")}>
        {(id) => <input id={id} value={chat} placeholder="env:CHAT_HOOK" autoComplete="off" onChange={(event) => setChat(event.target.value)} />}
      </Field>
    </Dialog>
  );
}
