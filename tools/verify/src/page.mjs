// The script of the page: reads the form, verifies the bundle, and shows the report. Texts of a bundle become text
// nodes, never markup.
import { MAX_BUNDLE_BYTES, readLogKeys, readWitnessKeys, verifyBundle } from "./verify.mjs";

const MAX_SHOWN = 2_000;
const VERDICTS = { passed: "passed", failed: "failed", not_included: "not checked" };

const at = (id) => document.getElementById(id);

/**
 * Shortens a text, and escapes its control and formatting characters (such as those that reorder text) as `\u{...}`.
 */
function visible(text) {
  const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} (and ${text.length - MAX_SHOWN} more characters)` : text;
  return cut.toWellFormed().replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = visible(text);
  if (className !== "") made.className = className;
  return made;
}

function itemOf({ name, part, expected, actual, verdict }) {
  const item = document.createElement("li");
  item.className = verdict;
  const heading = element("p", `${name}: `, "name");
  heading.append(element("span", VERDICTS[verdict], verdict === "passed" ? "good" : verdict === "failed" ? "bad" : "part"));
  item.append(heading);
  if (part !== "") item.append(element("p", part, "part"));
  const values = document.createElement("dl");
  const rows = [["expected", expected], ["actual", actual]];
  for (const [term, value] of rows) values.append(element("dt", term), element("dd", value === "" ? "(nothing)" : value));
  item.append(values);
  return item;
}

const fill = (id, sentences) => at(id).replaceChildren(...sentences.map((sentence) => element("li", sentence)));

/** Shows a verdict, and moves the focus to it, so that screen readers announce it. */
function show(verdict, summary, isGood) {
  at("verdict").className = isGood ? "good" : "bad";
  at("verdict").textContent = verdict;
  at("summary").textContent = visible(summary);
  at("result").hidden = false;
  at("verdict").focus();
}

function showProblem(sentence) {
  for (const id of ["shown", "limits", "all"]) at(id).hidden = true;
  show("Not verified", sentence, false);
}

function showReport(report, hasKeys) {
  const { checks, failed, hasPassed, proven, notProven } = report;
  fill("proven", proven);
  fill("not-proven", notProven);
  at("checks").replaceChildren(...checks.map(itemOf));
  at("shown").hidden = !hasPassed;
  at("limits").hidden = false;
  at("all").hidden = false;
  const names = [...new Set(failed.map(({ name }) => name))].join(", ");
  const hint = hasKeys ? "" : " Give a public key of the log that did not come with the bundle.";
  const passed = checks.filter(({ verdict }) => verdict === "passed").length;
  const summary = hasPassed
    ? `${passed} of ${checks.length} checks passed, and none failed.`
    : `${failed.length} of ${checks.length} checks failed: ${names}. This bundle shows nothing.${hint}`;
  show(hasPassed ? "Verified" : "Not verified", summary, hasPassed);
}

async function verifyFields() {
  const [file] = at("file").files;
  if (!file) return showProblem("Choose the file of an evidence bundle.");
  let given;
  try {
    given = {
      keys: readLogKeys(at("keys").value),
      witnesses: readWitnessKeys(at("witnesses").value),
      // A checkpoint ends with a line feed, which people often omit when they paste it.
      otherCheckpoint: at("checkpoint").value.trim() === "" ? "" : `${at("checkpoint").value.trim()}\n`,
      consistencyProof: at("consistency").value,
    };
  } catch (problem) {
    return showProblem(`A key cannot be read: ${problem.message}.`);
  }
  const bytes = new Uint8Array(await file.slice(0, MAX_BUNDLE_BYTES + 2).arrayBuffer());
  return showReport(verifyBundle(bytes, given), given.keys.length > 0);
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  verifyFields().catch(() => showProblem("The file cannot be read. Choose it again."));
});
// Hides the verdict when a field changes, because the verdict applies to the previous values.
at("form").addEventListener("input", () => (at("result").hidden = true));
at("only-failed").addEventListener("change", (event) => at("checks").classList.toggle("only-failed", event.target.checked));
