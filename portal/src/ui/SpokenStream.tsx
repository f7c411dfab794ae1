import { useEffect, useState } from "react";
import { completeSentences } from "./sentences";

/** Time that a complete text stays in the document for slow screen readers, in milliseconds. */
const LINGER = 5_000;

interface Props {
  /** The text that has arrived so far. */
  value: string;
  /** Whether the text is complete. */
  isComplete?: boolean;
}

/** Announces streamed text to screen readers in whole sentences, so that each word is spoken exactly once. */
export function SpokenStream({ value, isComplete = false }: Props) {
  const [spoken, setSpoken] = useState<string[]>([]);
  const [isSilent, setIsSilent] = useState(false);
  useEffect(() => {
    setSpoken((before) => {
      const spokenText = before.join("");
      // The text restarts from the beginning after a fallback to another route.
      if (!value.startsWith(spokenText)) return isComplete ? [value] : [];
      const unspokenText = value.slice(spokenText.length);
      const ready = isComplete ? unspokenText : completeSentences(unspokenText);
      return ready === "" ? before : [...before, ready];
    });
  }, [value, isComplete]);
  useEffect(() => {
    setIsSilent(false);
    if (!isComplete) return;
    // Removes the announced text, because the page also shows it and a screen reader should read it only once.
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
