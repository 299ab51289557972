// The table of candidates: which columns are theirs, and their values.
import { $, h } from "./dom.js";
import { createInput, typical } from "./controls.js";
import { rowOf } from "./form.js";

const FIRST = 4;
const MAX = 26; // candidates are named by letters
const LIKELY = /(^|_)(ad|ads|item|creative|campaign|banner|product|offer|candidate|price|size)(_|$|id)/i;

export class Candidates {
  constructor(changed) {
    this.changed = changed;
    this.chosen = null; // names of the candidate's columns
    this.rows = [];
  }

  /** Draw the columns of a model. After a swap, the choice and the values of the user are kept. */
  draw(columns, catalogs, isSwap) {
    this.columns = columns;
    if (!isSwap) Object.assign(this, { chosen: null, rows: [] });
    const names = columns.map((column) => column.name);
    const kept = this.chosen?.filter((name) => names.includes(name));
    this.chosen = kept?.length ? kept : firstChoice(names, catalogs);
    const rows = this.rows.length ? this.rows : Array.from({ length: FIRST }, () => []);
    this.rows = rows.map((row, index) => new Map([...this.#typicalRow(index), ...row])); // columns may be new
    this.#drawSplit();
    this.#drawTable();
  }

  get contextNames() {
    return this.columns.map((column) => column.name).filter((name) => !this.chosen.includes(name));
  }

  read() {
    return this.rows.map((row) => rowOf(this.#chosenColumns().map((column) => [column, row.get(column.name) ?? null])));
  }

  /** A letter and the values of a candidate, to recognize it by. */
  title(index) {
    const values = this.#chosenColumns().map((column) => this.rows[index].get(column.name));
    return { letter: letter(index), text: values.map(textOf).join(" · ") };
  }

  /** Mark the cell that an error concerns. */
  markError(index, name) {
    for (const cell of $("candidates").querySelectorAll("[aria-invalid]")) cell.removeAttribute("aria-invalid");
    if (index !== null && name) this.inputs[index]?.get(name)?.focusable.setAttribute("aria-invalid", "true");
  }

  #chosenColumns() {
    return this.columns.filter((column) => this.chosen.includes(column.name));
  }

  #typicalRow(index) {
    return new Map(this.columns.map((column) => [column.name, typical(column, index)]));
  }

  #drawSplit() {
    const boxes = this.columns.map((column) => {
      const box = h("input", { type: "checkbox", value: column.name, onchange: () => this.#choose(box) });
      box.checked = this.chosen.includes(column.name);
      return h("label", { class: "toggle" }, box, column.name);
    });
    const legend = $("split").querySelector("legend");
    $("split").replaceChildren(legend, h("div", { class: "toggles" }, boxes));
  }

  #choose(box) {
    const others = this.chosen.filter((name) => name !== box.value);
    if (!box.checked && !others.length) box.checked = true; // a candidate has at least one column
    this.chosen = box.checked ? [...others, box.value] : others;
    this.#drawTable();
    this.changed();
  }

  #drawTable() {
    const columns = this.#chosenColumns();
    const unseen = (text) => h("span", { class: "unseen" }, text);
    const titles = [unseen("Candidate"), ...columns.map((column) => column.name), unseen("Remove")];
    const head = titles.map((title) => h("th", { scope: "col" }, title));
    this.inputs = [];
    const rows = this.rows.map((row, index) => this.#row(columns, row, index));
    const add = { type: "button", onclick: () => this.#add(), disabled: this.rows.length >= MAX };
    $("candidates").replaceChildren(
      h("h3", {}, "Candidates"),
      h("div", { class: "scroll", role: "region", "aria-label": "Candidates", tabindex: "0" },
        h("table", { class: "candidates" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))),
      h("div", { class: "actions" }, h("button", add, "Add a candidate")),
    );
  }

  #row(columns, row, index) {
    const inputs = new Map();
    const cells = columns.map((column) => {
      const changed = () => {
        row.set(column.name, input.read());
        this.changed();
      };
      const name = `${column.name} of candidate ${letter(index)}`;
      const input = createInput(column, { name, list: `values-${this.columns.indexOf(column)}`, changed });
      input.write(row.get(column.name) ?? null);
      inputs.set(column.name, input);
      return h("td", { "data-label": column.name }, input.element);
    });
    this.inputs.push(inputs);
    const remove = {
      type: "button", class: "plain", "aria-label": `Remove candidate ${letter(index)}`,
      disabled: this.rows.length === 1, onclick: () => this.#remove(index),
    };
    return h("tr", {}, h("th", { scope: "row" }, letter(index)), cells, h("td", {}, h("button", remove, "×")));
  }

  #add() {
    this.rows.push(this.#typicalRow(this.rows.length));
    this.#drawTable();
    const inputs = this.inputs[this.rows.length - 1];
    inputs.values().next().value?.focusable.focus();
    this.changed();
  }

  #remove(index) {
    this.rows.splice(index, 1);
    this.#drawTable();
    const next = this.inputs[Math.min(index, this.rows.length - 1)];
    next.values().next().value?.focusable.focus();
    this.changed();
  }
}

const letter = (index) => String.fromCharCode(65 + index);

function textOf(value) {
  if (value === null || value === undefined) return "missing";
  return value instanceof Map ? [...value.keys()].join(", ") : Array.isArray(value) ? value.join(", ") : String(value);
}

function firstChoice(names, catalogs) {
  const known = catalogs[0]?.candidate.filter((name) => names.includes(name)) ?? [];
  if (known.length) return known;
  const likely = names.filter((name) => LIKELY.test(name));
  if (likely.length && likely.length < names.length) return likely;
  return names.slice(-Math.min(2, Math.ceil(names.length / 2)));
}
