// The models and their versions, with their key facts.
import { $, h } from "./dom.js";
import { bytes, count, moment, percent } from "./format.js";

export function drawModels(models, selected) {
  const options = models.map(({ name }) => h("option", { value: name }, name));
  $("model").replaceChildren(...options);
  if (selected !== null) $("model").value = selected;
}

export function drawVersions(versions, selected, choose) {
  const cards = versions.map((version) => card(version, version.version === selected, choose));
  $("versions").replaceChildren($("versions").querySelector("legend"), ...cards);
}

function card(version, isSelected, choose) {
  const name = `Version ${version.version}, ${role(version)}`;
  const settings = { type: "radio", name: "version", value: version.version, "aria-label": name };
  const radio = h("input", { ...settings, onchange: () => choose(version.version) });
  radio.checked = isSelected;
  const title = h("span", { class: "version-name" }, `Version ${version.version}`);
  const badge = h("span", { class: version.label ? "badge" : "badge serving" }, role(version));
  const facts = factsOf(version).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  const head = h("span", { class: "version-title" }, radio, title, badge);
  return h("label", { class: "version panel" }, head, h("dl", {}, facts));
}

function role({ label, share }) {
  return label === "canary" && share ? `canary, ${percent(share)} of the traffic` : label || "serving";
}

function factsOf(version) {
  const { metrics } = version;
  const number = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");
  return [
    ["model", version.model],
    ["plan", version.plan],
    ["size", `${bytes(version.bytes)}, ${version.dtype}`],
    ["fields", count(version.fields)],
    ["features", count(version.features)],
    ["AUC (validation)", number(metrics?.auc, 4)],
    ["log loss", number(metrics?.log_loss, 4)],
    ["calibrated", version.calibrated ? "yes" : "no"],
    ["loaded", moment(version.loaded)],
  ];
}
