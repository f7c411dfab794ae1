import type { ReactNode } from "react";

/** Replaces the Markdown parser of the form library, which writes HTML. Texts of forms contain no Markdown. */
export const Markdown = ({ children }: { children?: ReactNode }) => <>{children}</>;
