// The page: which model is shown, when it is scored, and what is refreshed.
import { $, showMessage } from "./dom.js";
import { address, ApiError, getModels, getStats, own, request } from "./api.js";
import { clearExplanation, drawExplanation } from "./explanation.js";
import { RowForm } from "./form.js";
import { percent } from "./format.js";
import { Live } from "./live.js";
import { Ranking } from "./ranking.js";
import { drawModels, drawVersions } from "./versions.js";

const DEBOUNCE = 120; // milliseconds
const REFRESH = 2000;
const NETWORK = "A network combines all fields, so its score has no contributions of fields and pairs.";

const live = new Live();
const form = new RowForm(() => score.soon());
const ranking = new Ranking(() => rank.soon());
const state = { models: [], name: null, pinned: null, model: null }; // pinned: a version that the user chose

/** Runs a task after the last of several changes, and ignores the answers of earlier runs. */
class Latest {
  constructor(region, task, failed) {
    Object.assign(this, { region, task, failed, timer: 0, controller: null });
  }

  soon() {
    this.region.setAttribute("aria-busy", "true");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), DEBOUNCE);
  }

  async now() {
    clearTimeout(this.timer);
    this.controller?.abort();
    const { signal } = (this.controller = new AbortController());
    this.timer = 0;
    try {
      const show = await this.task(signal);
      if (!signal.aborted) show();
    } catch (error) {
      if (!signal.aborted) report(error, this.failed);
    }
    if (!signal.aborted && !this.timer) this.region.setAttribute("aria-busy", "false");
  }
}

/** Show an error of the API where it belongs. A version that is gone was swapped out: look for the new one. */
function report(error, show) {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === 404) refreshModels().then((changed) => changed || show(error), (other) => report(other, notify));
  else if (error.status === 401) notify(error);
  else show(error);
}

function notify(error) {
  showMessage($("notice"), error?.message);
}

function call(operation, body, signal) {
  return request(address(state.model.name, state.model.version, operation), body, signal);
}

const score = new Latest($("result"), scoreRow, (error) => {
  form.showError(error);
  drawProbability(null);
  clearExplanation("No explanation.");
});
const rank = new Latest($("ranking"), async (signal) => {
  const answer = await call("rank", ranking.body(form), signal);
  return () => ranking.show(answer);
}, (error) => ranking.showError(error));

async function scoreRow(signal) {
  rank.soon(); // the row is the context of the ranking
  const row = form.read();
  const explaining = state.model.explainable ? call("explain", { row }, signal) : null;
  explaining?.catch(() => {}); // awaited below
  const [probability] = (await call("predict", { rows: [row] }, signal)).probabilities;
  const explanation = await explaining;
  return () => {
    form.showError(null);
    drawProbability(probability);
    if (explanation) drawExplanation(explanation);
    else clearExplanation(NETWORK);
  };
}

function drawProbability(probability) {
  $("probability").textContent = probability === null ? "–" : percent(probability);
  $("probability-bar").style.width = `${100 * (probability ?? 0)}%`;
  const { name, version, calibrated } = state.model;
  $("probability-note").textContent = `${name}, version ${version}${calibrated ? ", calibrated" : ""}`;
}

/** The version that the page uses: the one that the user chose, or else the one that serves. */
function usedVersion({ versions }) {
  const pinned = versions.find(({ version }) => version === state.pinned);
  return pinned ?? versions.find(({ label }) => !label) ?? versions[0];
}

/** What distinguishes models. Each worker has its own time of loading, which does not. */
function identity(models) {
  const facts = ({ version, label, share, checksum }) => [version, label, share, checksum];
  return JSON.stringify(models.map(({ name, versions }) => [name, versions.map(facts)]));
}

/** Read the models, and open the one to use if it is another one, or another file. Return whether anything changed. */
async function refreshModels() {
  const { models } = await getModels();
  const isNew = identity(models) !== identity(state.models);
  state.models = models;
  if (!models.some(({ name }) => name === state.name)) state.name = models[0]?.name ?? null;
  if (isNew) drawModels(models, state.name);
  const entry = models.find(({ name }) => name === state.name);
  if (!entry?.versions.length) {
    notify(new Error(models.length ? `${state.name} has no version.` : "The server has no models yet."));
    return isNew;
  }
  const used = usedVersion(entry);
  if (isNew) drawVersions(entry.versions, used.version, chooseVersion);
  const isOpen = ["version", "checksum"].every((key) => state.model?.[key] === used[key]);
  if (isOpen && state.model.name === entry.name) return isNew;
  const isSwap = state.model?.name === entry.name;
  await openModel(entry.name, used);
  if (isSwap) notify(new Error(`This page now uses version ${used.version} of ${entry.name}.`));
  return true;
}

async function openModel(name, { version }) {
  const isSame = state.model?.name === name; // another version of it
  const model = { ...(await request(address(name, version))), name, version };
  if (!isSame) live.reset();
  state.model = model;
  document.title = `${name} · fm2`;
  notify(null);
  form.draw(model.columns, isSame);
  ranking.draw(model, isSame);
  $("content").hidden = false;
  await score.now();
}

function chooseVersion(version) {
  const entry = state.models.find(({ name }) => name === state.name);
  const used = entry.versions.find((candidate) => candidate.version === version);
  state.pinned = used.label ? version : null; // who uses the serving version follows it
  openModel(entry.name, used).catch((error) => report(error, notify));
}

$("model").addEventListener("change", () => {
  Object.assign(state, { name: $("model").value, pinned: null, models: [] });
  refreshModels().catch((error) => report(error, notify));
});

async function refresh() {
  await refreshModels();
  const stats = await getStats();
  if (state.model) live.add(stats.time, own(stats.models, state.model.name) ?? {});
}

function becomesVisible() {
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

/** Refresh every two seconds while the page is visible. */
async function keepRefreshing() {
  let failed = false;
  for (;;) {
    if (document.hidden) await becomesVisible();
    try {
      await refresh();
      if (failed) {
        notify(null);
        if (state.model) score.now();
      }
      failed = false;
    } catch (error) {
      report(error, notify);
      if (error.status === 401) return;
      failed = true;
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH));
  }
}

keepRefreshing();
