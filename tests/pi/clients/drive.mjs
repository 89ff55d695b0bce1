// Drives a server through every method of pi's own RpcClient, unmodified, and prints one JSON
// object: what each method gave back, and the events it heard.
//
//   node drive.mjs <rpc-client.js> <shim.mjs | path:DIR> <JSON array of arguments>
import { pathToFileURL } from "node:url";

const [, , clientFile, how, args] = process.argv;
const { RpcClient } = await import(pathToFileURL(clientFile));
const viaPath = how.startsWith("path:");
const client = new RpcClient({
  cliPath: viaPath ? "unused.js" : how,
  provider: process.env.PROVIDER,
  model: process.env.MODEL,
  args: JSON.parse(args),
  env: viaPath ? { PATH: `${how.slice(5)}:${process.env.PATH}` } : {},
});

const results = {};
const called = new Set();
async function note(name, call) {
  try {
    const value = await call();
    results[name] = { ok: true, value: value === undefined ? "undefined" : value };
  } catch (error) {
    results[name] = { ok: false, error: String(error.message ?? error) };
  }
}
function has(method) {
  called.add(method);
  return typeof client[method] === "function";
}
// Every client can wait for one of these; which one depends on its age.
async function idle(start) {
  const settled = client.waitForIdle(20000);
  await start();
  await settled;
}

await client.start();
called.add("start");
const types = [];
const unsubscribe = client.onEvent((event) => types.push(event.type));
called.add("onEvent");

await note("getState0", () => client.getState());
await note("getLastAssistantText0", () => client.getLastAssistantText());
await note("getCommands", () => client.getCommands());
await note("getAvailableModels", () => client.getAvailableModels());
await note("promptAndWait", async () => (await client.promptAndWait("first")).map((e) => e.type));
await note("getLastAssistantText", () => client.getLastAssistantText());
await note("getMessages", () => client.getMessages());
await note("prompt", async () => {
  let disposition;
  await idle(async () => { disposition = await client.prompt("tool please"); });
  return disposition;
});
await note("collectEvents", async () => {
  const collecting = client.collectEvents(20000);
  await client.prompt("second");
  return (await collecting).length > 3;
});
await note("steer", () => client.steer("steered"));
await note("followUp", () => client.followUp("followed"));
if (has("clearQueue")) await note("clearQueue", () => client.clearQueue());
else {
  // An old client cannot take its messages back: a prompt hears them.
  await note("drainQueue", () => idle(() => client.prompt("third")));
}
await note("abortIdle", () => client.abort());
await note("abortRunning", async () => {
  await idle(async () => {
    const started = new Promise((resolve) => {
      const stop = client.onEvent((event) => {
        if (event.type === "message_update") { stop(); resolve(); }
      });
    });
    await client.prompt("slow");
    await started;
    client.abort();
  });
  return "settled";
});
await note("setModel", () => client.setModel(process.env.PROVIDER, process.env.MODEL));
await note("setModelUnknown", () => client.setModel("nobody", "nothing"));
await note("cycleModel", () => client.cycleModel());
await note("setThinkingLevel", () => client.setThinkingLevel("high"));
await note("cycleThinkingLevel", () => client.cycleThinkingLevel());
if (has("getAvailableThinkingLevels"))
  await note("getAvailableThinkingLevels", () => client.getAvailableThinkingLevels());
await note("setSteeringMode", () => client.setSteeringMode("all"));
await note("setFollowUpMode", () => client.setFollowUpMode("all"));
await note("setAutoCompaction", () => client.setAutoCompaction(false));
await note("setAutoRetry", () => client.setAutoRetry(false));
await note("abortRetry", () => client.abortRetry());
await note("bash", () => client.bash("echo hello"));
await note("bashAborted", async () => {
  const running = client.bash("sleep 30");
  await new Promise((resolve) => setTimeout(resolve, 300));
  await client.abortBash();
  return running;
});
await note("abortBash", () => client.abortBash());
await note("afterBash", () => client.promptAndWait("what did the shell say").then((e) => e.length));
await note("getState", () => client.getState());
await note("getSessionStats", () => client.getSessionStats());
await note("setSessionName", () => client.setSessionName("my work"));
await note("stateNamed", async () => (await client.getState()).sessionName);
await note("compact", () => client.compact("be short"));
await note("exportHtml", () => client.exportHtml());
await note("getForkMessages", () => client.getForkMessages());
if (has("getEntries")) {
  await note("getEntries", () => client.getEntries());
  await note("getEntriesSince", async () => {
    const { entries } = await client.getEntries();
    return (await client.getEntries(entries[entries.length - 2].id)).entries.length;
  });
}
if (has("getTree")) await note("getTree", () => client.getTree());
await note("fork", async () => {
  const messages = await client.getForkMessages();
  return client.fork(messages[1].entryId);
});
await note("stateForked", () => client.getState());
await note("clone", () => client.clone());
const forked = (await client.getState()).sessionFile;
await note("newSession", () => client.newSession());
await note("stateNew", async () => (await client.getState()).messageCount);
await note("switchSession", () => client.switchSession(forked ?? results.getState.value.sessionFile));
await note("switchSessionMissing", () => client.switchSession("/nowhere/at/all.jsonl"));
await note("stateSwitched", async () => (await client.getState()).messageCount);
unsubscribe();
await note("getStderr", () => client.getStderr());
const before = Date.now();
await note("stop", () => client.stop());
results.stopMs = Date.now() - before;
for (const each of Object.keys(results)) called.add(each);
const own = Object.getOwnPropertyNames(RpcClient.prototype).filter((name) => name !== "constructor");
console.log(JSON.stringify({ results, types, methods: own, called: [...called] }));
