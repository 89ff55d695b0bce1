// Server-sent events over fetch: unlike EventSource it can send a header, and so needs no cookie, which a browser
// would also send to every other port of this machine. Comes back by itself with the id of the last event it has.

const AGAIN_MS = 500;

export class EventFeed extends EventTarget {
  constructor(url, headers) {
    super();
    this.url = url;
    this.headers = headers;
    this.last = "";
    this.closed = false;
    this.leaving = new AbortController();
    this.run();
  }

  close() {
    this.closed = true;
    this.leaving.abort();
  }

  async run() {
    while (!this.closed) {
      try {
        await this.listen();
      } catch { /* the connection broke, or was closed */ }
      if (this.leaving.signal.aborted) return;
      this.dispatchEvent(new Event("error"));
      if (!this.closed) await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }

  async listen() {
    const headers = { ...this.headers, ...(this.last ? { "last-event-id": this.last } : {}) };
    const response = await fetch(this.url, { headers, cache: "no-store", signal: this.leaving.signal });
    if (!response.ok) {
      this.closed = response.status < 500; // it will not go better a second time
      return;
    }
    this.dispatchEvent(new Event("open"));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const text of events) this.take(text);
    }
  }

  take(text) {
    const fields = {};
    for (const line of text.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    if (fields.id !== undefined) this.last = fields.id;
    if (fields.event !== undefined) this.dispatchEvent(new MessageEvent(fields.event, { data: fields.data, lastEventId: this.last }));
  }
}
