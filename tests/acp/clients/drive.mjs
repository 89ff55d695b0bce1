// Drives an ACP agent with the official TypeScript SDK, as published, and prints what it saw.
// Arguments: the agent's command as JSON, a working directory with a folder `other` in it, and the
// command of an MCP server as JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const [command, cwd, server] = [JSON.parse(process.argv[2]), process.argv[3], JSON.parse(process.argv[4])];
const M = methods.agent;
const updates = [];
const forms = [];
let decide = "allow_once";

function connected(run) {
  const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  return client({ name: "test" })
    .onNotification(methods.client.session.update, ({ params }) => {
      updates.push({ session: params.sessionId, ...params.update });
    })
    .onRequest(methods.client.session.requestPermission, ({ params }) => ({
      outcome: { outcome: "selected", optionId: params.options.find((o) => o.kind === decide).optionId },
    }))
    .onRequest(methods.client.elicitation.create, ({ params }) => {
      forms.push(params);
      return { action: "accept", content: { confirmed: true } };
    })
    .connectWith(stream, async (ctx) => {
      const seen = await ctx.request(M.initialize, {
        protocolVersion: 1,
        clientCapabilities: {
          session: { notices: {}, compaction: {}, configOptions: { boolean: {} } },
          elicitation: { form: {} },
          auth: { terminal: true },
        },
      });
      return run(ctx, seen);
    })
    .finally(() => {
      const ended = new Promise((done) => agent.on("exit", done));
      agent.stdin.end();
      return ended;
    });
}

const text = (words) => [{ type: "text", text: words }];
const seen = async (kind, from = 0) => {
  while (!updates.slice(from).some(kind)) await new Promise((done) => setTimeout(done, 5));
};
const prompt = (ctx, sessionId, words) => ctx.request(M.session.prompt, { sessionId, prompt: text(words) });

async function cancelled(ctx, sessionId, words, when) {
  const from = updates.length;
  const turn = prompt(ctx, sessionId, words);
  if (when) await seen(when, from);
  await ctx.notify(M.session.cancel, { sessionId });
  return (await turn).stopReason;
}

const results = {};
let kept;
await connected(async (ctx, initialized) => {
  results.initialize = initialized;
  const opened = await ctx.request(M.session.new, { cwd, mcpServers: [] });
  const sessionId = (kept = opened.sessionId);
  results.tool = (await prompt(ctx, sessionId, "tool")).stopReason;
  decide = "reject_once";
  results.denied = (await prompt(ctx, sessionId, "tool")).stopReason;
  decide = "allow_once";
  results.cancelled = [
    await cancelled(ctx, sessionId, "slow"),
    await cancelled(ctx, sessionId, "slow", (u) => u.sessionUpdate === "agent_message_chunk"),
    await cancelled(ctx, sessionId, "sleep", (u) => u.status === "in_progress"),
  ];
  const abort = new AbortController();
  const turn = ctx.request(M.session.prompt, { sessionId, prompt: text("slow") }, { cancellationSignal: abort.signal });
  abort.abort();
  results.byRequest = await turn.then((r) => r.stopReason, (error) => error.code);
  await ctx.request(M.session.setMode, { sessionId, modeId: "yolo" });
  const change = { sessionId, configId: "model", value: "scripted/scripted" };
  results.options = (await ctx.request(M.session.setConfigOption, change)).configOptions.map((o) => o.id);
  await ctx.request(M.session.setConfigOption, { sessionId, configId: "jail", type: "boolean", value: true });
  const other = (await ctx.request(M.session.new, { cwd: `${cwd}/other`, mcpServers: [] })).sessionId;
  const both = await Promise.all([prompt(ctx, sessionId, "hi"), prompt(ctx, other, "hi")]);
  results.both = both.map((r) => r.stopReason);
  results.failed = await prompt(ctx, other, "break").catch((error) => error.code);
  results.afterwards = (await prompt(ctx, other, "hi")).stopReason;
  results.form = (await prompt(ctx, other, "/ask-me")).stopReason;
  results.listed = (await ctx.request(M.session.list, {})).sessions.length;
  await ctx.request(M.session.close, { sessionId: other });
  await ctx.request(M.session.delete, { sessionId: other });
  await ctx.request(M.session.delete, { sessionId: other });
  const handed = { name: "other", command: server[0], args: server.slice(1), env: [] };
  const remote = (await ctx.request(M.session.new, { cwd, mcpServers: [handed] })).sessionId;
  const answered = (u) => u.session === remote && u.status === "completed";
  // A server that starts slowly comes with the next prompt.
  for (let tries = 0; tries < 5 && !updates.some(answered); tries++) await prompt(ctx, remote, "remote");
  results.remote = JSON.stringify(updates.find(answered)?.content);
});
await connected(async (ctx) => {
  await ctx.request(M.session.resume, { sessionId: kept, cwd, mcpServers: [] });
  results.resumed = (await prompt(ctx, kept, "hi")).stopReason;
  await ctx.request(M.session.close, { sessionId: kept });
  const from = updates.length;
  await ctx.request(M.session.load, { sessionId: kept, cwd, mcpServers: [] });
  results.replayed = updates.slice(from).map((u) => u.sessionUpdate);
});
results.kinds = [...new Set(updates.map((u) => u.sessionUpdate))];
results.forms = forms.length;
console.log(JSON.stringify(results));
process.exit(0);
