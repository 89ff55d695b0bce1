// A unified diff as nodes, a part a file.
import { el } from "./dom.js";

const MOST_LINES = 20000;

export function diffView(text, kind = "") {
  if (!text.trim()) return el("p", { class: "quiet" }, "Nothing has changed.");
  const root = el("div", { class: `diff ${kind}` });
  const lines = text.replace(/\n$/, "").split("\n");
  let part = null, old = 0, fresh = 0;
  let oldLeft = 0, freshLeft = 0; // of the hunk: a line that goes may look like a head
  for (const line of lines.slice(0, MOST_LINES)) {
    const inside = oldLeft > 0 || freshLeft > 0;
    if (!inside && line.startsWith("diff --git")) {
      part = el("details", { open: true }, el("summary", {}, line.replace(/^diff --git a\/.* b\//, "")));
      root.append(part);
      continue;
    }
    if (!part) { part = el("details", { open: true }, el("summary", {}, "changes")); root.append(part); }
    const hunk = line.match(/^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))?/);
    if (!inside && hunk) {
      [old, oldLeft, fresh, freshLeft] = [hunk[1], hunk[2] ?? 1, hunk[3], hunk[4] ?? 1].map(Number);
      part.append(row("hunk", "", "", line));
    } else if (!inside && /^(---|\+\+\+|index |new file|deleted file|old mode|new mode|similarity|rename |Binary )/.test(line)) {
      if (/^(new file|deleted file|rename |Binary )/.test(line)) part.append(row("quiet", "", "", line));
    } else if (line.startsWith("+")) { part.append(row("added", "", fresh++, line)); freshLeft -= 1; }
    else if (line.startsWith("-")) { part.append(row("removed", old++, "", line)); oldLeft -= 1; }
    else if (line.startsWith("\\")) part.append(row("quiet", "", "", line));
    else { part.append(row("", old++, fresh++, line)); oldLeft -= 1; freshLeft -= 1; }
  }
  if (lines.length > MOST_LINES) root.append(el("p", { class: "quiet" }, `${lines.length - MOST_LINES} more lines are not shown: see zot swarm diff`));
  return root;
}

// What an approval of edit or write shows: a path, then lines that go and come.
export function changeView(text) {
  const [path, ...lines] = text.split("\n");
  const kinds = { "+": "added", "-": "removed" };
  return el("div", { class: "diff bare" }, el("details", { open: true }, el("summary", {}, path), ...lines.map((line) => row(kinds[line[0]] || "", "", "", line))));
}

function row(kind, old, fresh, text) {
  return el("div", { class: `line ${kind}` }, el("span", { class: "number" }, String(old)), el("span", { class: "number" }, String(fresh)), el("span", { class: "text" }, text));
}
