// Drives `zot mcp-server` with an official TypeScript SDK, as published. Arguments: "modern" (the
// packages of 2026) or "handshake" (the older one), the server's command and environment as JSON.
const [era, command, env] = [process.argv[2], JSON.parse(process.argv[3]), JSON.parse(process.argv[4])];
const modern = era === "modern";
const { Client } = await import(modern ? "@modelcontextprotocol/client" : "@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await import(
  modern ? "@modelcontextprotocol/client/stdio" : "@modelcontextprotocol/sdk/client/stdio.js"
);

const forms = [];
const notes = [];
const answer = async (request) => {
  forms.push(request.params.message);
  return { action: "accept", content: { decision: "Allow" } };
};
const options = { capabilities: { elicitation: { form: {} } } };
if (modern) options.versionNegotiation = { mode: "auto" };
const client = new Client({ name: "test", version: "1" }, options);
if (modern) {
  client.setRequestHandler("elicitation/create", answer);
} else {
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  client.setRequestHandler(ElicitRequestSchema, answer);
}
await client.connect(new StdioClientTransport({ command: command[0], args: command.slice(1), env }));

const call = (name, args, more = {}) =>
  modern
    ? client.callTool({ name, arguments: args }, more)
    : client.callTool({ name, arguments: args }, undefined, more);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const task = await call("zot", { prompt: "tool" }, { onprogress: (note) => notes.push(note.message) });
const reply = await call("zot_reply", { prompt: "more", session_id: task.structuredContent.session_id });
const abort = new AbortController();
const slow = call("zot", { prompt: "slow" }, { signal: abort.signal }).then(() => "answered", () => "cancelled");
setTimeout(() => abort.abort(), 500);
const cancelled = await slow;
const after = await call("zot", { prompt: "hi" });
const version = modern ? client.getNegotiatedProtocolVersion?.() : undefined;
console.log(
  JSON.stringify({
    version,
    tools,
    task: task.structuredContent,
    reply: reply.structuredContent,
    cancelled,
    after: after.structuredContent,
    forms,
    notes,
  }),
);
await client.close();
