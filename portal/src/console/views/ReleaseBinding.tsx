import { useState } from "react";
import { apiPath } from "../../api/paths";
import { useConsole, useList } from "../core/console";
import type { Asset, AssetVersion, ReleaseDetail, Schemas } from "../core/types";
import { useConsoleText, useValueText } from "../i18n";
import { Dialog } from "../ui/Dialog";
import { Field } from "../ui/Filters";

interface Props {
  release: ReleaseDetail;
  onClose: () => void;
  onDone: () => void;
}

/** The dialog that binds a version to a draft: select an asset, then its version. */
export function BindDialog({ release, onClose, onDone }: Props) {
  const text = useConsoleText();
  const valueText = useValueText();
  const { workspace } = useConsole();
  const workspace_id = workspace.workspace_id;
  const [asset, setAsset] = useState("");
  const [version, setVersion] = useState("");
  const assets = useList<Asset>(apiPath("/v1/assets", {}, { workspace_id, lifecycle_state: "active", limit: "200" }));
  const drafts = useList<Asset>(apiPath("/v1/assets", {}, { workspace_id, lifecycle_state: "draft", limit: "200" }));
  const versions = useList<AssetVersion>(asset ? apiPath("/v1/assets/{asset_id}/versions", { asset_id: asset }, { workspace_id, limit: "200" }) : null);
  const offered = [...assets.rows, ...drafts.rows];
  const chosen = offered.find(({ asset_id: id }) => id === asset);
  const body = { role: (chosen?.asset_kind ?? "prompt_template") as Schemas["NewBinding"]["role"], asset_version_id: version };
  const release_id = release.release_id;
  return (
    <Dialog
      title={text("bind")}
      confirm={text("bind")}
      request={{ method: "POST", path: apiPath("/v1/releases/{release_id}/bindings", { release_id }), body }}
      blocked={version ? null : text("choose_version")}
      onClose={onClose}
      onDone={onDone}
    >
      <p>{text("bind_text")}</p>
      <Field label={text("asset")}>
        {(id) => (
          <select
            id={id}
            value={asset}
            onChange={(event) => {
              setAsset(event.target.value);
              setVersion("");
            }}
          >
            <option value="">{text("choose")}</option>
            {offered.map((one) => (
              <option key={one.asset_id} value={one.asset_id}>
                {valueText(one.asset_kind)}: {one.slug}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label={text("version")}>
        {(id) => (
          <select id={id} value={version} disabled={!asset} onChange={(event) => setVersion(event.target.value)}>
            <option value="">{text("choose")}</option>
            {(asset ? versions.rows : []).map((one) => (
              <option key={one.asset_version_id} value={one.asset_version_id}>
                {one.version_label} {one.change_note ?? ""}
              </option>
            ))}
          </select>
        )}
      </Field>
    </Dialog>
  );
}

export function UnbindDialog({ release, binding, name, onClose, onDone }: Props & { binding: string; name: string }) {
  const text = useConsoleText();
  const path = apiPath("/v1/releases/{release_id}/bindings/{binding_id}", { release_id: release.release_id, binding_id: binding });
  return (
    <Dialog title={text("unbind", { name })} confirm={text("unbind", { name })} danger request={{ method: "DELETE", path }} onClose={onClose} onDone={onDone}>
      <p>{text("unbind_text")}</p>
    </Dialog>
  );
}

/** The dialog that drafts a release of a workload. */
export function NewReleaseDialog({ workload, onClose, onDone }: { workload: string; onClose: () => void; onDone: (answer: unknown) => void }) {
  const text = useConsoleText();
  const valueText = useValueText();
  const [environment, setEnvironment] = useState("dev");
  const [lane, setLane] = useState<"all" | "restricted" | "guided" | "standard">("all");
  const fits = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(environment);
  return (
    <Dialog
      title={text("new_release")}
      confirm={text("new_release")}
      request={{ method: "POST", path: apiPath("/v1/releases", {}), body: { workload_id: workload, environment, target_lane: lane } }}
      blocked={fits ? null : text("environment_invalid")}
      onClose={onClose}
      onDone={onDone}
    >
      <p>{text("new_release_text")}</p>
      <Field label={text("environment")}>{(id) => <input id={id} value={environment} onChange={(event) => setEnvironment(event.target.value.trim())} />}</Field>
      <Field label={text("lane")}>
        {(id) => (
          <select id={id} value={lane} onChange={(event) => setLane(event.target.value as typeof lane)}>
            {(["all", "restricted", "guided", "standard"] as const).map((one) => (
              <option key={one} value={one}>
                {valueText(one)}
              </option>
            ))}
          </select>
        )}
      </Field>
    </Dialog>
  );
}
