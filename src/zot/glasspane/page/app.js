// The whole page: logs in with the code of its address, keeps the board up to date, shows what is asked for.
import { AgentView } from "./agent.js";
import { BoardView, ORDER, stageOf } from "./board.js";
import { AGAIN, AGAIN_MS, openBoard } from "./stream.js";
import { count, el, money, newClick, note, post, replace, setText } from "./dom.js";
import { borrow, headers, keep } from "./session.js";

const main = document.getElementById("main");
const agents = new Map();
const board = new BoardView((id) => { location.hash = `#/agent/${encodeURIComponent(id)}`; });
let view = board;
let directory = "";
const rates = [];

async function begin() {
  const code = codeInAddress();
  if (!code) await borrow();
  try {
    await enter(code ? { code } : {});
  } catch (error) {
    askForCode(error.message);
    return;
  }
  listen();
  addEventListener("hashchange", route);
  route();
  setInterval(() => { view.tick(); }, 1000);
}

// The code of a link works once, and leaves the address at once.
function codeInAddress() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) history.replaceState(null, "", location.pathname);
  return code;
}

async function enter(fields) {
  const answer = await login(fields);
  if (answer.session) keep(answer.session);
  directory = answer.directory;
  document.body.dataset.role = answer.role;
}

function askForCode(why) {
  const field = el("input", { type: "password", name: "code", autocomplete: "off", "aria-label": "Code or token" });
  const form = el("form", { class: "login" }, field, el("button", { class: "main" }, "Open"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await enter({ code: field.value.trim() });
      location.reload();
    } catch (error) { askForCode(error.message); }
  });
  replace(main, el("p", { class: "empty" }, why), form);
  addEventListener("hashchange", () => { if (/[#&]code=/.test(location.hash)) location.reload(); }, { once: true });
}

// A connection that breaks before the server has answered says nothing about the code. The server answers the same
// click twice, so that a code whose answer was lost is not used up.
async function login(fields) {
  const click = newClick();
  for (;;) {
    try {
      const answer = await post("login", { ...fields, click });
      link("");
      return answer;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // what the server said
      link(AGAIN);
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}

function listen() {
  openBoard(headers(), (message) => {
    if (message.kind === "link") { link(message.text); return; }
    if (message.kind === "snapshot") agents.clear();
    take(message);
  });
}

function link(text) {
  setText(document.getElementById("link"), text);
  document.body.classList.toggle("offline", Boolean(text));
}

function take({ agents: rows, removed, totals }) {
  for (const id of removed) agents.delete(id);
  for (const row of rows) {
    const before = agents.get(row.summary.id);
    if (before && stageOf(before.summary) !== stageOf(row.summary)) tell(row.summary);
    agents.set(row.summary.id, row);
  }
  const waiting = [...agents.values()].filter(({ summary }) => summary.stage === "needs_you").length;
  document.title = waiting ? `(${waiting}) Glasspane` : "Glasspane";
  setText(document.getElementById("totals"), `${agents.size} agents · ${money(totals.cost_usd, totals.cost_known)} · ${count(totals.tokens)} tokens${perMinute(totals.tokens)}`);
  board.update(agents, view === board);
  if (view !== board && agents.has(view.id)) view.update(agents.get(view.id));
}

// How many tokens the last minute took, once it is known.
function perMinute(tokens) {
  const now = Date.now();
  rates.push([now, tokens]);
  while (rates.length > 1 && now - rates[1][0] > 60_000) rates.shift();
  if (rates.length > 400) rates.splice(1, 1);
  const [then, before] = rates[0], seconds = (now - then) / 1000;
  return seconds > 5 && tokens > before ? ` · ${count(Math.round(((tokens - before) * 60) / seconds))}/min` : "";
}

// A person who asked for it hears of the two moments that matter, while looking elsewhere.
function tell(summary) {
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  if (summary.stage === "needs_you" || summary.stage === "done") {
    new Notification(`${summary.stage === "done" ? "Done" : "Needs you"}: ${summary.task.split("\n")[0].slice(0, 80)}`, { tag: summary.id });
  }
}

function route() {
  const code = codeInAddress(); // a new link was opened in this tab
  if (code) { enter({ code }).then(() => location.reload(), (error) => note(error.message)); return; }
  const match = location.hash.match(/^#\/agent\/(.+)$/);
  if (view !== board) view.close();
  if (match) {
    const id = decodeURIComponent(match[1]);
    view = new AgentView(id, () => { location.hash = "#/"; });
    if (agents.has(id)) view.update(agents.get(id));
  } else {
    view = board;
    board.draw();
  }
  replace(main, view.node);
}

// --- a new task ------------------------------------------------------------------------------------

function newTask() {
  if (document.querySelector("dialog")) return;
  const field = (label, name, props = {}) => el("label", {}, label, el("input", { name, ...props }));
  const prompt = el("textarea", { name: "prompt", rows: "5", required: true, placeholder: "What is to be done?" });
  const refused = el("p", { class: "refused", role: "alert" });
  const form = el("form", { method: "dialog" }, el("h2", {}, "New task"), prompt,
    field("Directory", "directory", { value: directory }), field("Provider", "provider", { placeholder: "as configured" }), field("Model", "model", { placeholder: "as configured" }), field("Begin with", "base", { placeholder: "what is checked out" }),
    field("At most, USD", "max_cost", { type: "number", step: "0.01", min: "0.01", placeholder: "no limit" }), field("At most, min", "minutes", { type: "number", step: "1", min: "1", placeholder: "no limit" }),
    field("Ask before", "approve", { placeholder: "bash,write,edit or all" }), el("label", {}, "Jail", el("input", { name: "jail", type: "checkbox", title: "Keep its tools in its directory, offline" })),
    refused, el("div", { class: "buttons" }, el("button", { class: "main", value: "go" }, "Begin"), el("button", { value: "no", formnovalidate: true }, "Cancel")));
  const dialog = el("dialog", { onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    if (event.submitter?.value === "no") return;
    event.preventDefault(); // it stays open until the task is taken: what was written is not lost
    const fields = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    if (fields.max_cost) fields.max_cost = Number(fields.max_cost);
    if (fields.minutes) fields.max_seconds = 60 * Number(fields.minutes);
    if (fields.jail) fields.jail = true;
    if (fields.approve) fields.approve = fields.approve.split(",").map((word) => word.trim()).filter(Boolean);
    try {
      const answer = await post("agents", fields);
      dialog.close();
      location.hash = `#/agent/${encodeURIComponent(answer.id)}`;
    } catch (error) { setText(refused, error.message); }
  });
  document.body.append(dialog);
  dialog.showModal();
  prompt.focus();
}

const KEYS = [["j k Enter", "choose an agent, open it"], ["/", "filter the board"], ["g", "the agent that needs you most"], ["a A d", "allow, always allow, deny"],
  ["i", "write to the agent"], ["x m", "stop it, merge its work"], ["1 2 3 4", "transcript, diff, timeline, raw"], ["n", "a new task"], ["t", "light or dark"], ["Esc", "back"]];

function showKeys() {
  const close = el("button", { class: "main", value: "no" }, "Close");
  const dialog = el("dialog", { onclose: () => dialog.remove() }, el("form", { method: "dialog" }, el("h2", {}, "Keys"),
    el("dl", { class: "keys" }, ...KEYS.flatMap(([keys, what]) => [el("dt", {}, ...keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, what)])), el("div", { class: "buttons" }, close)));
  document.body.append(dialog);
  dialog.showModal();
}

// --- keys and looks --------------------------------------------------------------------------------

function theme(next) {
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("theme", next); } catch { /* private windows forget */ }
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
}

addEventListener("keydown", (event) => {
  const writes = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && writes) { event.target.blur(); return; }
  if (writes || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (view.key(event)) event.preventDefault();
  else if (event.key === "n") { event.preventDefault(); newTask(); }
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") showKeys();
  else if (event.key === "g") {
    const next = [...agents.values()].sort((a, b) => ORDER.indexOf(stageOf(a.summary)) - ORDER.indexOf(stageOf(b.summary)))[0];
    if (next) location.hash = `#/agent/${encodeURIComponent(next.summary.id)}`;
  }
});
document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("keys").addEventListener("click", showKeys);
const bell = document.getElementById("bell");
bell.hidden = !("Notification" in window) || Notification.permission !== "default";
bell.addEventListener("click", async () => { await Notification.requestPermission(); bell.hidden = true; });
document.getElementById("new").addEventListener("click", newTask);
try { const saved = localStorage.getItem("theme"); if (saved) theme(saved); } catch { /* none */ }
begin().catch((error) => note(error.message));
