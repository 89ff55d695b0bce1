// Markdown to nodes: headings, lists, quotes, tables, code, emphasis, links. Everything else is text.
import { el } from "./dom.js";

const DEEPEST = 12; // quotes in quotes, lists in lists: what is deeper is shown as text
const LONGEST = 300000;

export function markdown(text, depth = 0) {
  if (depth > DEEPEST || text.length > LONGEST) return [el("p", { class: "plain" }, text)];
  const lines = text.split("\n");
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const [node, next] = block(lines, at, depth);
    if (node) nodes.push(node);
    at = next;
  }
  return nodes;
}

function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = line.match(/^\s*(```+|~~~+)\s*(\S*)/);
  if (fence) return code(lines, at, fence);
  const heading = line.match(/^(#{1,6})\s+(.*)$/);
  if (heading) return [el(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2])), at + 1];
  if (/^\s*(-{3,}|\*{3,}|_{3,})\s*$/.test(line)) return [el("hr"), at + 1];
  if (/^\s*>/.test(line)) return quote(lines, at, depth);
  if (/^\s*([-*+]|\d+[.)])\s+/.test(line)) return list(lines, at, depth);
  if (line.includes("|") && /^[\s|:-]+$/.test(lines[at + 1] || "") && (lines[at + 1] || "").includes("-")) return table(lines, at);
  return paragraph(lines, at);
}

function code(lines, at, fence) {
  const body = [];
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence[1])) body.push(lines[end++]);
  const text = body.join("\n");
  const copy = el("button", { class: "copy", title: "Copy", onclick: () => navigator.clipboard.writeText(text) }, "copy");
  return [el("div", { class: "code" }, copy, el("pre", {}, el("code", { "data-language": fence[2] }, text))), end + 1];
}

function quote(lines, at, depth) {
  const body = [];
  while (at < lines.length && /^\s*>/.test(lines[at])) body.push(lines[at++].replace(/^\s*>\s?/, ""));
  return [el("blockquote", {}, ...markdown(body.join("\n"), depth + 1)), at];
}

function list(lines, at, depth) {
  const ordered = /^\s*\d/.test(lines[at]);
  const root = el(ordered ? "ol" : "ul");
  const indent = lines[at].match(/^\s*/)[0].length;
  while (at < lines.length) {
    const item = lines[at].match(/^(\s*)([-*+]|\d+[.)])\s+(.*)$/);
    if (!item || item[1].length < indent) break;
    const body = [item[3]];
    at += 1;
    while (at < lines.length && lines[at].trim() && (lines[at].match(/^\s*/)[0].length > indent || !/^\s*([-*+]|\d+[.)])\s+/.test(lines[at])) && lines[at].startsWith(" ".repeat(indent + 1))) {
      body.push(lines[at++].slice(indent + 2));
    }
    root.append(el("li", {}, ...(body.length > 1 ? [...inline(body[0]), ...markdown(body.slice(1).join("\n"), depth + 1)] : inline(body[0]))));
    if (at < lines.length && !lines[at].trim() && /^\s*([-*+]|\d+[.)])\s+/.test(lines[at + 1] || "")) at += 1;
  }
  return [root, at];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function table(lines, at) {
  const head = el("tr", {}, ...cells(lines[at]).map((cell) => el("th", {}, ...inline(cell))));
  const body = el("tbody");
  at += 2;
  while (at < lines.length && lines[at].includes("|")) {
    body.append(el("tr", {}, ...cells(lines[at++]).map((cell) => el("td", {}, ...inline(cell)))));
  }
  return [el("div", { class: "wide" }, el("table", {}, el("thead", {}, head), body)), at];
}

function paragraph(lines, at) {
  const body = [lines[at++]];
  while (at < lines.length && lines[at].trim() && !/^\s*(```|~~~|#{1,6}\s|>|([-*+]|\d+[.)])\s)/.test(lines[at])) body.push(lines[at++]);
  return [el("p", {}, ...inline(body.join("\n"))), at];
}

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]{1,500})\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>"')\]]+)/g;

function inline(text) {
  const nodes = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > last) nodes.push(text.slice(last, found.index));
    if (found[2] !== undefined) nodes.push(el("code", {}, found[2]));
    else if (found[3] !== undefined) nodes.push(el("strong", {}, found[3]));
    else if (found[4] !== undefined) nodes.push(el("em", {}, found[4]));
    else nodes.push(link(found[6] || found[7], found[5] || found[7]));
    last = found.index + found[0].length;
  }
  if (last < text.length) nodes.push(text.slice(last));
  return nodes;
}

function link(address, text) {
  return el("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, text);
}
