import { createContext, useContext } from "react";
import { en } from "./en";

export type TextKey = keyof typeof en;
/** The texts of a language. A missing or extra text does not compile. */
export type Catalogue = Record<TextKey, string>;
/** Translates a text and fills its placeholders. */
export type Translate = (key: TextKey, values?: Record<string, string | number>) => string;

/** The languages with a complete catalogue. */
export const LANGUAGES = ["en", "de"] as const;
export type Language = (typeof LANGUAGES)[number];

/** The first supported language of `?lang=` or of the browser; English by default. */
export function preferredLanguage(search: string, offered: readonly string[]): Language {
  const wanted = [new URLSearchParams(search).get("lang") ?? "", ...offered];
  for (const tag of wanted) {
    const found = LANGUAGES.find((language) => tag.toLowerCase().split("-")[0] === language);
    if (found) return found;
  }
  return "en";
}

/** Loads the catalogue of a language. English is part of the first view; other languages are separate files. */
export async function loadCatalogue(language: Language): Promise<Catalogue> {
  return language === "de" ? (await import("./de")).de : en;
}

export function translator(catalogue: Catalogue): Translate {
  return (key, values = {}) =>
    catalogue[key].replace(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder));
}

export const TextContext = createContext<Translate>(translator(en));
export const useText = (): Translate => useContext(TextContext);

/** Converts a string to a text key; null if no text with this key exists. */
export function knownKey(key: string): TextKey | null {
  return Object.hasOwn(en, key) ? (key as TextKey) : null;
}
