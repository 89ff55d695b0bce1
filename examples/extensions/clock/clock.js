// /now shows the time, /uptime asks the model about it. Plain Node, no package.
const readline = require("node:readline");

const started = Date.now();
const emit = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");

function run(name) {
  if (name === "now") return { action: "display", display: new Date().toString() };
  const seconds = Math.round((Date.now() - started) / 1000);
  return { action: "prompt", prompt: `Say in one line that the clock runs for ${seconds} s.` };
}

emit({ type: "hello", name: "clock", version: "1.0.0", capabilities: ["commands"] });
emit({ type: "register_command", name: "now", description: "show the time" });
emit({ type: "register_command", name: "uptime", description: "how long the clock runs" });

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const frame = JSON.parse(line);
  if (frame.type === "command_invoked") {
    emit({ type: "command_response", id: frame.id, ...run(frame.name) });
  } else if (frame.type === "shutdown") {
    emit({ type: "shutdown_ack" });
    process.exit(0);
  }
});
