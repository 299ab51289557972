// Live figures of a model: requests, latencies and unknown values of the last two minutes, as small charts.
import { $, h } from "./dom.js";
import { sparkline } from "./chart.js";
import { count, duration, percent, rate } from "./format.js";
import { difference, latencyQuantile, unknownShare, unknownTotals } from "./statistics.js";

const POINTS = 60; // two minutes
const FEW = 3; // points whose latencies are combined, so that a quantile has enough requests

export class Live {
  constructor() {
    this.reset();
  }

  /** Forget the history, for another model. */
  reset() {
    this.before = null;
    this.points = [];
  }

  /** Add the counters of a model, by version, at a time in seconds, and draw the charts. */
  add(time, versions) {
    const now = { time, versions };
    if (this.before && time > this.before.time)
      this.points = [...this.points, difference(this.before, now)].slice(-POINTS);
    this.before = now;
    $("tiles").replaceChildren(...this.#tiles());
    $("unknown").replaceChildren(...this.#unknownFields());
  }

  #tiles() {
    const { points } = this;
    const quantiles = (share) =>
      points.map((_, i) => latencyQuantile(points.slice(Math.max(0, i - FEW + 1), i + 1), share));
    const [requests, rows] = ["requests", "rows"].map((name) => points.map((point) => point[name] / point.seconds));
    const failures = points.reduce((total, point) => total + point.failures, 0);
    const note = `${rate(last(rows) ?? 0)} rows per second, ${count(failures)} failed in two minutes`;
    return [
      tile("Requests per second", requests, { text: (value) => rate(value ?? 0), note, color: "first", area: true }),
      tile("Latency, median", quantiles(0.5), { text: duration, note: "inside the server", color: "first" }),
      tile("Latency, 99th percentile", quantiles(0.99), { text: duration, note: "inside the server", color: "second" }),
    ];
  }

  #unknownFields() {
    const counted = [...unknownTotals(this.before.versions)];
    const totals = counted.map(([field, counts]) => [field, unknownShare(counts) ?? 0]);
    totals.sort(([, a], [, b]) => b - a);
    return totals.map(([field, share]) => {
      const points = this.points.map(({ unknown }) => unknownShare(unknown.get(field)));
      const label = `Unknown values of ${field}: ${percent(share)}`;
      const image = sparkline(points, { label, length: POINTS, top: 0.05, color: "second" });
      const name = h("span", { class: "name", title: field }, field);
      return h("li", {}, name, image, h("span", { class: "number" }, percent(share)));
    });
  }
}

const last = (list) => list[list.length - 1];

function tile(title, points, { text, note, color, area = false }) {
  const known = points.filter((value) => value !== null);
  const range = known.length ? `now ${text(last(known))}, at most ${text(Math.max(...known))}` : "no requests yet";
  const label = `${title}, last two minutes: ${range}`;
  return h("div", { class: "panel tile" },
    h("h3", {}, title),
    h("p", { class: "figure" }, text(last(points) ?? null)),
    sparkline(points, { label, length: POINTS, color, area }),
    h("p", { class: "quiet" }, note),
  );
}
