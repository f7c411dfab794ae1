// Verifies a webhook like a receiver, with the npm packages of Standard Webhooks and CloudEvents.
//
// Argument: the folder of the installed packages. Standard input: a JSON object with `headers` (object of strings),
// `body` (string) and `keys` (array of strings). Output: for each key `verified` or `refused`, then the event as a
// JSON object.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.argv[2], "receiver.js"));
const { HTTP } = require("cloudevents");
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

function verdict(key, body, headers) {
  try {
    new Webhook(key).verify(body, headers);
  } catch (error) {
    if (error instanceof WebhookVerificationError) return "refused";
    throw error;
  }
  return "verified";
}

const { headers, body, keys } = JSON.parse(readFileSync(0, "utf8"));
for (const key of keys) console.log(verdict(key, body, headers));
const event = HTTP.toEvent({ headers, body });
event.validate();
const { id, source, specversion, time, type, data } = event;
console.log(JSON.stringify({ id, source, specversion, time, type, data }));
