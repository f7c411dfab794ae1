import { useState } from "react";
import { useText } from "../i18n";

/** Copies a text to the clipboard. */
export function CopyButton({ value }: { value: string }) {
  const text = useText();
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(value);
      setCopied(true);
      setTimeout(() => setCopied(false), 2_000);
    } catch {
      // Ignores a missing clipboard permission in frames, because the reader can select the text instead.
    }
  };
  return (
    <button type="button" className="secondary" onClick={() => void copy()}>
      <span aria-live="polite">{text(copied ? "copied" : "copy")}</span>
    </button>
  );
}
