/** Maximum length of rendered Markdown in characters. Longer texts are shown as plain text. */
export const MAX_MARKDOWN = 200_000;
/** Maximum length of the markers and spaces before the text of a line. The limit bounds the nesting depth. */
const MAX_LINE_PREFIX = 100;

/** Whether a text has so deep a nesting or so many consecutive markers that its rendering could be slow. */
export function isTooDeep(text: string): boolean {
  return text.split("\n").some((line) => {
    const start = line.search(/[^\s>*+\-0-9.)[\]!_~`#|]/);
    return (start < 0 ? line.length : start) > MAX_LINE_PREFIX && !/^\s*[|:\-\s]+$/.test(line.slice(0, 2_000));
  });
}

/** The address of a permitted link, and the target to show for it; null for any other address. */
export function linkTarget(address: string): { href: string; shown: string } | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address) || /[\s\u0000-\u001f]/.test(address)) return null;
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return { href: url.href, shown: url.pathname };
  // Refuses addresses with a user name, which could be mistaken for the host.
  return url.username || url.password ? null : { href: url.href, shown: url.host };
}

/** A node of a parsed Markdown text. */
interface Node {
  type: string;
  depth?: number;
  children?: Node[];
}

/** Changes heading levels so that they are below the headings of the page and skip no level. */
export function nestHeadings(tree: Node): void {
  const open: number[] = [];
  const visit = (node: Node) => {
    if (node.type === "heading" && node.depth !== undefined) {
      const { depth } = node;
      while ((open.at(-1) ?? 0) >= depth) open.pop();
      open.push(depth);
      node.depth = Math.min(2 + open.length, 6);
    }
    node.children?.forEach(visit);
  };
  visit(tree);
}
