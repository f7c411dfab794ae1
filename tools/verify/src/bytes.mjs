// Functions on bytes: encodings and hashes.
import { blake3 } from "@noble/hashes/blake3.js";
import { sha256 } from "@noble/hashes/sha2.js";

export { sha256 };

const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

/** Decodes UTF-8; null for invalid UTF-8. A byte order mark stays part of the text. */
export function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const areEqual = (left, right) => left.length === right.length && left.every((byte, at) => byte === right[at]);

/** Decodes 32 bytes in lower-case hex; null for any other text. */
export const hashOfHex = (text) =>
  /^[0-9a-f]{64}$/.test(text) ? Uint8Array.from(text.match(/../g), (pair) => Number.parseInt(pair, 16)) : null;

/**
 * Decodes canonical base64: with padding, and with zero as the unused bits of the last digit; null for any other text.
 */
export function bytesOfBase64(text) {
  const digits = text.replace(/={1,2}$/, "");
  if (text.length % 4 !== 0 || /[^A-Za-z0-9+/]/.test(digits)) return null;
  const padding = text.length - digits.length;
  if (padding === 1 && !/[AEIMQUYcgkosw048]$/.test(digits)) return null;
  if (padding === 2 && !/[AQgw]$/.test(digits)) return null;
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** The checksum of a text in Fairway's form: `blake3:` and the hash of the UTF-8 bytes. */
export const checksumOf = (text) => `blake3:${hex(blake3(utf8(text)))}`;

/** The hash of an entry of a log (RFC 6962, 2.1). */
export const leafHash = (entry) => sha256(concat(Uint8Array.of(0), entry));

/** The hash of an inner node of a tree (RFC 6962, 2.1). */
export const nodeHash = (left, right) => sha256(concat(Uint8Array.of(1), left, right));
