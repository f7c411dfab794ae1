import { Suspense, useEffect, useMemo, useRef, useState } from "react";
import { Client } from "../../api/client";
import { Problem } from "../../api/problem";
import type { RuntimeWorkload } from "../../api/types";
import ChatPage from "../../chat/ChatPage";
import { FormPage } from "../../runtime/FormPage";
import { applyContrast, luminance, resolveColors } from "../../runtime/theme";
import chatCss from "../../styles/chat.css?inline";
import runtimeCss from "../../styles/runtime.css?inline";
import { contrastOf, previewTheme } from "../core/theme";
import type { Schemas, Workload } from "../core/types";
import { useConsoleText } from "../i18n";
import { Loading } from "../ui/basics";
import { ShadowPage } from "../ui/ShadowPage";

/** A client that sends no requests, because a preview must not start runs. */
class PreviewClient extends Client {
  constructor() {
    super({ kind: "session", csrf: null });
  }

  override get cacheKey(): string {
    return "preview";
  }

  override send(): Promise<Response> {
    return Promise.reject(new Problem(409, "preview", "this is a preview, which runs nothing"));
  }
}

/** Minimum contrast of text and of the accent colour against the background (WCAG 2, level AA). */
const [TEXT_CONTRAST, ACCENT_CONTRAST] = [4.5, 3];

/** Previews the runtime page of an unsaved interface, with the components and styles of the real page. */
export default function InterfacePreview({ workload, config }: { workload: Workload; config: Schemas["InterfaceConfig"] }) {
  const text = useConsoleText();
  const root = useRef<HTMLDivElement>(null);
  const client = useMemo(() => new PreviewClient(), []);
  const [warnings, setWarnings] = useState<string[]>([]);
  const previewWorkload = useMemo(
    () => ({ workload_id: workload.workload_id, slug: workload.slug, name: workload.name || workload.slug, environments: ["preview"], interface_config: config }) as unknown as RuntimeWorkload,
    [workload, config],
  );
  // A change of mode or fields resets the preview, because the page stores the values of its fields as state.
  const key = JSON.stringify([config.presentation_mode, config.input_fields]);
  useEffect(() => {
    const draw = () => {
      const element = root.current;
      if (!element) return;
      previewTheme(element, config.theme);
      applyContrast(element);
      const [background, accent, textColor] = resolveColors(element, ["var(--bg)", "var(--accent)", "var(--text)"]);
      if (!background || !accent || !textColor) return;
      const contrasts = [
        [text("contrast_text"), contrastOf(luminance(textColor), luminance(background)), TEXT_CONTRAST] as const,
        [text("contrast_accent"), contrastOf(luminance(accent), luminance(background)), ACCENT_CONTRAST] as const,
      ];
      setWarnings(contrasts.filter(([, has, needs]) => has < needs).map(([what, has, needs]) => text("contrast_low", { what, has: has.toFixed(2), needs })));
    };
    const timer = setTimeout(draw);
    // Draws again when the colour scheme changes, because colours that the theme does not set depend on the scheme.
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      clearTimeout(timer);
      scheme.removeEventListener("change", draw);
    };
  }, [config.theme, key, text]);
  return (
    <>
      <div role="status" data-testid="contrast">
        {warnings.map((warning) => (
          <p key={warning} className="notice notice-wait">
            {warning}
          </p>
        ))}
      </div>
      <ShadowPage css={`${runtimeCss}\n${chatCss}\n.svc-root { min-block-size: 0; }`}>
        <div ref={root} className="svc-root" data-testid="preview">
          <div className="workload" role="group" aria-label={text("preview")}>
            <h3 dir="auto">{previewWorkload.name}</h3>
            {config.description && (
              <p className="lead" dir="auto">
                {config.description}
              </p>
            )}
            <Suspense fallback={<Loading />}>
              {config.presentation_mode === "chat" ? (
                <ChatPage key={key} client={client} workload={previewWorkload} environment="preview" isGuest channel={null} host={null} />
              ) : (
                <FormPage key={key} client={client} workload={previewWorkload} environment="preview" isGuest channel={null} host={null} />
              )}
            </Suspense>
          </div>
        </div>
      </ShadowPage>
    </>
  );
}
