// What happened between two snapshots of the server's counters.
import { own } from "./api.js";

const NOTHING = { values: 0, unknown: 0 };

/** The difference between two snapshots. A version that is new, or was started again, counts from zero. */
export function difference(before, now) {
  const result = { seconds: now.time - before.time, requests: 0, rows: 0, failures: 0, latency: null };
  const parts = Object.entries(now.versions).map(([version, stats]) => {
    const old = own(before.versions, version);
    const start = old && old.requests <= stats.requests ? old : null;
    for (const name of ["requests", "rows", "failures"]) result[name] += stats[name] - (start?.[name] ?? 0);
    const counts = stats.latency.counts.map((value, index) => value - (start?.latency.counts[index] ?? 0));
    result.latency = sumOf([result.latency, { bounds: stats.latency.bounds, counts }].filter(Boolean));
    return Object.entries(stats.unknown).map(([field, { values, unknown }]) => {
      const base = (start && own(start.unknown, field)) ?? NOTHING;
      return [field, { values: values - base.values, unknown: unknown - base.unknown }];
    });
  });
  return { ...result, unknown: sumByField(parts.flat()) };
}

/** The values and unknown values of each field since the start of the server, in all versions. */
export function unknownTotals(versions) {
  return sumByField(Object.values(versions).flatMap((stats) => Object.entries(stats.unknown)));
}

/** The share of unknown values, or null without values. */
export function unknownShare(counts) {
  return counts?.values ? counts.unknown / counts.values : null;
}

function sumByField(entries) {
  const sums = new Map();
  for (const [field, { values, unknown }] of entries) {
    const sum = sums.get(field) ?? NOTHING;
    sums.set(field, { values: sum.values + values, unknown: sum.unknown + unknown });
  }
  return sums;
}

function sumOf(histograms) {
  const [{ bounds, counts }] = histograms;
  return { bounds, counts: counts.map((_, i) => histograms.reduce((sum, histogram) => sum + histogram.counts[i], 0)) };
}

/** A quantile of the latencies of differences, interpolated within its bucket; null without requests. */
export function latencyQuantile(differences, share) {
  const histograms = differences.map(({ latency }) => latency).filter(Boolean);
  if (!histograms.length) return null;
  const { bounds, counts } = sumOf(histograms);
  const total = counts.reduce((a, b) => a + b, 0);
  if (total <= 0) return null;
  let left = share * total;
  const bucket = counts.findIndex((value) => (left -= value) <= 0);
  if (bucket < 0 || bucket >= bounds.length) return bounds[bounds.length - 1];
  const low = bucket ? bounds[bucket - 1] : 0;
  return bounds[bucket] + ((bounds[bucket] - low) * left) / counts[bucket];
}
