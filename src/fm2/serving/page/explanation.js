// The explanation of a score: a waterfall from the bias over fields and pairs to the logit.
import { own } from "./api.js";
import { $, columns, h, hiddenHead, placeBar } from "./dom.js";
import { logit, percent, signed } from "./format.js";

const SHOWN = 12;
const INTRODUCTION = "Contributions of fields and pairs of fields. Each bar starts where the one above ends.";
const UNKNOWN = "<unknown>";
let showAll = false;
const open = new Set(); // fields whose values are shown

export function clearExplanation(message) {
  const heading = h("h3", {}, "Explanation");
  $("explanation").replaceChildren(heading, h("p", { class: "quiet" }, message));
}

/** Draw an answer of the API; the order is by the size of the contributions. */
export function drawExplanation(answer) {
  const terms = termsOf(answer);
  const hidden = showAll ? [] : terms.slice(SHOWN);
  const shown = hidden.length > 1 ? terms.slice(0, SHOWN) : terms;
  const rest = hidden.length > 1 ? [{ name: `${hidden.length} smaller terms`, value: "", term: sum(hidden) }] : [];
  const steps = [{ name: "bias", value: "", term: answer.bias }, ...shown, ...rest];
  const scale = makeScale(steps);
  let total = 0;
  const rows = steps.flatMap((step) => {
    const from = total;
    total += step.term;
    return [termRow(step, scale, from, total, () => drawExplanation(answer)), ...valueRows(step)];
  });
  const focused = document.activeElement?.dataset?.focus;
  $("explanation").replaceChildren(
    h("h3", {}, "Explanation"),
    h("p", { class: "quiet" }, INTRODUCTION),
    h("table", { class: "bars" },
      h("caption", { class: "unseen" }, "Contributions to the logit"),
      columns("term", "track", "figures"),
      hiddenHead("Term", "Bar", "Contribution"),
      h("tbody", {}, rows, totalRow(answer.logit, scale)),
    ),
    conclusion(answer),
    terms.length > SHOWN + 1 ? toggleButton(terms.length, () => drawExplanation(answer)) : "",
  );
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

function termsOf(answer) {
  const fields = Object.entries(answer.fields).map(([name, term]) => fieldTerm(answer, name, term));
  const pairs = answer.pairs.map(([first, second, term]) => ({ name: `${first} × ${second}`, value: "", term }));
  return [...fields, ...pairs].sort((a, b) => Math.abs(b.term) - Math.abs(a.term));
}

function fieldTerm(answer, name, term) {
  const list = own(answer.values, name);
  if (list) return { name, term, list, value: list.length === 1 ? "1 value" : `${list.length} values` };
  const value = own(answer.row, name);
  const text = value === UNKNOWN ? "unknown" : value ?? "missing";
  return { name, term, value: text, special: value === UNKNOWN || value === null || value === undefined };
}

const sum = (terms) => terms.reduce((total, { term }) => total + term, 0);

/** Map a partial sum to a share of the width, so that zero and all partial sums fit. */
function makeScale(steps) {
  let total = 0;
  const sums = [0, ...steps.map(({ term }) => (total += term))];
  const low = Math.min(...sums);
  const high = Math.max(...sums);
  return (value) => (value - low) / Math.max(high - low, 1e-9);
}

function termRow(step, scale, from, to, redraw) {
  const value = h("span", { class: step.special ? "value special" : "value", title: step.value }, step.value);
  return h("tr", { "data-term": step.term },
    h("th", { scope: "row", title: step.name }, step.name, " ", step.list?.length ? disclosure(step, redraw) : value),
    track(scale, from, to, step.term < 0 ? "link negative" : "link positive"),
    h("td", { class: "number" }, signed(step.term)),
  );
}

function track(scale, from, to, kind) {
  const zero = placeBar(h("span", { class: "zero" }), scale(0), scale(0));
  const bar = placeBar(h("span", { class: `bar-piece ${kind}` }), scale(from), scale(to));
  return h("td", { class: "track-cell" }, h("div", { class: "track" }, zero, bar));
}

function totalRow(total, scale) {
  return h("tr", { class: "total" },
    h("th", { scope: "row" }, "logit"),
    track(scale, 0, total, "sum"),
    h("td", { class: "number", id: "logit" }, logit(total)),
  );
}

function disclosure(step, redraw) {
  const expanded = open.has(step.name);
  const toggle = () => {
    if (expanded) open.delete(step.name);
    else open.add(step.name);
    redraw();
  };
  const attributes = { type: "button", class: "link", "aria-expanded": String(expanded), onclick: toggle };
  return h("button", { ...attributes, "data-focus": `values of ${step.name}` }, step.value);
}

/** The values of a multi-valued field: their weights, and their parts of the field's terms and of its pairs. */
function valueRows(step) {
  if (!step.list || !open.has(step.name)) return [];
  const head = ["value", "weight", "field", "pairs"].map((name) => h("th", { scope: "col" }, name));
  const rows = step.list.map(({ value, weight, linear, pairs }) =>
    h("tr", {},
      h("th", { scope: "row", title: value ?? "missing" }, value ?? "missing"),
      [Number(weight.toPrecision(3)), signed(linear), signed(pairs)].map((text) => h("td", {}, String(text))),
    ),
  );
  const caption = h("caption", { class: "unseen" }, `Values of ${step.name}`);
  const table = h("table", { class: "values" }, caption, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  return [h("tr", { class: "nested" }, h("td", { colspan: 3 }, table))];
}

function conclusion(answer) {
  const { calibrated } = answer;
  const isCalibrated = calibrated !== null && calibrated !== undefined;
  return h("p", { class: "conclusion" },
    "logit ", h("b", {}, logit(answer.logit)),
    " → probability ", h("b", {}, percent(answer.probability)),
    isCalibrated ? [" → calibrated ", h("b", {}, percent(calibrated))] : "",
  );
}

function toggleButton(terms, redraw) {
  const toggle = () => {
    showAll = !showAll;
    redraw();
  };
  const text = showAll ? "Show the largest terms" : `Show all ${terms} terms`;
  return h("button", { type: "button", "data-focus": "toggle", onclick: toggle }, text);
}
