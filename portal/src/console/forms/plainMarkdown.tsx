import type { ReactNode } from "react";

/** Stands for the Markdown parser of the form library: no text of a form is Markdown, and that parser writes HTML. */
export const Markdown = ({ children }: { children?: ReactNode }) => <>{children}</>;
