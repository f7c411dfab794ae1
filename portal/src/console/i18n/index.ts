import { createContext, useContext } from "react";
import type { Language } from "../../i18n";
import { en } from "./en";

export type ConsoleKey = keyof typeof en;
/** The console's texts of a language. A missing or extra text does not compile. */
export type ConsoleCatalogue = Record<ConsoleKey, string>;
export type ConsoleTranslate = (key: ConsoleKey, values?: Record<string, string | number>) => string;

export async function loadConsoleCatalogue(language: Language): Promise<ConsoleCatalogue> {
  return language === "de" ? (await import("./de")).de : en;
}

export const consoleTranslator =
  (catalogue: ConsoleCatalogue): ConsoleTranslate =>
  (key, values = {}) =>
    catalogue[key].replace(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder));

export const ConsoleTextContext = createContext<ConsoleTranslate>(consoleTranslator(en));
export const useConsoleText = (): ConsoleTranslate => useContext(ConsoleTextContext);

/** Translates a value of the API, such as a state; returns the value itself if it has no translation. */
export function useValueText(): (value: string) => string {
  const text = useConsoleText();
  return (value) => (Object.hasOwn(en, `v_${value}`) ? text(`v_${value}` as ConsoleKey) : value);
}
