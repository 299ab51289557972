// Small line charts as inline SVG.
import { s } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 56;

/**
 * Draw lines of up to `length` points over a common scale that begins at zero; null is a gap.
 * Screen readers read the label instead.
 */
export function sparkline(lines, { label, length, top = 0, area = false }) {
  const numbers = lines.flatMap(({ points }) => points).filter((value) => value !== null);
  const high = Math.max(top, ...numbers, 1e-12);
  const x = (index, count) => ((length - count + index) * WIDTH) / Math.max(length - 1, 1);
  const y = (value) => HEIGHT - 2 - ((HEIGHT - 6) * value) / high;
  const shapes = lines.flatMap(({ points, name }) => {
    const path = pathOf(points, x, y);
    const fill = area && points.length > 1 && points.every((value) => value !== null);
    const ground = `L${WIDTH} ${HEIGHT}L${x(0, points.length).toFixed(1)} ${HEIGHT}Z`;
    const below = fill ? [s("path", { d: path + ground, class: `area ${name}` })] : [];
    return [...below, s("path", { d: path, class: `line ${name}`, "vector-effect": "non-scaling-stroke" })];
  });
  const ground = s("path", { d: `M0 ${HEIGHT - 1}H${WIDTH}`, class: "ground", "vector-effect": "non-scaling-stroke" });
  const settings = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return s("svg", { ...settings, class: "sparkline" }, ground, shapes);
}

function pathOf(points, x, y) {
  let path = "";
  let gap = true;
  points.forEach((value, index) => {
    if (value !== null) path += `${gap ? "M" : "L"}${x(index, points.length).toFixed(1)} ${y(value).toFixed(1)}`;
    gap = value === null;
  });
  return path || "M0 0";
}
