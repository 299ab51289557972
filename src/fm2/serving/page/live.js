// Live figures: differences between snapshots of the server's counters, as rates, quantiles and shares.
import { $, h } from "./dom.js";
import { sparkline } from "./chart.js";
import { count, duration, percent, rate } from "./format.js";

const POINTS = 60; // two minutes
const FEW = 3; // snapshots whose latencies are combined, so that a quantile has enough requests

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
    if (this.before && time > this.before.time) this.points = [...this.points, step(this.before, now)].slice(-POINTS);
    this.before = now;
    this.#draw();
  }

  #draw() {
    const { points } = this;
    const rates = points.map((point) => point.requests / point.seconds);
    const rows = points.map((point) => point.rows / point.seconds);
    const [p50, p99] = [0.5, 0.99].map((share) => points.map((_, i) => latency(points.slice(Math.max(0, i - FEW + 1), i + 1), share)));
    const failures = points.reduce((total, point) => total + point.failures, 0);
    $("tiles").replaceChildren(
      tile("Requests per second", rate(last(rates) ?? 0), `${rate(last(rows) ?? 0)} rows per second, ${count(failures)} failed in two minutes`,
        chart("Requests per second", [{ name: "first", points: rates }], rate, true)),
      tile("Latency, median", duration(last(p50) ?? null), "inside the server", chart("Median latency", [{ name: "first", points: p50 }], duration)),
      tile("Latency, 99th percentile", duration(last(p99) ?? null), "inside the server", chart("99th percentile of the latency", [{ name: "second", points: p99 }], duration)),
    );
    $("unknown").replaceChildren(...unknownFields(this.before.versions, points));
  }
}

const last = (list) => list[list.length - 1];

function tile(title, figure, note, image) {
  return h("div", { class: "panel tile" }, h("h3", {}, title), h("p", { class: "figure" }, figure), image, h("p", { class: "quiet" }, note));
}

function chart(title, lines, text, area = false) {
  const known = lines[0].points.filter((value) => value !== null);
  const range = known.length ? `now ${text(last(known))}, at most ${text(Math.max(...known))}` : "no requests yet";
  return sparkline(lines, { label: `${title}, last two minutes: ${range}`, length: POINTS, area });
}

/** What happened between two snapshots. A version that is new, or was started again, counts from zero. */
function step(before, now) {
  const result = { seconds: now.time - before.time, requests: 0, rows: 0, failures: 0, latency: null, unknown: {} };
  for (const [version, stats] of Object.entries(now.versions)) {
    const old = before.versions[version];
    const start = old && old.requests <= stats.requests ? old : null;
    for (const name of ["requests", "rows", "failures"]) result[name] += stats[name] - (start?.[name] ?? 0);
    const counts = stats.latency.counts.map((value, index) => value - (start?.latency.counts[index] ?? 0));
    const sums = result.latency?.counts;
    result.latency = { bounds: stats.latency.bounds, counts: sums ? counts.map((value, i) => value + sums[i]) : counts };
    for (const [field, { values, unknown }] of Object.entries(stats.unknown)) {
      const base = start?.unknown[field] ?? { values: 0, unknown: 0 };
      const total = (result.unknown[field] ??= { values: 0, unknown: 0 });
      total.values += values - base.values;
      total.unknown += unknown - base.unknown;
    }
  }
  return result;
}

/** A quantile of the latencies in buckets, interpolated within its bucket; null without requests. */
function latency(points, share) {
  const histograms = points.map((point) => point.latency).filter(Boolean);
  if (!histograms.length) return null;
  const { bounds } = histograms[0];
  const counts = histograms[0].counts.map((_, i) => histograms.reduce((total, { counts: c }) => total + c[i], 0));
  const total = counts.reduce((a, b) => a + b, 0);
  if (total <= 0) return null;
  let left = share * total;
  const bucket = counts.findIndex((value) => (left -= value) <= 0);
  if (bucket < 0 || bucket >= bounds.length) return last(bounds);
  const low = bucket ? bounds[bucket - 1] : 0;
  return bounds[bucket] + ((bounds[bucket] - low) * left) / counts[bucket];
}

function unknownFields(versions, points) {
  const totals = {};
  for (const stats of Object.values(versions))
    for (const [field, { values, unknown }] of Object.entries(stats.unknown)) {
      const total = (totals[field] ??= { values: 0, unknown: 0 });
      total.values += values;
      total.unknown += unknown;
    }
  const shareOf = ({ values, unknown }) => (values ? unknown / values : 0);
  const fields = Object.entries(totals).map(([field, total]) => ({ field, share: shareOf(total) }));
  fields.sort((a, b) => b.share - a.share);
  return fields.map(({ field, share }) => {
    const recent = points.map(({ unknown }) => (unknown[field]?.values ? shareOf(unknown[field]) : null));
    const label = `Unknown values of ${field}: ${percent(share)}`;
    const image = sparkline([{ name: "second", points: recent }], { label, length: POINTS, top: 0.05 });
    return h("li", {}, h("span", { class: "name", title: field }, field), image, h("span", { class: "number" }, percent(share)));
  });
}
