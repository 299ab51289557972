// Numbers and times as text.
const MINUS = "\u2212";

/** A share with three digits: 0.37123 -> "37.1%", 0.00123 -> "0.123%". */
export function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0%";
  const digits = 2 - Math.floor(Math.log10(Math.abs(value)));
  return `${value.toFixed(Math.min(Math.max(digits, 1), 6))}%`;
}

/** A contribution with its sign: "+0.146", "−1.020". */
export function signed(value) {
  const digits = Math.abs(value).toFixed(3);
  return (Number(digits) === 0 ? "" : value < 0 ? MINUS : "+") + digits;
}

/** A logit: "−0.531". */
export function logit(value) {
  return (value < 0 ? MINUS : "") + Math.abs(value).toFixed(3);
}

export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

/** A rate per second: "812", "3.5", "0". */
export function rate(value) {
  return value >= 10 ? count(value) : Number(value.toFixed(1)).toString();
}

/** A duration in seconds: "184 µs", "1.25 ms", "2.1 s". */
export function duration(seconds) {
  if (seconds === null) return "–";
  const [factor, unit] = seconds < 1e-3 ? [1e6, "µs"] : seconds < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((seconds * factor).toPrecision(3))} ${unit}`;
}

export function bytes(value) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  return `${value} bytes`;
}

/** A time in Unix seconds: "Nov 17, 20:06". */
export function moment(seconds) {
  const options = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(1000 * seconds).toLocaleString("en-US", options);
}
