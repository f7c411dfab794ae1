import { expect, test } from "vitest";
import { isAllowedOrigin } from "./embed";
import { luminance } from "./theme";

const OWN = "https://fairway.example";

test("accepts listed ancestors only", () => {
  const allowed = ["'self'", "https://portal.example", "https://*.team.example:8443", "http://127.0.0.1:3000"];
  for (const origin of [OWN, "https://portal.example", "https://a.team.example:8443", "http://127.0.0.1:3000"]) {
    expect(isAllowedOrigin(origin, allowed, OWN), origin).toBe(true);
  }
  for (const origin of [
    "http://portal.example",
    "https://portal.example:444",
    "https://portal.example.evil.example",
    "https://evil.example/https://portal.example",
    "https://team.example:8443",
    "https://ateam.example:8443",
    "https://a.team.example",
    "http://127.0.0.1:3001",
    "null",
    "",
  ]) {
    expect(isAllowedOrigin(origin, allowed, OWN), origin).toBe(false);
  }
  expect(isAllowedOrigin(OWN, ["'none'"], OWN)).toBe(false);
});

test("black and white contrast equally at the threshold", () => {
  expect(luminance([255, 255, 255])).toBeCloseTo(1);
  expect(luminance([0, 0, 0])).toBe(0);
  const grey = 0.1791;
  expect((1 + 0.05) / (grey + 0.05)).toBeCloseTo((grey + 0.05) / 0.05, 1);
});
