// Requests to the server. A missing API key is asked for once, and kept in the session's storage only.
import { $ } from "./dom.js";

const KEY = "fm2-key";
let asking = null;

/** An answer that is an error: its message, and the column that it concerns, if the server names one. */
export class ApiError extends Error {
  constructor(status, message, column = null) {
    super(message);
    this.status = status;
    this.column = column;
  }
}

/** An entry of an answer; a field may have the name of an inherited property, like constructor. */
export function own(object, name) {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

export const getModels = () => request("v1/models");
export const getStats = () => request("v1/stats");

/** The address of a version of a model, relative to the page. */
export function address(model, version, operation = "") {
  const path = `v1/models/${encodeURIComponent(model)}/versions/${encodeURIComponent(version)}`;
  return operation ? `${path}/${operation}` : path;
}

export async function request(path, body, signal) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await send(path, body, signal, key);
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    const message = answer.error || `the server answered ${response.status}`;
    if (response.status !== 401) throw new ApiError(response.status, message, answer.column ?? null);
    if (key === sessionStorage.getItem(KEY)) await askForKey(key ? message : "This server asks for an API key.");
  }
}

async function send(path, body, signal, key) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  try {
    return await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
}

/** Show the dialog; several requests that need a key at the same time share it. */
function askForKey(message) {
  asking ??= new Promise((resolve, reject) => {
    const dialog = $("key");
    $("key-message").textContent = message;
    $("key-value").value = "";
    $("key-cancel").onclick = () => dialog.close();
    $("key-form").onsubmit = () => sessionStorage.setItem(KEY, $("key-value").value);
    dialog.returnValue = "";
    dialog.onclose = () => {
      asking = null;
      if (dialog.returnValue === "continue") resolve();
      else reject(new ApiError(401, "This server asks for an API key. Reload the page to enter one."));
    };
    dialog.showModal();
  });
  return asking;
}
