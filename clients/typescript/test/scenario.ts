/** Driven by tests/examples/test_packages.py: `node scenario.js WORDS...` of a `zot rpc` that answers. */

import assert from "node:assert/strict";
import { Client, CommandFailed, RunFailed, ServerGone, type ZotEvent } from "../src/index.js";

const command = process.argv.slice(2);

async function textOf(events: AsyncIterable<ZotEvent>): Promise<string> {
  let text = "";
  for await (const event of events) if (event.type === "text_delta") text += event.delta;
  return text;
}

async function prompts(): Promise<void> {
  const client = new Client(command);
  const [first, second] = [client.prompt("say:naïve 日本語"), client.prompt("say:three")];
  assert.equal(await textOf(first), "naïve 日本語");
  assert.equal(await textOf(second), "three");
  assert.equal((await client.request("get_state", {})).busy, false);
  assert.equal(await client.close(), 0);
}

async function approvals(): Promise<void> {
  const client = new Client(command, { features: ["approvals"] });
  let result = "";
  for await (const event of client.prompt("tool:bash:echo hi")) {
    if (event.type === "approval_request") {
      await client.approve(event.request_id, "deny", { reason: "not today" });
    }
    if (event.type === "tool_result") result = JSON.stringify(event.content);
  }
  assert.match(result, /not today/);
  await client.close();
}

async function aborts(): Promise<void> {
  const client = new Client(command);
  const run = client.prompt("hang:headers");
  for await (const event of run) if (event.type === "user_message") break; // leaving aborts
  const stopping = new AbortController();
  const ask = client.ask("hang:headers", { signal: stopping.signal });
  stopping.abort();
  await assert.rejects(ask, (error) => error instanceof RunFailed && error.stop === "aborted");
  assert.equal((await client.ask("say:after")).text, "after");
  await client.close();
}

async function errors(): Promise<void> {
  const client = new Client(command, { features: ["codes"] });
  await assert.rejects(textOf(client.prompt("")), (error) => error instanceof CommandFailed && error.code !== undefined);
  const limited = client.ask("loop tool:bash:true", { maxSteps: 1 });
  await assert.rejects(limited, (error) => error instanceof RunFailed && error.code !== undefined);
  await client.close();
  const dying = new Client(["sh", "-c", "read line; echo no luck >&2; exit 3"]);
  await assert.rejects(dying.ask("hi"), (error) => error instanceof ServerGone && error.exitCode === 3 && /no luck/.test(error.stderr));
  const missing = new Client(["/no/such/zot"]);
  await assert.rejects(missing.ask("hi"), ServerGone);
}

async function agents(): Promise<void> {
  const client = new Client(command, { features: ["agents"] });
  const opened = await client.request("open_agent", { tools: [] });
  assert.equal((await client.ask("say:beside", { agent: opened.agent })).text, "beside");
  await client.close();
}

for (const part of [prompts, approvals, aborts, errors, agents]) {
  await part();
  console.log(part.name);
}
