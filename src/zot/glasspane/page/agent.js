// One agent: what it says and does as it comes, its questions, its work.
import { age, attempt, count, el, fullness, money, note, post, replace, setText } from "./dom.js";
import { changeView, diffView } from "./diff.js";
import { EventFeed } from "./feed.js";
import { headers } from "./session.js";
import { markdown } from "./markdown.js";
import { stageOf } from "./board.js";

const MOST_ENTRIES = 400;
const SHOWN_OUTPUT = 4000;
const TABS = ["transcript", "diff", "timeline", "raw"];

export class AgentView {
  constructor(id, back) {
    this.id = id;
    this.back = back;
    this.summary = null;
    this.entries = [];
    this.open = null;
    this.tools = new Map();
    this.spans = [];
    this.dirty = new Set();
    this.tab = "transcript";
    this.build();
    this.listen("");
    // A tab that nobody sees holds no connection; it goes on where it was.
    this.seen = () => {
      if (document.hidden) { this.source?.close(); clearTimeout(this.again); }
      else this.listen(this.last ?? "");
    };
    document.addEventListener("visibilitychange", this.seen);
  }

  path(action) {
    return `agents/${encodeURIComponent(this.id)}/${action}`;
  }

  build() {
    this.title = el("h1", {}, this.id);
    this.state = el("span", { class: "state" });
    this.doing = el("span", { class: "doing" });
    this.facts = el("span", { class: "facts" });
    this.questions = el("div", { class: "questions" });
    this.earlier = el("button", { class: "earlier", hidden: true, onclick: () => this.showEarlier() }, "Show earlier");
    this.transcript = el("div", { class: "transcript", tabindex: "0" }, this.earlier);
    this.panel = el("div", { class: "panel", hidden: true });
    this.tabs = el("div", { class: "tabs", role: "tablist" }, ...TABS.map((name) => el("button", { role: "tab", "data-tab": name, onclick: () => this.show(name) }, name)));
    this.input = el("textarea", { rows: "2", placeholder: "A message (Enter sends, Shift+Enter breaks the line)", "aria-label": "Message", onkeydown: (event) => this.typed(event) });
    this.steer = el("button", { title: "Heard after the current tool", onclick: () => this.say("steer") }, "Steer");
    this.send = el("button", { class: "main", title: "For when it has ended what it does", onclick: () => this.say("send") }, "Send");
    this.abort = el("button", { class: "danger", title: "Stop it (x)", onclick: () => attempt(() => post(this.path("cancel")), "stopped") }, "Stop");
    this.retry = el("button", { onclick: () => attempt(() => post(this.path("retry")), "it goes on") }, "Retry");
    this.merge = el("button", { title: "Bring its work into your checkout (m)", onclick: () => this.mergeWork() }, "Merge");
    this.squash = el("label", { title: "Not one commit for each of its own" }, el("input", { type: "checkbox" }), "as one commit");
    this.remove = el("button", { title: "Take it away; nothing of its work would be lost", onclick: async () => { if (await attempt(() => post(this.path("remove")), "removed")) this.back(); } }, "Remove");
    this.composer = el("div", { class: "composer" }, this.input, el("div", { class: "buttons" }, this.send, this.steer, this.abort, this.retry, this.merge, this.squash, this.remove));
    this.node = el("section", { class: "agent" },
      el("div", { class: "head" }, el("a", { href: "#/", title: "Back (Esc)" }, "←"), el("span", { class: "badge" }, this.state), this.title, el("span", { class: "grow" }), this.tabs, el("div", { class: "line2" }, this.doing, this.facts)),
      this.questions, this.transcript, this.panel, this.composer);
    this.show("transcript");
  }

  // --- the stream --------------------------------------------------------------------------------

  listen(from) {
    this.source?.close();
    this.source = new EventFeed(this.path("events") + (from === "" ? "" : `?from=${from}`), headers());
    this.source.addEventListener("error", () => {
      // It tries again by itself, unless the server answered with an error.
      if (this.source.closed) this.again = setTimeout(() => this.listen(this.last ?? from), 2000);
    });
    this.source.addEventListener("start", (event) => {
      this.first = JSON.parse(event.data).position;
      this.earlier.hidden = this.first === 0;
    });
    this.source.addEventListener("facts", (event) => {
      const near = this.isAtEnd();
      this.last = event.lastEventId;
      for (const item of JSON.parse(event.data)) this.take(item);
      this.drawSoon(near);
    });
  }

  showEarlier() {
    const start = Math.max(0, this.first - 2 * 1024 * 1024);
    this.entries = [];
    this.tools.clear();
    this.spans = [];
    this.open = null;
    replace(this.transcript, this.earlier);
    this.first = start;
    this.last = String(start);
    this.earlier.hidden = start === 0;
    this.listen(start);
  }

  close() {
    document.removeEventListener("visibilitychange", this.seen);
    this.source?.close();
    clearTimeout(this.again);
  }

  isAtEnd() {
    const box = this.transcript;
    return box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  }

  drawSoon(follow) {
    this.follow = this.follow || follow;
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      const entries = [...this.dirty];
      this.dirty.clear();
      for (const entry of entries) {
        try { entry.draw(); } catch (error) { note(`a part cannot be shown: ${error.message}`); }
      }
      if (this.follow) this.transcript.scrollTop = this.transcript.scrollHeight;
      this.follow = false;
    });
  }

  add(entry) {
    this.entries.push(entry);
    this.transcript.append(entry.node);
    this.dirty.add(entry);
    while (this.entries.length > MOST_ENTRIES) this.entries.shift().node.remove();
    return entry;
  }

  textEntry(kind) {
    if (this.open?.kind !== kind) this.open = this.add(new TextEntry(kind));
    this.dirty.add(this.open);
    return this.open;
  }

  take({ kind, at, data }) {
    switch (kind) {
      case "UserSaid": this.open = null; this.add(new TextEntry("user", data.text)); break;
      case "TurnStarted": this.open = null; this.span("model", at); break;
      case "MessageStarted": this.open = null; this.hasText = false; break;
      case "TextAdded": if (data.text) { this.hasText = true; this.textEntry("text").add(data.text); } break;
      case "ThoughtAdded": if (data.text) this.textEntry("thought").add(data.text); break;
      case "MessageEnded":
        if (data.text && !this.hasText) this.add(new TextEntry("text", data.text));
        this.open = null;
        this.hasText = false;
        break;
      case "ToolWritten": this.tool(data.id, data.name).written(data); break;
      case "ToolArgsAdded": this.tools.get(data.id)?.argsAdded(data.text); break;
      case "ToolRuns": this.tools.get(data.id)?.runs(at); this.span(this.tools.get(data.id)?.name || "tool", at); break;
      case "ToolSaid": this.tools.get(data.id)?.said(data); break;
      case "ToolEnded": this.tools.get(data.id)?.ended(data, at); this.endSpan(at); break;
      case "Failed": this.open = null; this.add(new TextEntry("error", data.message)); break;
      case "Retrying":
        this.open = null;
        this.add(new TextEntry("note", `tries again: ${data.reason}${data.dropped ? "; the answer begins anew" : ""}`));
        break;
      case "CompactStarted": this.add(new TextEntry("note", "the conversation is being summarised")); break;
      case "CompactEnded": if (data.summary) this.add(new TextEntry("note", `summary: ${data.summary}`)); break;
      case "RunsModel": if (data.instead_of) this.add(new TextEntry("note", `${data.model} goes on instead of ${data.instead_of}`)); break;
      case "Noted": this.add(new TextEntry("note", data.text)); break;
      case "Asked": this.span("waiting", at); break;
      case "Answered": this.endSpan(at); break;
      case "RunEnded": this.open = null; this.endSpan(at); break;
      case "swarm_started": this.add(new TextEntry("note", data.attempt > 1 ? `started again, attempt ${data.attempt}` : "started")); break;
      case "swarm_exited": if (data.code) this.add(new TextEntry("note", `its process ended with ${data.code} ${data.said || ""}`)); this.endSpan(at); break;
      case "swarm_cancelled": this.add(new TextEntry("note", "stopped by a person")); break;
      case "swarm_merged": this.add(new TextEntry("note", `merged ${(data.commit || data.tip).slice(0, 12)}`)); break;
      case "swarm_lost": this.add(new TextEntry("error", data.reason)); break;
      case "run_resumed": this.open = null; this.add(new TextEntry("note", `went on after ${age(data.away_ms / 1000)}`)); break;
    }
    for (const tool of this.tools.values()) if (tool.changed) { this.dirty.add(tool); tool.changed = false; }
  }

  tool(id, name) {
    if (!this.tools.has(id)) {
      this.open = null;
      this.tools.set(id, this.add(new ToolEntry(name)));
      if (this.tools.size > MOST_ENTRIES) this.tools.delete(this.tools.keys().next().value);
    }
    return this.tools.get(id);
  }

  span(name, at) {
    this.endSpan(at);
    this.spans.push({ name, start: at, end: 0 });
    if (this.spans.length > 1000) this.spans.shift();
  }

  endSpan(at) {
    const last = this.spans.at(-1);
    if (last && !last.end) last.end = at;
  }

  // --- what the board knows of it ----------------------------------------------------------------

  update(agent) {
    this.summary = agent.summary;
    const summary = agent.summary, stage = stageOf(summary);
    this.node.dataset.stage = stage;
    setText(this.title, summary.task.split("\n")[0]);
    this.title.title = `${summary.task}\n${summary.id}\n${summary.directory}`;
    this.tick();
    const facts = [summary.model, summary.branch, `turn ${summary.turns}`, money(summary.cost_usd, summary.cost_known), cachedOf(summary), contextOf(summary)];
    if (summary.diff.files) facts.push(`+${summary.diff.added} −${summary.diff.removed}${summary.merged ? " merged" : ""}`);
    if (summary.machine) facts.push(`on ${summary.machine}`);
    setText(this.facts, facts.filter(Boolean).join(" · "));
    const runs = stage === "working" || stage === "needs_you" || stage === "stalled";
    this.composer.hidden = !agent.control;
    this.steer.hidden = !runs;
    this.abort.hidden = !runs && stage !== "queued";
    this.retry.hidden = !(stage === "failed" || stage === "lost" || stage === "cancelled");
    this.squash.hidden = this.merge.hidden = runs || !summary.diff.files || summary.merged;
    this.remove.hidden = runs || stage === "queued" || !this.merge.hidden;
    this.drawQuestions(summary.questions, agent.control);
  }

  tick() {
    if (!this.summary) return;
    const stage = stageOf(this.summary).replace("_", " ");
    const { doing, about, doing_since: since } = this.summary, now = Date.now() / 1000;
    setText(this.state, stage);
    setText(this.doing, [`${age(now - this.summary.since)}`, doing && `${doing} ${about}`.trim(), doing && since > this.summary.since + 1 && age(now - since)].filter(Boolean).join(" · "));
    for (const box of this.questions.children) {
      const left = Math.max(0, Math.floor(Number(box.dataset.until) - now));
      setText(box.querySelector(".left"), box.dataset.until ? `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} left` : "");
      box.querySelector("progress").value = left;
    }
  }

  drawQuestions(questions, control) {
    const ids = questions.map((question) => question.id).join("\n");
    if (ids === this.asked) return;
    this.asked = ids;
    replace(this.questions, ...questions.map((question) => this.questionBox(question, control)));
    this.tick();
  }

  questionBox(question, control) {
    const box = el("div", { class: "question" }, el("strong", {}, question.title), el("span", { class: "left" }), el("progress", { hidden: question.left_seconds === null, max: String((question.left_seconds || 0) + question.asked_seconds) }));
    box.dataset.until = question.left_seconds === null ? "" : String(Date.now() / 1000 + question.left_seconds);
    if (question.preview) box.append(previewOf(question));
    else if (question.args) box.append(el("pre", {}, JSON.stringify(question.args, null, 2)));
    if (!control) return box;
    const answer = (action, fields) => attempt(() => post(this.path(action), { request_id: question.id, ...fields }));
    if (question.kind === "approval") {
      const reason = el("input", { placeholder: "why not (the agent reads it)", "aria-label": "Reason" });
      box.append(el("div", { class: "buttons" },
        el("button", { class: "main", "data-key": "a", onclick: () => answer("approve", { decision: "allow" }) }, "Allow (a)"),
        el("button", { "data-key": "A", onclick: () => answer("approve", { decision: "allow_session" }) }, "Always (A)"),
        el("button", { class: "danger", "data-key": "d", onclick: () => answer("approve", { decision: "deny", reason: reason.value }) }, "Deny (d)"), reason));
    } else if (question.method === "confirm") {
      box.append(el("div", { class: "buttons" }, el("button", { class: "main", "data-key": "a", onclick: () => answer("answer", { confirmed: true }) }, "Yes (a)"), el("button", { "data-key": "d", onclick: () => answer("answer", { confirmed: false }) }, "No (d)")));
    } else if (question.options.length) {
      box.append(el("div", { class: "buttons" }, ...question.options.map((option) => el("button", { onclick: () => answer("answer", { value: option }) }, option))));
    } else {
      const input = el("textarea", { rows: "2", "aria-label": question.title });
      box.append(input, el("div", { class: "buttons" }, el("button", { class: "main", onclick: () => answer("answer", { value: input.value }) }, "Answer"), el("button", { onclick: () => answer("answer", { cancelled: true }) }, "Cancel")));
    }
    return box;
  }

  // --- doing -------------------------------------------------------------------------------------

  typed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.say(this.steer.hidden ? "send" : "steer");
    }
  }

  async say(action) {
    const text = this.input.value.trim();
    if (!text) return;
    const answer = await attempt(() => post(this.path(action), { text }), action === "send" ? "taken" : "");
    if (answer) this.input.value = "";
  }

  async mergeWork() {
    this.merge.disabled = true; // until it has ended: a second click would merge once more
    const answer = await attempt(() => post(this.path("merge"), { squash: this.squash.firstChild.checked }));
    this.merge.disabled = false;
    if (answer) note(`merged ${answer.commit.slice(0, 12)}`, "fine");
  }

  show(name) {
    this.tab = name;
    for (const button of this.tabs.children) button.setAttribute("aria-selected", String(button.dataset.tab === name));
    this.transcript.hidden = name !== "transcript";
    this.panel.hidden = name === "transcript";
    if (name === "diff") this.showDiff();
    else if (name === "timeline") this.showTimeline();
    else if (name === "raw") this.showRaw();
  }

  async fetched(path) {
    const response = await fetch(path, { headers: headers() });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }

  async showDiff() {
    replace(this.panel, el("p", { class: "quiet" }, "…"));
    const answer = await attempt(() => this.fetched(this.path("diff")));
    if (this.tab === "diff") replace(this.panel, answer ? diffView(answer.diff) : el("p", { class: "quiet" }, "There is no diff."));
  }

  async showRaw() {
    const answer = await attempt(() => this.fetched(this.path("raw")));
    if (this.tab !== "raw" || !answer) return;
    replace(this.panel, el("div", { class: "raw" }, ...answer.rows.map((row) => el("pre", {}, JSON.stringify(row.frame)))));
    this.panel.scrollTop = this.panel.scrollHeight;
  }

  showTimeline() {
    const spans = this.spans.filter((span) => span.start);
    if (!spans.length) { replace(this.panel, el("p", { class: "quiet" }, "Nothing has happened yet.")); return; }
    const begin = spans[0].start, end = Math.max(...spans.map((span) => span.end || Date.now() / 1000));
    const bars = spans.map((span) => {
      const last = span.end || Date.now() / 1000;
      const bar = el("div", { class: `span ${kindOf(span.name)}`, title: `${span.name} ${(last - span.start).toFixed(1)} s` });
      bar.style.left = `${(100 * (span.start - begin)) / Math.max(0.001, end - begin)}%`;
      bar.style.width = `${Math.max(0.3, (100 * (last - span.start)) / Math.max(0.001, end - begin))}%`;
      return bar;
    });
    const sums = new Map();
    for (const span of spans) sums.set(span.name, (sums.get(span.name) || 0) + ((span.end || Date.now() / 1000) - span.start));
    replace(this.panel, el("div", { class: "timeline" }, ...bars), el("div", { class: "ends" }, el("span", {}, clock(begin)), el("span", {}, clock(end))),
      el("ul", { class: "legend" }, ...[...sums].sort((a, b) => b[1] - a[1]).map(([name, seconds]) => el("li", {}, el("i", { class: `span ${kindOf(name)}` }), name, el("b", {}, seconds < 600 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : age(seconds))))));
  }

  key(event) {
    const button = this.questions.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (button) button.click();
    else if (event.key === "Escape") this.back();
    else if (event.key === "i") this.input.focus();
    else if (event.key === "x" && !this.abort.hidden) this.abort.click();
    else if (event.key === "m" && !this.merge.hidden) this.merge.click();
    else if ("1234".includes(event.key)) this.show(TABS[Number(event.key) - 1]);
    else return false;
    return true;
  }
}

class TextEntry {
  constructor(kind, text = "") {
    this.kind = kind;
    this.text = text;
    this.node = kind === "thought" ? el("details", { class: "entry thought" }, el("summary", {}, "thinking"), el("div", {})) : el("div", { class: `entry ${kind}` });
  }

  add(text) {
    this.text += text;
  }

  draw() {
    if (this.kind === "text") replace(this.node, ...markdown(this.text));
    else setText(this.kind === "thought" ? this.node.lastChild : this.node, this.text);
  }
}

class ToolEntry {
  constructor(name) {
    this.name = name;
    this.raw = "";
    this.args = null;
    this.output = "";
    this.result = null;
    this.changed = true;
    this.head = el("summary", {});
    this.body = el("div", { class: "body" });
    this.node = el("details", { class: "entry tool" }, this.head, this.body);
  }

  written({ name, args }) { this.name = name || this.name; if (args) this.args = args; this.changed = true; }
  argsAdded(text) { this.raw += text; this.changed = true; }
  runs(at) { this.startedAt = at; this.changed = true; }

  said({ text, whole }) {
    this.output = (whole ? text : this.output + text).slice(-SHOWN_OUTPUT);
    this.node.open = true;
    this.changed = true;
  }

  ended({ failed, text }, at) {
    this.result = text;
    this.failed = failed;
    this.seconds = this.startedAt ? at - this.startedAt : 0;
    this.node.open = false;
    this.changed = true;
  }

  main() {
    const args = this.args || {};
    return String(args.command || args.path || args.file_path || args.pattern || args.url || this.raw || Object.values(args)[0] || "").split("\n")[0].slice(0, 200);
  }

  draw() {
    this.node.classList.toggle("failed", Boolean(this.failed));
    this.node.classList.toggle("running", this.result === null);
    replace(this.head, el("b", {}, this.name), " ", el("code", {}, this.main()), this.seconds ? el("span", { class: "quiet" }, ` ${this.seconds.toFixed(1)} s`) : "");
    const shown = this.result ?? this.output;
    const cut = shown.length > SHOWN_OUTPUT ? `${shown.slice(0, SHOWN_OUTPUT / 2)}\n… ${shown.length - SHOWN_OUTPUT} characters …\n${shown.slice(-SHOWN_OUTPUT / 2)}` : shown;
    const edit = this.args ? editView(this.args) : null;
    replace(this.body, edit, this.args && !edit ? el("pre", { class: "args" }, JSON.stringify(this.args, null, 2)) : "", cut ? el("pre", { class: "output" }, cut) : "");
  }
}

function previewOf({ tool, preview }) {
  if (/^(@@|--- |\+\+\+ |diff )/m.test(preview)) return diffView(preview);
  return (tool === "edit" || tool === "write") && /^[-+]/m.test(preview) ? changeView(preview) : el("pre", {}, preview);
}

// Share of the input that came from the provider's prompt cache; empty: none did.
function cachedOf(summary) {
  const read = summary.cache_read_tokens;
  return read ? `${Math.round((100 * read) / (read + summary.input_tokens))} % of input cached` : "";
}

function contextOf(summary) {
  const percent = fullness(summary);
  return percent === null ? `${count(summary.context_tokens)} in context` : `context ${percent} % of ${count(summary.context_window)}`;
}

const kindOf = (name) => (name === "model" || name === "waiting" ? name : "tool");
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

// What a call of edit or write changes, as far as its arguments tell; null: it is neither.
function editView(args) {
  const lines = (text, sign) => String(text).split("\n").map((line) => sign + line);
  const change = (before, after) => {
    const gone = before ? lines(before, "-") : [], come = after ? lines(after, "+") : [];
    return [`@@ -1,${gone.length} +1,${come.length} @@`, ...gone, ...come];
  };
  if (typeof args.old_text === "string") return diffView(change(args.old_text, args.new_text).join("\n"), "bare");
  if (Array.isArray(args.edits) && args.edits.length) return diffView(args.edits.flatMap((edit) => change(edit?.oldText, edit?.newText)).join("\n"), "bare");
  if (typeof args.content === "string" && typeof args.path === "string") return diffView(change("", args.content).join("\n"), "bare");
  return null;
}
