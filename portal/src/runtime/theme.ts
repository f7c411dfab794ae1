import type { RuntimeWorkload } from "../api/types";

/** A colour in sRGB, with components from 0 to 255. */
export type Rgb = readonly [number, number, number];

/** Sets the theme's CSS variables on the root. `setProperty` prevents a value from adding further declarations. */
export function applyTheme(root: HTMLElement, workload: RuntimeWorkload | undefined): void {
  const theme = workload?.interface_config.theme;
  const variables = {
    "--svc-accent": theme?.accent_color,
    "--svc-bg": theme?.background_color,
    "--svc-font": theme?.font_family,
    "--svc-radius": theme?.border_radius,
  };
  for (const [name, value] of Object.entries(variables)) {
    if (value) root.style.setProperty(name, value);
  }
  applyContrast(root);
}

/** Chooses text colours that are readable on the theme's background and accent. */
export function applyContrast(root: HTMLElement): void {
  const [background] = resolveColors(root, ["var(--bg)"]);
  if (root.style.getPropertyValue("--svc-bg") || getComputedStyle(root).getPropertyValue("--svc-bg")) {
    if (background) root.dataset["scheme"] = luminance(background) > 0.18 ? "light" : "dark";
  }
  // Reads the accent after the scheme is set, because the scheme determines an accent that the theme does not set.
  const [accent] = resolveColors(root, ["var(--accent)"]);
  if (accent) root.style.setProperty("--accent-text", luminance(accent) > 0.18 ? "#000" : "#fff");
}

/** Updates the text colours when the browser switches between light and dark. Returns the function that stops this. */
export function followScheme(root: HTMLElement): () => void {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => applyContrast(root);
  apply();
  scheme.addEventListener("change", apply);
  return () => scheme.removeEventListener("change", apply);
}

/** Resolves CSS colour values, which may use variables, in the context of the root element. */
export function resolveColors(root: HTMLElement, values: readonly string[]): (Rgb | null)[] {
  const probe = document.createElement("span");
  root.append(probe);
  const colors = values.map((value) => {
    probe.style.backgroundColor = value;
    return toRgb(getComputedStyle(probe).backgroundColor);
  });
  probe.remove();
  return colors;
}

/** Converts any CSS colour to sRGB. A transparent colour is blended with white. */
function toRgb(color: string): Rgb | null {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.fillStyle = "#fff";
  context.fillRect(0, 0, 1, 1);
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  const [red = 0, green = 0, blue = 0] = context.getImageData(0, 0, 1, 1).data;
  return [red, green, blue];
}

/** The relative luminance of a colour (WCAG 2). At 0.18, black and white text have equal contrast with the colour. */
export function luminance(color: Rgb): number {
  const [red, green, blue] = color.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
