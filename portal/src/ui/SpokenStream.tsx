import { useEffect, useState } from "react";
import { completeSentences } from "./sentences";

/** How long a finished text stays for screen readers that speak late, in milliseconds. */
const LINGER = 5_000;

interface Props {
  /** The text that has arrived. */
  value: string;
  /** Whether no more text follows. */
  isComplete?: boolean;
}

/** Reads a text aloud as it arrives: each addition is whole sentences, so that a screen reader speaks every word once. */
export function SpokenStream({ value, isComplete = false }: Props) {
  const [spoken, setSpoken] = useState<string[]>([]);
  const [isSilent, setIsSilent] = useState(false);
  useEffect(() => {
    setSpoken((before) => {
      const said = before.join("");
      // A fallback route starts the text again.
      if (!value.startsWith(said)) return isComplete ? [value] : [];
      const rest = value.slice(said.length);
      const ready = isComplete ? rest : completeSentences(rest);
      return ready === "" ? before : [...before, ready];
    });
  }, [value, isComplete]);
  useEffect(() => {
    setIsSilent(false);
    if (!isComplete) return;
    // The page shows the same text, which should be read once.
    const timer = setTimeout(() => setIsSilent(true), LINGER);
    return () => clearTimeout(timer);
  }, [isComplete]);
  return (
    <div className="visually-hidden" aria-live="polite" aria-relevant="additions" data-testid="spoken">
      {!isSilent &&
        spoken.map((addition, index) => (
          <p key={index} dir="auto">
            {addition}
          </p>
        ))}
    </div>
  );
}
