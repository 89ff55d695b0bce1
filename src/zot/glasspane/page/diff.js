// A unified diff as nodes, a part a file.
import { el } from "./dom.js";

const MOST_LINES = 20000;

export function diffView(text) {
  if (!text.trim()) return el("p", { class: "quiet" }, "Nothing has changed.");
  const root = el("div", { class: "diff" });
  const lines = text.replace(/\n$/, "").split("\n");
  let part = null, old = 0, fresh = 0;
  for (const line of lines.slice(0, MOST_LINES)) {
    if (line.startsWith("diff --git")) {
      const name = line.replace(/^diff --git a\/.* b\//, "");
      part = el("details", { open: true }, el("summary", {}, name));
      root.append(part);
      continue;
    }
    if (!part) { part = el("details", { open: true }, el("summary", {}, "changes")); root.append(part); }
    const hunk = line.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)/);
    if (hunk) { old = Number(hunk[1]); fresh = Number(hunk[2]); part.append(row("hunk", "", "", line)); continue; }
    if (/^(---|\+\+\+|index |new file|deleted file|old mode|new mode|similarity|rename |Binary )/.test(line)) {
      if (/^(new file|deleted file|rename |Binary )/.test(line)) part.append(row("quiet", "", "", line));
      continue;
    }
    if (line.startsWith("+")) part.append(row("added", "", fresh++, line));
    else if (line.startsWith("-")) part.append(row("removed", old++, "", line));
    else part.append(row("", old++, fresh++, line));
  }
  if (lines.length > MOST_LINES) root.append(el("p", { class: "quiet" }, `${lines.length - MOST_LINES} more lines are not shown: see zot swarm diff`));
  return root;
}

// What an approval of edit or write shows: a path, then lines that go and come.
export function changeView(text) {
  const [path, ...lines] = text.split("\n");
  const kinds = { "+": "added", "-": "removed" };
  return el("div", { class: "diff" }, el("details", { open: true }, el("summary", {}, path), ...lines.map((line) => row(kinds[line[0]] || "", "", "", line))));
}

function row(kind, old, fresh, text) {
  return el("div", { class: `line ${kind}` }, el("span", { class: "number" }, String(old)), el("span", { class: "number" }, String(fresh)), el("span", { class: "text" }, text));
}
