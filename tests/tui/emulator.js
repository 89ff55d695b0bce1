// A terminal without a window: xterm.js behind lines of JSON. Started by support/terminal.py.
const { Terminal } = require(process.argv[2]);
let term;
let replies = "";

function make(columns, rows) {
  term = new Terminal({ cols: columns, rows: rows, scrollback: 5000, allowProposedApi: true });
  replies = "";
  term.onData((data) => { replies += data; });
}

function line(index) {
  const row = term.buffer.active.getLine(index);
  return row ? row.translateToString(true) : "";
}

function cells(index) {
  const row = term.buffer.active.getLine(index);
  const out = [];
  for (let x = 0; x < term.cols; x++) {
    const cell = row.getCell(x);
    if (cell.getWidth() === 0) continue;
    out.push([cell.getChars() || " ", cell.getWidth(), cell.isFgDefault() ? -1 : cell.getFgColor(),
      cell.isFgRGB(), !!cell.isBold(), !!cell.isDim(), !!cell.isItalic(), !!cell.isUnderline(),
      !!cell.isInverse(), !!cell.isStrikethrough(),
      cell.isBgDefault() ? -1 : cell.getBgColor(), cell.isBgRGB()]);
  }
  return out;
}

function answer(request) {
  const buffer = term.buffer.active;
  const all = [];
  const wrapped = [];
  for (let i = 0; i < buffer.length; i++) {
    all.push(line(i));
    wrapped.push(buffer.getLine(i).isWrapped);
  }
  const result = {
    lines: all.slice(buffer.baseY), history: all.slice(0, buffer.baseY),
    column: buffer.cursorX, row: buffer.cursorY, kind: buffer.type, replies: replies,
    wrapped: wrapped,
  };
  replies = "";
  if (request.cells) {
    result.cells = [];
    for (let i = buffer.baseY; i < buffer.length; i++) result.cells.push(cells(i));
  }
  return result;
}

function take(request, done) {
  if (request.make) make(...request.make);
  if (request.resize) term.resize(...request.resize);
  term.write(Buffer.from(request.write || "", "base64"), () => {
    process.stdout.write(JSON.stringify(answer(request)) + "\n");
    done();
  });
}

let held = "";
const waiting = [];
let working = false;
function next() {
  if (working || !waiting.length) return;
  working = true;
  take(JSON.parse(waiting.shift()), () => { working = false; next(); });
}
process.stdin.on("data", (data) => {
  held += data;
  const lines = held.split("\n");
  held = lines.pop();
  waiting.push(...lines);
  next();
});
