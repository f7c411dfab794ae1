export interface Entry {
  label: string;
  to: string;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
export const MAX_ENTRIES = 12;

/** The entries that match a typed text, each of whose words must occur. An identifier matches a run and a release. */
export function entriesOf(typed: string, views: readonly Entry[], resources: readonly Entry[], names: { run: string; release: string }): Entry[] {
  const query = typed.trim().toLowerCase();
  if (UUID.test(query)) {
    return [
      { label: `${names.run} ${query}`, to: `/runs/${query}` },
      { label: `${names.release} ${query}`, to: `/releases/${query}` },
    ];
  }
  const words = query.split(/\s+/).filter(Boolean);
  const fits = ({ label }: Entry) => words.every((word) => label.toLowerCase().includes(word));
  return [...views, ...resources].filter(fits).slice(0, MAX_ENTRIES);
}
