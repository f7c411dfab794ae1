import { useState } from "react";
import type { Client } from "../api/client";
import type { Session } from "../api/types";
import { useText } from "../i18n";
import { ACTOR_PATTERN, storedActor, type PageInfo } from "../session/pageAttributes";

interface Props {
  page: PageInfo;
  client: Client;
  session: Session | null;
  onActAs: (actor: string) => void;
}

/** The bar above a page: a link to the gallery, and the caller's identity. Pages of share links show neither. */
export function Header({ page, client, session, onActAs }: Props) {
  const text = useText();
  const [actor, setActor] = useState(storedActor() ?? "");
  const { identity } = client;
  if (identity.kind === "link") return null;
  const signOut = async () => {
    try {
      location.assign(await client.signOut());
    } catch {
      // After a failed sign-out, the reload shows whether the session has ended.
      location.reload();
    }
  };
  const returnTo = encodeURIComponent(location.pathname + location.search);
  return (
    <header className="bar">
      {page.kind === "gallery" ? <span className="brand">Fairway</span> : <a href="/workload-runtime">{text("to_gallery")}</a>}
      {identity.kind === "local" && (
        <form
          className="act-as"
          onSubmit={(event) => {
            event.preventDefault();
            onActAs(actor.trim());
          }}
        >
          <label htmlFor="act-as">{text("act_as")}</label>
          <input
            id="act-as"
            list="actors"
            placeholder="user:local"
            autoComplete="off"
            spellCheck={false}
            pattern={ACTOR_PATTERN}
            value={actor}
            title={text("act_as_help")}
            onChange={(event) => setActor(event.target.value)}
          />
          <datalist id="actors">
            <option value="user:local" />
            <option value="user:demo-author" />
            <option value="user:demo-approver" />
            <option value="anonymous" />
          </datalist>
          <button type="submit" className="secondary">
            {text("act_as_apply")}
          </button>
        </form>
      )}
      {identity.kind === "session" && session && (
        <div className="act-as">
          <span>{text("signed_in_as", { name: session.display_name })}</span>
          <button type="button" className="secondary" onClick={() => void signOut()}>
            {text("sign_out")}
          </button>
        </div>
      )}
      {identity.kind === "session" && !session && <a href={`/sign-in?return_to=${returnTo}`}>{text("sign_in")}</a>}
    </header>
  );
}
