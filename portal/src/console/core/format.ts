/** Formats a duration in milliseconds for people. */
export const duration = (ms: number | null | undefined): string => (ms === null || ms === undefined ? "–" : ms < 1_000 ? `${ms}\u00a0ms` : `${(ms / 1_000).toFixed(1)}\u00a0s`);

/** Formats a cost in millionths of the currency in which the model's prices are configured. */
export const cost = (micros: number | null | undefined): string => (micros === null || micros === undefined ? "–" : (micros / 1_000_000).toFixed(4));

let formatter: { language: string; format: Intl.DateTimeFormat } | null = null;

/** Formats a time in the language of the page. The formatter is cached, because its creation is slow. */
export function timeText(value: string): string {
  const { lang } = document.documentElement;
  if (formatter?.language !== lang) formatter = { language: lang, format: new Intl.DateTimeFormat(lang || undefined, { dateStyle: "medium", timeStyle: "medium" }) };
  const time = Date.parse(value);
  return Number.isNaN(time) ? value : formatter.format.format(time);
}
