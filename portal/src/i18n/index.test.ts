import { expect, test } from "vitest";
import { de } from "./de";
import { en } from "./en";
import { preferredLanguage, translator } from "./index";

const placeholders = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();

test("both catalogues have the same keys and placeholders, and no empty text", () => {
  expect(Object.keys(de).sort()).toEqual(Object.keys(en).sort());
  for (const [key, text] of Object.entries(en)) {
    expect(placeholders(de[key as keyof typeof en]), key).toEqual(placeholders(text));
    expect(text && de[key as keyof typeof en], key).toBeTruthy();
  }
});

test("chooses the language of the address, then of the browser", () => {
  expect(preferredLanguage("?lang=de", ["en-GB"])).toBe("de");
  expect(preferredLanguage("", ["fr", "de-CH", "en"])).toBe("de");
  expect(preferredLanguage("?lang=../x", ["fr"])).toBe("en");
});

test("fills placeholders once", () => {
  expect(translator(en)("p_other", { message: "{message} {id}" })).toBe("The server refused this request: {message} {id}");
});
