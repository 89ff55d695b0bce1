#!/usr/bin/env node
// Send one prompt to `zot rpc` and stream the answer. No dependencies.
//
// zot-client.js PROMPT [FLAGS FOR ZOT...]        ZOT_BIN: the command, default zot
// Exit code: 0 answered, 1 failed, 2 wrong usage.
"use strict";
const { spawn } = require("node:child_process");

const [message, ...flags] = process.argv.slice(2);
if (message === undefined) {
  console.error("usage: zot-client.js PROMPT [FLAGS FOR ZOT...]");
  process.exit(2);
}

const zot = spawn(process.env.ZOT_BIN || "zot", ["rpc", ...flags], {
  stdio: ["pipe", "pipe", "inherit"],
});
let failed = false;
let finished = false;

function finish(code) {
  if (finished) return;
  finished = true;
  process.exitCode = code;
  zot.stdin.end(); // the end of input is what ends zot
}

function fail(text) {
  if (finished) return;
  console.error(`error: ${text}`);
  finish(1);
}

function handle(frame) {
  if (frame.type === "text_delta") process.stdout.write(frame.delta);
  else if (frame.type === "tool_call") console.error(`[${frame.name}] ${JSON.stringify(frame.args)}`);
  else if (frame.type === "response" && !frame.success) fail(frame.error);
  else if (frame.type === "error") {
    console.error(`error: ${frame.message}`);
    failed = true;
  } else if (frame.type === "turn_start") failed = false; // an error that the run got over
  else if (frame.type === "turn_end") failed = frame.stop === "error" || frame.stop === "aborted";
  else if (frame.type === "assistant_message") {
    if (frame.content.some((block) => block.type === "text")) process.stdout.write("\n");
  } else if (frame.type === "done") finish(failed ? 1 : 0);
}

let rest = "";
zot.stdout.setEncoding("utf8");
zot.stdout.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n"); // not readline: it also splits at U+2028
  rest = lines.pop();
  for (const line of lines) if (line.trim()) handle(JSON.parse(line));
});
zot.stdout.on("end", () => fail("zot ended before it was done"));
zot.stdin.on("error", () => {}); // it has ended already; reading will say so
zot.on("error", (error) => fail(error.message));

function send(command) {
  zot.stdin.write(JSON.stringify(command) + "\n");
}
const token = process.env.ZOTCORE_RPC_TOKEN;
if (token) send({ id: "0", type: "hello", token });
send({ id: "1", type: "prompt", message });
