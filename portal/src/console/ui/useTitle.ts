import { useEffect } from "react";

/** The title of the document, from the view's heading. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Fairway`;
  }, [title]);
}
