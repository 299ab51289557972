// Ranking: candidates that the user edits, or the best items of a catalog, in the context of the row.
import { $, columns, h, hiddenHead, placeBar, showMessage } from "./dom.js";
import { Candidates } from "./candidates.js";
import { columnOf, editable } from "./form.js";
import { percent } from "./format.js";

const MAX_TOP = 1000;

export class Ranking {
  constructor(changed) {
    this.changed = changed;
    this.candidates = new Candidates(changed);
    this.catalog = null; // its name, or null for the candidates in the table
    this.top = 10;
  }

  draw(model, isSwap) {
    this.model = model;
    this.candidates.draw(editable(model.columns), model.catalogs, isSwap);
    if (!model.catalogs.some(({ name }) => name === this.catalog)) this.catalog = null;
    this.#drawSource();
    this.#showTable();
  }

  /** The request, in the context of the form's row. */
  body(form) {
    if (this.catalog === null)
      return { context: form.read(this.candidates.contextNames), candidates: this.candidates.read() };
    const { candidate } = this.model.catalogs.find(({ name }) => name === this.catalog);
    const names = form.columns.map((column) => column.name).filter((name) => !candidate.includes(name));
    return { context: form.read(names), catalog: this.catalog, top: this.top };
  }

  show(answer) {
    this.showError(null);
    const highest = Math.max(...answer.probabilities, 1e-12);
    const entries = answer.indices.map((index, place) => this.#entry(answer, index, place, highest));
    const title = this.catalog === null ? "Ranking" : `Best items of ${this.catalog}`;
    $("ranking").replaceChildren(
      h("h3", {}, title),
      h("table", { class: "bars" },
        columns("place", "term", "track", "figures"),
        hiddenHead("Place", "Candidate", "Bar", "Probability"),
        h("tbody", {}, entries),
      ),
    );
  }

  /** Show an error below the settings, and mark the cell that it concerns. */
  showError(error) {
    showMessage($("rank-error"), error?.message);
    const names = this.model.columns.map((column) => column.name);
    const place = error?.message.match(/candidates\[(\d+)\]/);
    this.candidates.markError(place ? Number(place[1]) : null, error && columnOf(error, names));
    if (error) $("ranking").replaceChildren(h("h3", {}, "Ranking"), h("p", { class: "quiet" }, "No ranking."));
  }

  #entry(answer, index, place, highest) {
    const { letter, text } = answer.items ? { text: String(answer.items[place]) } : this.candidates.title(index);
    const title = letter ? [h("b", {}, letter), " ", h("span", { class: "value" }, text)] : text;
    const probability = answer.probabilities[place];
    const bar = placeBar(h("span", { class: "bar-piece positive" }), 0, probability / highest);
    return h("tr", { "data-index": index },
      h("td", { class: "place" }, place + 1),
      h("th", { scope: "row", title: text }, title),
      h("td", { class: "track-cell" }, h("div", { class: "track" }, bar)),
      h("td", { class: "number" }, percent(probability)),
    );
  }

  #drawSource() {
    const { catalogs } = this.model;
    $("source").hidden = !catalogs.length;
    if (!catalogs.length) return;
    const table = h("option", { value: "" }, "the table below");
    const options = catalogs.map(({ name, items }) =>
      h("option", { value: `catalog ${name}` }, `catalog ${name}, ${items} items`),
    );
    const choose = (event) => {
      this.catalog = event.target.value ? event.target.value.slice("catalog ".length) : null;
      this.#showTable();
      this.changed();
    };
    const select = h("select", { id: "source-name", onchange: choose }, table, options);
    select.value = this.catalog === null ? "" : `catalog ${this.catalog}`;
    const setTop = (event) => {
      if (!event.target.validity.valid || !event.target.value) return;
      this.top = event.target.valueAsNumber;
      this.changed();
    };
    const settings = { type: "number", min: 1, max: MAX_TOP, value: this.top };
    const top = h("input", { id: "source-top", ...settings, oninput: setTop });
    $("source").replaceChildren(
      h("div", { class: "control" }, h("label", { for: "source-name" }, "Candidates from"), select),
      h("div", { class: "control", id: "source-count" }, h("label", { for: "source-top" }, "Best items"), top),
    );
  }

  /** With a catalog, its columns are given, and the table is of no use. */
  #showTable() {
    const isTable = this.catalog === null;
    $("candidates").hidden = !isTable;
    $("split").disabled = !isTable;
    if ($("source-count")) $("source-count").hidden = isTable;
  }
}
