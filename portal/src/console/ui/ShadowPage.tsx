import { useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { createPortal } from "react-dom";

/** A part of the page with separate style sheets, in a shadow root that isolates it from the styles of the console. */
export function ShadowPage({ css, children }: { css: string; children: ReactNode }) {
  const host = useRef<HTMLDivElement>(null);
  const [root, setRoot] = useState<ShadowRoot | null>(null);
  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    shadow.adoptedStyleSheets = [sheet];
    setRoot(shadow);
  }, [css]);
  return (
    <div ref={host} className="shadow-page">
      {root && createPortal(children, root)}
    </div>
  );
}
