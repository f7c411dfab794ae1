export interface Entry {
  label: string;
  to: string;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
export const MAX_ENTRIES = 12;

/** The entries that fit a typed text: each of its words must occur. An identifier leads to a run or a release. */
export function entriesOf(typed: string, views: readonly Entry[], resources: readonly Entry[], names: { run: string; release: string }): Entry[] {
  const wanted = typed.trim().toLowerCase();
  if (UUID.test(wanted)) {
    return [
      { label: `${names.run} ${wanted}`, to: `/runs/${wanted}` },
      { label: `${names.release} ${wanted}`, to: `/releases/${wanted}` },
    ];
  }
  const words = wanted.split(/\s+/).filter(Boolean);
  const fits = ({ label }: Entry) => words.every((word) => label.toLowerCase().includes(word));
  return [...views, ...resources].filter(fits).slice(0, MAX_ENTRIES);
}
