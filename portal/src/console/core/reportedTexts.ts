/**
 * Distinguishes texts that an editor reported from texts of another source, such as another version.
 *
 * The page renders a reported text after a delay, in which the editor may receive further keys. Without this
 * distinction the editor would treat the rendered older text as a new one, and replace its newer text.
 */
export class ReportedTexts {
  private reported: string[] = [];

  /** Records that the editor reported a text. */
  report(text: string) {
    this.reported.push(text);
  }

  /** Whether the editor reported this rendered text. The page need not render every reported text. */
  isEcho(text: string): boolean {
    const index = this.reported.lastIndexOf(text);
    this.reported = index < 0 ? [] : this.reported.slice(index + 1);
    return index >= 0;
  }
}
