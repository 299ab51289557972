// The input of a multi-valued column: its values as chips, with weights if the column has some.
import { h } from "./dom.js";

export class ListInput {
  constructor(column, { id, name, list, changed }) {
    this.weighted = column.weighted || Boolean(column.weight_column);
    this.changed = changed;
    this.items = []; // {value, weight}
    this.chips = h("ul", { class: "chips", "aria-label": `Values of ${column.name}` });
    this.focusable = h("input", {
      id, list, type: "text", "aria-label": name, spellcheck: "false", placeholder: "add a value", enterkeyhint: "done",
      oninput: (event) => this.#suggested(event) && this.#add(),
      onchange: () => this.#add(),
      onkeydown: (event) => this.#key(event),
    });
    this.element = h("div", { class: "list-input" }, this.chips, this.focusable);
  }

  /** The values, or a map from values to weights; null if there are none. */
  read() {
    if (!this.items.length) return null;
    if (!this.weighted) return this.items.map((item) => item.value);
    return new Map(this.items.map((item) => [item.value, item.weight]));
  }

  write(value) {
    const entries = value instanceof Map ? [...value] : (value ?? []).map((text) => [text, 1]);
    this.items = entries.map(([text, weight]) => ({ value: text, weight }));
    this.#draw();
  }

  warning() {
    return "";
  }

  /** A value chosen from the suggestions arrives at once, not key by key. */
  #suggested(event) {
    return !event.inputType || event.inputType === "insertReplacementText";
  }

  #add() {
    const value = this.focusable.value.trim();
    this.focusable.value = "";
    if (!value || this.items.some((item) => item.value === value)) return;
    this.items.push({ value, weight: 1 });
    this.#draw();
    this.changed();
  }

  #remove(index) {
    this.items.splice(index, 1);
    this.#draw();
    this.focusable.focus();
    this.changed();
  }

  #key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.#add();
    } else if (event.key === "Backspace" && !this.focusable.value && this.items.length) {
      this.#remove(this.items.length - 1);
    }
  }

  #draw() {
    this.chips.hidden = !this.items.length;
    this.chips.replaceChildren(...this.items.map((item, index) => this.#chip(item, index)));
  }

  #chip(item, index) {
    const remove = { type: "button", "aria-label": `Remove ${item.value}`, onclick: () => this.#remove(index) };
    return h(
      "li",
      { class: "chip" },
      h("span", { class: "chip-text", title: item.value }, item.value),
      this.weighted && this.#weight(item),
      h("button", remove, "×"),
    );
  }

  #weight(item) {
    const input = h("input", {
      type: "number", step: "any", value: item.weight, class: "weight", "aria-label": `Weight of ${item.value}`,
      oninput: () => {
        if (!Number.isFinite(input.valueAsNumber)) return;
        item.weight = input.valueAsNumber;
        this.changed();
      },
    });
    return input;
  }
}
