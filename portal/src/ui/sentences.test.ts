import { expect, test } from "vitest";
import { completeSentences } from "./sentences";

test("a sentence is complete with the space behind it", () => {
  expect(completeSentences("It costs 3.")).toBe("");
  expect(completeSentences("It costs 3.50 euros. And")).toBe("It costs 3.50 euros. ");
  expect(completeSentences("One! Two? Three")).toBe("One! Two? ");
});

test("a line is complete without a full stop", () => {
  expect(completeSentences("# Title\n- item")).toBe("# Title\n");
  expect(completeSentences("一つ。二")).toBe("一つ。");
});
