import { expect, test } from "vitest";
import { EventParser } from "./events";

const STREAM = 'retry: 1000\n\nid: 1\nevent: execution.started\ndata: {}\n\n:\n\nid: 2\r\nevent: output.delta\r\ndata: {"delta":"é"}\r\n\r\n';

test("parses events however the text is cut", () => {
  const expected = [
    { id: "1", event: "execution.started", data: "{}" },
    { id: "2", event: "output.delta", data: '{"delta":"é"}' },
  ];
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let start = 0; start < STREAM.length; start += size) events.push(...parser.push(STREAM.slice(start, start + size)));
    expect(events, `pieces of ${size}`).toEqual(expected);
  }
});

test("an unfinished event is not reported", () => {
  expect(new EventParser().push("id: 1\nevent: x\ndata: {}\n")).toEqual([]);
});
