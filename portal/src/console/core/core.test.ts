import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { filtersOf, parseSearch, sinceOf, stringifySearch } from "./address";
import { blake3 } from "./blake3";
import { canonical, checksumOf, digestText } from "./canonical";
import { curlText, fairwayText, quote } from "./commands";
import { changedTexts, diffLines, diffWords, sortedJson } from "./diff";
import { isIncluded } from "./merkle";
import type { ReleaseDetail } from "./types";

test("hashes as BLAKE3 does, up to several chunks", () => {
  expect(blake3("")).toBe("blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  expect(blake3("abc")).toBe("blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
  // The content spans several BLAKE3 chunks. The expected checksum is that of the server.
  expect(checksumOf({ variables: [{ name: "message" }], system_prompt: `${"é".repeat(1_700)} $arg:message` })).toBe(
    "blake3:a1daad9d86ed6b3bf4a1ebfabb42fe5b0daf9963ab4b5499d238de6e733aac14",
  );
});

test("writes the canonical form of JSON", () => {
  expect(canonical({ b: [1, 1.5, "é\n"], a: { z: null, y: true }, "\u20ac": 1e21 })).toBe('{"a":{"y":true,"z":null},"b":[1,1.5,"é\\n"],"€":1e+21}');
  expect(checksumOf({ a: 1 })).toBe(checksumOf({ a: 1.0 }));
});

test("the digest covers target, policy bundle, bindings and references", () => {
  const release = {
    workload_id: "w", environment: "dev", target_lane: "all", policy_bundle_id: "p",
    bindings: [{ role: "skill", asset_version_id: "v2" }, { role: "agent", asset_version_id: "v1" }],
    references: [{ from_asset_version_id: "v1", asset_slug: "s", pinned: false, version_label: "v9", asset_version_id: "v3" }],
  } as unknown as ReleaseDetail;
  const checksums = new Map([["v1", "blake3:1"], ["v2", "blake3:2"], ["v3", "blake3:3"]]);
  expect(digestText(release, checksums)).toBe(
    "fairway.release.v1\nw\ndev\nall\npolicy_bundle p\nagent v1 blake3:1\nreference v1 s * v3 blake3:3\nskill v2 blake3:2",
  );
  checksums.delete("v3");
  expect(digestText(release, checksums)).toBeNull();
});

test("compares prompts by words and loses nothing", () => {
  const [before, after] = ["Answer the question in short words.", "Answer this question in plain, short words."];
  const pieces = diffWords(before, after);
  expect(pieces.filter((piece) => piece.kind !== "added").map((piece) => piece.text).join("")).toBe(before);
  expect(pieces.filter((piece) => piece.kind !== "removed").map((piece) => piece.text).join("")).toBe(after);
  expect(diffWords("one two three", "four five six")).toEqual([{ kind: "removed", text: "one two three" }, { kind: "added", text: "four five six" }]);
  expect(pieces).toContainEqual({ kind: "removed", text: "the" });
  expect(pieces).toContainEqual({ kind: "added", text: "this" });
});

test("compares lines side by side", () => {
  expect(diffLines("a\nb\nc", "a\nx\nc\nd")).toEqual([
    { before: "a", after: "a", changed: false },
    { before: "b", after: "x", changed: true },
    { before: "c", after: "c", changed: false },
    { before: null, after: "d", changed: true },
  ]);
  expect(diffLines("", "a")).toEqual([{ before: null, after: "a", changed: true }]);
});

test("JSON is compared by meaning", () => {
  expect(sortedJson({ b: 1, a: [{ d: 1, c: 2 }] })).toBe(sortedJson({ a: [{ c: 2, d: 1 }], b: 1 }));
  const long = "x".repeat(40);
  expect(changedTexts({ a: { t: long }, b: "1" }, { a: { t: `${long}y` }, b: "2" })).toEqual([{ path: "/a/t", before: long, after: `${long}y` }]);
});

test("filters survive the address", () => {
  const search = { status: "failed", since: "24h", submitted_by: "user:a+b&c" };
  expect(parseSearch(stringifySearch(search))).toEqual(search);
  expect(stringifySearch({ b: "1", a: "2", c: "", d: undefined })).toBe("?a=2&b=1");
  expect(filtersOf({ status: "failed", other: "x" }, ["status", "lane"])).toEqual({ status: "failed", lane: undefined });
  const now = Date.parse("2026-01-02T03:04:30Z");
  expect(sinceOf("24h", now)).toBe("2026-01-01T03:04:00.000Z");
  expect(sinceOf("2026-01-01", now)).toBe("2026-01-01T00:00:00.000Z");
  expect(sinceOf("yesterday", now)).toBeUndefined();
});

test("commands are quoted and contain no secret", () => {
  expect(quote("it's; rm -rf /")).toBe("'it'\\''s; rm -rf /'");
  const request = { method: "POST", path: "/v1/x?a=b&c=d", body: { note: "it's" }, ifMatch: '"9"' } as const;
  expect(curlText(request, "http://h", { kind: "session", csrf: "secret" })).toBe(
    "curl -sS \\\n  -X POST \\\n  'http://h/v1/x?a=b&c=d' \\\n  -H \"Authorization: Bearer $FAIRWAY_CLI_TOKEN\" \\\n  -H 'If-Match: \"9\"' \\\n  -H 'Content-Type: application/json' \\\n  -d '{\"note\":\"it'\\''s\"}'",
  );
  expect(fairwayText(["releases", "approve", "a@dev", "--note", "fine now"], "http://127.0.0.1:8080", { kind: "local", actor: "user:ada" })).toBe(
    "fairway releases approve a@dev --note 'fine now' --actor user:ada",
  );
});

test("verifies proofs of the log", async () => {
  const sha = (...parts: Buffer[]) => createHash("sha256").update(Buffer.concat(parts)).digest();
  for (const size of [1, 2, 3, 5, 8, 13]) {
    const leaves = Array.from({ length: size }, (_, index) => sha(Buffer.from([0, index])));
    const root = (part: Buffer[]): Buffer => {
      if (part.length === 1) return part[0] as Buffer;
      const split = 2 ** Math.floor(Math.log2(part.length - 1));
      return sha(Buffer.from([1]), root(part.slice(0, split)), root(part.slice(split)));
    };
    const path = (index: number, part: Buffer[]): Buffer[] => {
      if (part.length === 1) return [];
      const split = 2 ** Math.floor(Math.log2(part.length - 1));
      return index < split
        ? [...path(index, part.slice(0, split)), root(part.slice(split))]
        : [...path(index - split, part.slice(split)), root(part.slice(0, split))];
    };
    for (let index = 0; index < size; index += 1) {
      const proof = { index, tree_size: size, root_hash: root(leaves).toString("hex"), proof: path(index, leaves).map((hash) => hash.toString("hex")) };
      expect(await isIncluded((leaves[index] as Buffer).toString("hex"), proof), `${index} of ${size}`).toBe(true);
      expect(await isIncluded("00".repeat(32), proof)).toBe(false);
    }
  }
});
