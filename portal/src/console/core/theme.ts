import type { Schemas } from "./types";

type Theme = Schemas["Theme"];

/** The parts of a theme, each with its CSS variable and the CSS property whose values are valid for it. */
export const THEME_PARTS = [
  { name: "accent_color", variable: "--svc-accent", property: "color" },
  { name: "background_color", variable: "--svc-bg", property: "color" },
  { name: "font_family", variable: "--svc-font", property: "font-family" },
  { name: "border_radius", variable: "--svc-radius", property: "border-radius" },
] as const satisfies readonly { name: keyof Theme; variable: string; property: string }[];

/** Sets a theme by CSSOM. Ignores values that are invalid for their CSS property, which the server would refuse. */
export function previewTheme(root: HTMLElement, theme: Theme | undefined, supports: (property: string, value: string) => boolean = CSS.supports.bind(CSS)): void {
  for (const { name, variable, property } of THEME_PARTS) {
    const value = theme?.[name];
    if (value && supports(property, value)) root.style.setProperty(variable, value);
    else root.style.removeProperty(variable);
  }
  delete root.dataset["scheme"];
}

/** The contrast ratio of two relative luminances (WCAG 2). */
export function contrastOf(left: number, right: number): number {
  const [dark, light] = [Math.min(left, right), Math.max(left, right)];
  return (light + 0.05) / (dark + 0.05);
}
