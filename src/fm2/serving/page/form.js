// The form of a row, generated from the columns of a model.
import { $, h, showMessage } from "./dom.js";
import { createInput, suggestions, typical } from "./controls.js";

/** Find the column that an error concerns: the one that the server names, or one that its message quotes. */
export function columnOf(error, names) {
  if (names.includes(error.column)) return error.column;
  return names.find((name) => error.message.includes(`'${name}'`)) ?? null;
}

/** The columns that a user edits: weights in a column of their own are edited with the values that they belong to. */
export function editable(columns) {
  const weights = new Map(columns.filter((c) => c.weights_of).map((c) => [c.weights_of, c.name]));
  return columns
    .filter((column) => !column.weights_of)
    .map((column) => ({ ...column, weight_column: weights.get(column.name) ?? null }));
}

/** The JSON object of columns and the values of their inputs. Weights in a column of their own become a second list. */
export function rowOf(values) {
  return Object.fromEntries(values.flatMap(([column, value]) => entries(column, value)));
}

function entries(column, value) {
  const isWeighted = value instanceof Map;
  if (!column.weight_column) return [[column.name, isWeighted ? Object.fromEntries(value) : value]];
  return [
    [column.name, isWeighted ? [...value.keys()] : null],
    [column.weight_column, isWeighted ? [...value.values()] : null],
  ];
}

export class RowForm {
  constructor(changed) {
    this.changed = changed;
    this.controls = new Map();
    $("row").addEventListener("submit", (event) => event.preventDefault());
    $("row-reset").addEventListener("click", () => this.#writeAll((column) => typical(column)));
    $("row-clear").addEventListener("click", () => this.#writeAll(() => null));
  }

  /** Draw the inputs of columns. After a swap, the values of columns of the same name are kept. */
  draw(columns, isSwap) {
    const kept = new Map(isSwap ? [...this.controls].map(([name, { input }]) => [name, input.read()]) : []);
    this.columns = editable(columns);
    this.controls = new Map(this.columns.map((column, index) => [column.name, this.#control(column, index)]));
    for (const [name, { column, input }] of this.controls)
      input.write(kept.has(name) ? kept.get(name) : typical(column));
    const lists = this.columns.map((column, index) => suggestions(column, `values-${index}`));
    $("row-controls").replaceChildren(...[...this.controls.values()].map((control) => control.element), ...lists);
    this.showError(null);
  }

  /** The values of columns, by default of all. */
  read(names = null) {
    const chosen = [...this.controls.values()].filter(({ column }) => !names || names.includes(column.name));
    return rowOf(chosen.map(({ column, input }) => [column, input.read()]));
  }

  /** Show an error at the column that it concerns, or below the form; null removes all messages. */
  showError(error) {
    const column = error && columnOf(error, [...this.controls.keys()]);
    for (const [name, { input, message }] of this.controls) {
      const text = name === column ? error.message : "";
      showMessage(message, text || input.warning());
      message.className = text ? "error" : "hint";
      input.focusable.setAttribute("aria-invalid", String(Boolean(text)));
    }
    showMessage($("row-error"), error && !column ? error.message : "");
  }

  #control(column, index) {
    const id = `row-${index}`;
    const input = createInput(column, { id, list: `values-${index}`, changed: this.changed });
    const message = h("p", { id: `${id}-message`, class: "hint", hidden: true });
    input.focusable.setAttribute("aria-describedby", message.id);
    const label = h("label", { for: id }, column.name, h("span", { class: "kind" }, describe(column)));
    return { column, input, message, element: h("div", { class: "control" }, label, input.element, message) };
  }

  #writeAll(valueOf) {
    for (const { column, input } of this.controls.values()) input.write(valueOf(column));
    this.changed();
  }
}

function describe(column) {
  if (column.multivalued) return column.weighted || column.weight_column ? "weighted values" : "several values";
  if (column.kind !== "categorical") return column.kind === "numeric" ? "number" : "time";
  return column.size === null ? "hashed" : `${column.size.toLocaleString("en-US")} values`;
}
