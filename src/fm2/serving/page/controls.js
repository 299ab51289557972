// Inputs for the values of a column: text with suggestions, a choice, a number, or several values.
import { h } from "./dom.js";
import { ListInput } from "./list_input.js";

const MAX_CHOICES = 12;
const UNKNOWN = "<unknown>"; // no value of a vocabulary, so the model treats it as unknown

/** The k-th typical value of a column; for a multi-valued column, several values. */
export function typical(column, k = 0) {
  const { values } = column;
  if (!values.length) return column.multivalued ? [] : null;
  if (column.multivalued) return [...new Set([0, 1].map((offset) => values[(2 * k + offset) % values.length]))];
  const middle = column.kind === "categorical" ? 0 : Math.floor(values.length / 2);
  return values[(middle + k) % values.length];
}

/** The typical values of a column as suggestions, which inputs refer to by id. */
export function suggestions(column, id) {
  return h("datalist", { id }, column.values.map((value) => h("option", { value })));
}

/**
 * Create the input of a column. `name` is what screen readers call it, `list` the id of its suggestions.
 * The result has an `element`, and reads and writes JSON values; null is the missing value.
 */
export function createInput(column, { id, name, list, changed }) {
  if (column.multivalued) return new ListInput(column, { id, name, list, changed });
  const isChoice = column.size !== null && column.size <= MAX_CHOICES && column.values.length >= column.size - 1;
  if (isChoice && column.kind === "categorical") return new Choice(column, { id, name, changed });
  return new TextInput(column, { id, name, list, changed });
}

class TextInput {
  constructor(column, { id, name, list, changed }) {
    this.numeric = column.kind === "numeric";
    const inputmode = this.numeric ? "decimal" : null;
    const settings = { id, list, inputmode, "aria-label": name, spellcheck: "false", placeholder: "missing" };
    this.element = this.focusable = h("input", { type: "text", ...settings, oninput: changed });
  }

  read() {
    const text = this.element.value;
    if (text.trim() === "") return null;
    const isNumber = this.numeric && Number.isFinite(Number(text));
    return isNumber ? Number(text) : text;
  }

  write(value) {
    this.element.value = value ?? "";
  }

  /** What to say about a value that is no error, but certainly unknown. */
  warning() {
    return this.numeric && typeof this.read() === "string" ? "Not a number: the model treats it as unknown." : "";
  }
}

class Choice {
  constructor(column, { id, name, changed }) {
    this.values = [null, UNKNOWN, ...column.values];
    const texts = ["missing", "an unknown value", ...column.values];
    const options = texts.map((text, index) => h("option", { value: index }, text));
    const [missing, unknown, ...known] = options;
    const settings = { id, "aria-label": name, onchange: changed };
    this.element = this.focusable = h("select", settings, known, missing, unknown);
  }

  read() {
    return this.values[Number(this.element.value)];
  }

  write(value) {
    const index = this.values.indexOf(value);
    this.element.value = index < 0 ? 1 : index; // a value of another version may be unknown to this one
  }

  warning() {
    return "";
  }
}
