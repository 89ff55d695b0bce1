// The board: a row an agent, those that need somebody first.
import { age, count, el, fullness, money, replace, setText } from "./dom.js";

export const ORDER = ["needs_you", "failed", "lost", "stalled", "working", "queued", "done", "cancelled"];
const LABELS = { needs_you: "needs you", failed: "failed", lost: "lost", stalled: "stalled", working: "working", queued: "queued", done: "done", cancelled: "cancelled" };

const projectOf = (summary) => summary.directory.split("/").filter(Boolean).at(-1) || "";
const machineOf = (summary) => summary.machine || "this machine";

export function stageOf(summary) {
  return summary.stalled ? "stalled" : summary.stage;
}

export class BoardView {
  constructor(open) {
    this.open = open;
    this.rows = new Map();
    this.filter = "";
    this.stage = "";
    this.chips = el("div", { class: "chips", role: "toolbar" });
    this.search = el("input", { type: "search", placeholder: "Filter (/)", "aria-label": "Filter", oninput: () => { this.filter = this.search.value.toLowerCase(); this.draw(); } });
    this.projects = new Choice("All projects", projectOf, () => this.draw());
    this.machines = new Choice("All machines", machineOf, () => this.draw());
    this.list = el("div", { class: "rows", role: "list" });
    this.empty = el("p", { class: "quiet empty", hidden: true }, "No agents yet. Press n for a new task, or: zot swarm new \"what is to be done\"");
    this.node = el("section", { class: "board" }, el("div", { class: "bar" }, this.chips, el("div", { class: "narrow" }, this.projects.node, this.machines.node, this.search)), this.empty, this.list);
    this.agents = new Map();
    this.known = false;
    this.selected = "";
  }

  update(agents, visible) {
    this.agents = agents;
    this.known = true;
    if (visible) this.drawSoon();
  }

  drawSoon() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => { this.drawing = false; this.draw(); });
  }

  sorted() {
    const shown = [...this.agents.values()].filter(({ summary }) => {
      if (this.stage && stageOf(summary) !== this.stage) return false;
      if (!this.projects.takes(summary) || !this.machines.takes(summary)) return false;
      return !this.filter || `${summary.id} ${summary.task} ${summary.directory} ${summary.model} ${summary.machine}`.toLowerCase().includes(this.filter);
    });
    return shown.sort((a, b) => ORDER.indexOf(stageOf(a.summary)) - ORDER.indexOf(stageOf(b.summary)) || b.summary.since - a.summary.since);
  }

  draw() {
    const counts = new Map();
    for (const { summary } of this.agents.values()) counts.set(stageOf(summary), (counts.get(stageOf(summary)) || 0) + 1);
    const shown = `${this.stage} ${[...counts].sort().join(" ")}`;
    if (shown !== this.counted) this.drawChips(counts);
    this.counted = shown;
    for (const choice of [this.projects, this.machines]) choice.offer(this.agents.values());
    this.empty.hidden = !this.known || this.agents.size > 0;
    this.drawRows();
  }

  drawChips(counts) {
    replace(this.chips, ...ORDER.filter((stage) => counts.has(stage)).map((stage) =>
      el("button", { class: `chip ${stage}`, "aria-pressed": String(this.stage === stage), onclick: () => { this.stage = this.stage === stage ? "" : stage; this.draw(); } }, el("b", {}, String(counts.get(stage))), ` ${LABELS[stage]}`)));
  }

  drawRows() {
    const sorted = this.sorted();
    const ids = new Set(sorted.map((agent) => agent.summary.id));
    for (const [id, row] of this.rows) if (!ids.has(id)) { row.node.remove(); this.rows.delete(id); }
    let before = this.list.firstChild;
    for (const agent of sorted) {
      const id = agent.summary.id;
      if (!this.rows.has(id)) this.rows.set(id, this.makeRow(id));
      const row = this.rows.get(id);
      this.fill(row, agent.summary);
      if (row.node !== before) this.list.insertBefore(row.node, before);
      else before = before.nextSibling;
    }
    this.mark();
  }

  makeRow(id) {
    const part = (name) => el("span", { class: name });
    const names = ["state", "since", "task", "doing", "turns", "context", "percent", "added", "removed", "merged", "cost", "model", "project"];
    const row = Object.fromEntries(names.map((name) => [name, part(name)]));
    row.node = el("a", { class: "row", role: "listitem", href: `#/agent/${encodeURIComponent(id)}` },
      el("span", { class: "badge" }, row.state), row.since,
      el("span", { class: "what" }, row.task, row.doing),
      el("span", { class: "size" }, row.added, row.removed, row.merged),
      row.cost, el("span", { class: "used" }, row.turns, el("span", { class: "full" }, row.context, row.percent)), el("span", { class: "where" }, row.model, row.project));
    row.context.append(el("i"));
    return row;
  }

  fill(row, summary) {
    row.summary = summary;
    const stage = stageOf(summary);
    row.node.dataset.stage = stage;
    setText(row.state, LABELS[stage]);
    setText(row.task, summary.task.split("\n")[0]);
    row.task.title = summary.task;
    setText(row.doing, [summary.doing, summary.about].filter(Boolean).join("  "));
    const tokens = summary.input_tokens + summary.output_tokens, percent = fullness(summary);
    setText(row.turns, summary.turns ? `${summary.turns} turn${summary.turns === 1 ? "" : "s"}${tokens ? ` · ${count(tokens)} tok` : ""}` : "");
    row.context.hidden = row.percent.hidden = percent === null;
    row.context.classList.toggle("high", percent >= 80);
    row.context.firstChild.style.width = `${percent}%`;
    row.context.title = `${count(summary.context_tokens)} of ${count(summary.context_window)} tokens in context`;
    setText(row.percent, `${percent} %`);
    setText(row.added, summary.diff.files ? `+${summary.diff.added}` : "");
    setText(row.removed, summary.diff.files ? `−${summary.diff.removed}` : "");
    setText(row.merged, summary.merged ? "merged" : "");
    setText(row.cost, summary.cost_usd || !summary.cost_known ? money(summary.cost_usd, summary.cost_known) : "");
    setText(row.model, summary.model);
    setText(row.project, [projectOf(summary), summary.machine].filter(Boolean).join(" · "));
    row.project.title = summary.directory;
    setText(row.since, age(Date.now() / 1000 - summary.since));
  }

  tick() {
    for (const row of this.rows.values()) setText(row.since, age(Date.now() / 1000 - row.summary.since));
  }

  mark() {
    for (const [id, row] of this.rows) row.node.classList.toggle("selected", id === this.selected);
  }

  move(step) {
    const ids = this.sorted().map((agent) => agent.summary.id);
    if (!ids.length) return;
    const at = ids.indexOf(this.selected);
    this.selected = ids[Math.min(ids.length - 1, Math.max(0, at + step))];
    this.mark();
    this.rows.get(this.selected).node.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.key === "j" || event.key === "ArrowDown") this.move(1);
    else if (event.key === "k" || event.key === "ArrowUp") this.move(-1);
    else if (event.key === "Enter" && this.selected) this.open(this.selected);
    else if (event.key === "/") this.search.focus();
    else return false;
    return true;
  }
}

// Which project or machine; there is nothing to choose from where all are the same.
class Choice {
  constructor(all, valueOf, changed) {
    this.all = all;
    this.valueOf = valueOf;
    this.node = el("select", { "aria-label": all, hidden: true, onchange: changed });
  }

  takes(summary) {
    return !this.node.value || this.valueOf(summary) === this.node.value;
  }

  offer(agents) {
    const values = [...new Set([...agents].map(({ summary }) => this.valueOf(summary)))].sort();
    if (values.join("\n") === this.offered) return;
    this.offered = values.join("\n");
    const chosen = values.includes(this.node.value) ? this.node.value : "";
    replace(this.node, el("option", { value: "" }, this.all), ...values.map((value) => el("option", { value }, value)));
    this.node.value = chosen;
    this.node.hidden = values.length < 2;
  }
}
