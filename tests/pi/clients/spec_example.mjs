// The example client of the protocol's document, with an end so that a test can wait for it.
import { spawn } from "node:child_process";
import * as readline from "readline";

const agent = spawn("pi", ["--mode", "rpc", "--no-session", ...process.argv.slice(2)]);
agent.stderr.pipe(process.stderr);

readline.createInterface({ input: agent.stdout }).on("line", (line) => {
  const event = JSON.parse(line);
  if (event.type === "message_update") {
    const { assistantMessageEvent } = event;
    if (assistantMessageEvent.type === "text_delta") {
      process.stdout.write(assistantMessageEvent.delta);
    }
  }
  if (event.type === "tool_execution_start") {
    console.log(`\n[Tool: ${event.toolName}]`);
  }
  if (event.type === "tool_execution_end") {
    const { result } = event;
    const text = typeof result === "string"
      ? result
      : result.content.filter((c) => c.type === "text").map((c) => c.text).join("\n");
    console.log(`[Result: ${event.isError} ${text.includes("from-tool")}]`);
  }
  if (event.type === "turn_end") {
    for (const call of event.message.content.filter((c) => c.type === "toolCall")) {
      const found = event.toolResults.find((r) => r.toolCallId === call.id);
      console.log(`[Matched: ${call.name} ${found.isError}]`);
    }
  }
  if (event.type === "agent_end") agent.stdin.end();
});

agent.stdin.write(JSON.stringify({ type: "prompt", message: "Hello" }) + "\n");
agent.on("exit", (code) => console.log(`\n[Exit: ${code}]`));
