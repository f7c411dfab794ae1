/** Maximum length of markdown that is rendered, in characters; longer texts are shown as plain text. */
export const MAX_MARKDOWN = 200_000;
/** Maximum length of the markers and spaces before the text of a line, which bounds the nesting. */
const MAX_LINE_PREFIX = 100;

/** Whether a text nests so deep, or has so long a chain of markers, that rendering it could take very long. */
export function isTooDeep(text: string): boolean {
  return text.split("\n").some((line) => {
    const start = line.search(/[^\s>*+\-0-9.)[\]!_~`#|]/);
    return (start < 0 ? line.length : start) > MAX_LINE_PREFIX && !/^\s*[|:\-\s]+$/.test(line.slice(0, 2_000));
  });
}

/** A link that a page may show, and the target that it names; null for any other address. */
export function linkTarget(address: string): { href: string; shown: string } | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address) || /[\s\u0000-\u001f]/.test(address)) return null;
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return { href: url.href, shown: url.pathname };
  // A user name before the host hides where the link leads.
  return url.username || url.password ? null : { href: url.href, shown: url.host };
}

/** A node of a parsed text. */
interface Node {
  type: string;
  depth?: number;
  children?: Node[];
}

/** Puts headings below those of the page, and lets none skip a level, whichever levels the text uses. */
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
