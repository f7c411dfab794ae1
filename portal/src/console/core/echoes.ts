/**
 * Tells the texts that an editor reported from texts that come from elsewhere.
 *
 * A page renders a reported text later than the editor takes the next key. An editor that compared the rendered text with
 * its own would then put the older one back, and the key would be lost.
 */
export class Echoes {
  private reported: string[] = [];

  /** Notes that the editor reported a text. */
  report(text: string) {
    this.reported.push(text);
  }

  /** Whether a rendered text is one that the editor reported. The page may leave out texts in between. */
  isEcho(text: string): boolean {
    const place = this.reported.lastIndexOf(text);
    this.reported = place < 0 ? [] : this.reported.slice(place + 1);
    return place >= 0;
  }
}
