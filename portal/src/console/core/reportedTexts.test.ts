import { describe, expect, it } from "vitest";
import { ReportedTexts } from "./reportedTexts";

describe("echoes of an editor", () => {
  it("keeps newer keys when the page renders an older text", () => {
    const echoes = new ReportedTexts();
    for (const text of ["", "k", "ke", "key"]) echoes.report(text);
    expect(echoes.isEcho("")).toBe(true);
    expect(echoes.isEcho("ke"), "a page may leave out a text").toBe(true);
    expect(echoes.isEcho("key")).toBe(true);
  });

  it("takes a text from elsewhere, and the same text again later", () => {
    const echoes = new ReportedTexts();
    echoes.report("mine");
    expect(echoes.isEcho("another version")).toBe(false);
    expect(echoes.isEcho("mine"), "it was replaced").toBe(false);
  });
});
