import { useState } from "react";
import type { Client } from "../../api/client";
import type { Session } from "../../api/types";
import { useText } from "../../i18n";
import { ACTOR_PATTERN, storedActor } from "../../session/pageAttributes";

/** Shows the identity that the console acts as, and its sign-out or (in local mode) its selection. */
export function Identity({ client, session, onActAs }: { client: Client; session: Session | null; onActAs: (actor: string) => void }) {
  const text = useText();
  const [actor, setActor] = useState(storedActor() ?? "");
  if (client.identity.kind === "local") {
    return (
      <form
        className="inline-field act-as"
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
          title={text("act_as_help")}
          value={actor}
          onChange={(event) => setActor(event.target.value)}
        />
        <datalist id="actors">
          {["user:local", "user:demo-author", "user:demo-approver"].map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <button type="submit" className="plain">
          {text("act_as_apply")}
        </button>
      </form>
    );
  }
  const signOut = async () => {
    try {
      location.assign(await client.signOut());
    } catch {
      // After a failed sign-out, the reload shows whether the session has ended.
      location.reload();
    }
  };
  return (
    <div className="inline-field act-as">
      <span>{text("signed_in_as", { name: session?.display_name ?? "–" })}</span>
      <button type="button" className="plain" onClick={() => void signOut()}>
        {text("sign_out")}
      </button>
    </div>
  );
}
