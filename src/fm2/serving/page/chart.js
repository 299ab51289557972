// Small line charts as inline SVG.
import { s } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 56;

/**
 * Draw a line of up to `length` points, the last one at the right, over a scale from zero; null is a gap.
 * The scale reaches at least to `top`. Screen readers read the label instead.
 */
export function sparkline(points, { label, length, color, top = 0, area = false }) {
  const high = Math.max(top, ...points.filter((value) => value !== null), 1e-12);
  const x = (index) => (((length - points.length + index) * WIDTH) / Math.max(length - 1, 1)).toFixed(1);
  const y = (value) => (HEIGHT - 2 - ((HEIGHT - 6) * value) / high).toFixed(1);
  const path = pathOf(points, x, y);
  const hasArea = area && points.length > 1 && !points.includes(null);
  const settings = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  const line = { "vector-effect": "non-scaling-stroke" };
  return s("svg", { ...settings, class: "sparkline" },
    s("path", { ...line, d: `M0 ${HEIGHT - 1}H${WIDTH}`, class: "ground" }),
    hasArea && s("path", { d: `${path}L${WIDTH} ${HEIGHT}L${x(0)} ${HEIGHT}Z`, class: `area ${color}` }),
    s("path", { ...line, d: path, class: `line ${color}` }),
  );
}

function pathOf(points, x, y) {
  let path = "";
  let gap = true;
  points.forEach((value, index) => {
    if (value !== null) path += `${gap ? "M" : "L"}${x(index)} ${y(value)}`;
    gap = value === null;
  });
  return path || "M0 0";
}
