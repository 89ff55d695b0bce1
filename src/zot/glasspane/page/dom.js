// Small helpers to build pages. Text only ever becomes text nodes: nothing an agent says is markup.
import { headers } from "./session.js";

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined && child !== ""));
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function age(seconds) {
  const s = Math.max(0, seconds);
  if (s >= 86400) return `${Math.floor(s / 86400)} d`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h`;
  if (s >= 60) return `${Math.floor(s / 60)} min`;
  return `${Math.floor(s)} s`;
}

export function money(usd, known = true) {
  return `${known ? "" : "≥ "}$${usd.toFixed(usd && usd < 0.01 ? 4 : 2)}`;
}

export function count(number) {
  if (number >= 1e6) return `${(number / 1e6).toFixed(1).replace(".0", "")}M`;
  if (number >= 1e3) return `${(number / 1e3).toFixed(1).replace(".0", "")}k`;
  return String(number);
}

// How full the model's context is: of a window that is known in percent.
export function fullness({ context_tokens: used, context_window: window }) {
  return used && window ? Math.min(100, Math.round((100 * used) / window)) : null;
}

let clicks = 0;

export function newClick() {
  clicks += 1;
  return `${Date.now().toString(36)}-${clicks}-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
}

// Send a command; the same click is done once, however often it arrives.
export async function post(path, fields = {}) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers() },
    body: JSON.stringify({ click: newClick(), ...fields }),
  });
  const answer = await response.json().catch(() => ({ error: `the server said ${response.status}` }));
  if (!response.ok) throw new Error(answer.error || `the server said ${response.status}`);
  return answer;
}

export function note(text, kind = "error") {
  const box = document.getElementById("notes");
  const line = el("div", { class: `toast ${kind}` }, text, el("button", { onclick: () => line.remove(), title: "Close" }, "×"));
  box.append(line);
  while (box.children.length > 4) box.firstChild.remove();
  if (kind !== "error") setTimeout(() => line.remove(), 5000);
}

export async function attempt(work, done = "") {
  try {
    const answer = await work();
    if (done) note(done, "fine");
    return answer;
  } catch (error) {
    note(error.message);
    return null;
  }
}
