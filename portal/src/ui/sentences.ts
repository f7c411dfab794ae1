/** The part of a text up to the end of its last complete sentence or line. */
export function completeSentences(text: string): string {
  let end = 0;
  for (const match of text.matchAll(/[.!?…؟]\s|[。！？\n]/g)) end = match.index + match[0].length;
  return text.slice(0, end);
}
