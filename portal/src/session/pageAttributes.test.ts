import { expect, test } from "vitest";
import { ACTOR_PATTERN } from "./pageAttributes";

test("accepts the actors of the server only", () => {
  // Browsers compile the attribute `pattern` with the flag `v`.
  const pattern = new RegExp(`^(?:${ACTOR_PATTERN})$`, "v");
  for (const actor of ["user:ada", "service:desk-1", "anonymous", "user:a.b+c@d"]) expect(pattern.test(actor), actor).toBe(true);
  for (const actor of ["ada", "user:", "group:x", "user:日", "user:a\nX-Y: z", "share_link:x", "user:Ada"]) {
    expect(pattern.test(actor), actor).toBe(false);
  }
});
