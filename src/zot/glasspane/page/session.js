// The session of this page: a secret that the server gave for a code. It stays in this tab, is sent as a header to
// this server alone, and is passed to other tabs of the same page only: another port is another site to a browser.

const NAME = "session";
const ANSWER_MS = 400;
const tabs = new BroadcastChannel("glasspane");
let secret = stored();

tabs.onmessage = ({ data }) => { if (data === "ask" && secret) tabs.postMessage({ secret }); };

export function headers() {
  return { "x-zot": "1", ...(secret ? { "x-zot-session": secret } : {}) };
}

export function keep(value) {
  secret = value;
  try { sessionStorage.setItem(NAME, value); } catch { /* it is gone with a reload */ }
}

// Take the session of another tab, if there is one and this tab has none.
export async function borrow() {
  if (secret) return;
  const value = await new Promise((done) => {
    const other = new BroadcastChannel("glasspane");
    const end = (found) => { other.close(); done(found); };
    other.onmessage = ({ data }) => { if (data.secret) end(data.secret); };
    other.postMessage("ask");
    setTimeout(() => end(""), ANSWER_MS);
  });
  if (value) keep(value);
}

function stored() {
  try { return sessionStorage.getItem(NAME) ?? ""; } catch { return ""; }
}
