// The board as the server tells it: a snapshot, then what changed. Knows no page, so that a worker can hold it.
import { EventFeed } from "./feed.js";

export const AGAIN = "connecting again …";
export const AGAIN_MS = 1000;
const ANSWER_MS = 10_000; // a worker says something at once, but for one that is just being ended

export class BoardStream {
  constructor(tell) {
    this.tell = tell;
    this.rows = new Map();
    this.totals = null;
    this.source = null;
    this.link = "";
  }

  // Begin, or begin again where the server did not let us in: these headers may be of a later login.
  begin(headers) {
    if (this.source && !this.source.closed) return;
    this.source = new EventFeed("events", headers);
    this.source.addEventListener("snapshot", (event) => { this.rows.clear(); this.take("snapshot", event); });
    this.source.addEventListener("changes", (event) => this.take("changes", event));
    this.source.addEventListener("open", () => this.say(""));
    this.source.addEventListener("error", () => this.say(this.source.closed ? "not let in: open a new link of zot glasspane" : AGAIN));
  }

  take(kind, event) {
    const { agents, removed, totals } = JSON.parse(event.data);
    for (const id of removed) this.rows.delete(id);
    for (const row of agents) this.rows.set(row.summary.id, row);
    this.totals = totals;
    this.tell({ kind, agents, removed, totals });
  }

  say(text) {
    this.link = text;
    this.tell({ kind: "link", text });
  }

  // What somebody has to know who comes late.
  current() {
    const link = { kind: "link", text: this.link };
    return this.totals ? [link, { kind: "snapshot", agents: [...this.rows.values()], removed: [], totals: this.totals }] : [link];
  }
}

// One stream for all tabs: a browser has six connections to a server, and a tab that waits for one does nothing.
export function openBoard(headers, tell) {
  if (typeof SharedWorker === "undefined") {
    new BoardStream(tell).begin(headers);
    return;
  }
  const connect = () => {
    const worker = new SharedWorker("worker.js", { type: "module", name: "glasspane" });
    const { port } = worker;
    const leave = () => { clearTimeout(patience); port.postMessage("bye"); port.close(); };
    const again = () => { leave(); tell({ kind: "link", text: AGAIN }); setTimeout(connect, AGAIN_MS); };
    const patience = setTimeout(again, ANSWER_MS);
    worker.onerror = again; // it could not be fetched
    port.postMessage({ headers });
    port.onmessage = (event) => { clearTimeout(patience); tell(event.data); };
    addEventListener("pagehide", leave, { once: true });
  };
  connect();
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
}
