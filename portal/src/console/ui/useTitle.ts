import { useEffect } from "react";

/** Sets the title of the document to the heading of the view. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Fairway`;
  }, [title]);
}
