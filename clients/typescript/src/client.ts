/** A client for `zot rpc`: one JSON object a line, both ways. It needs Node alone. */

import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { CommandFailed, ResponseTimeout, RunFailed, ServerGone } from "./errors.js";
import type { ZotApprove, ZotCommand, ZotData, ZotEvent, ZotFailedResponse } from "./wire.js";

export interface ClientOptions {
  /** Working directory of the child. */
  cwd?: string;
  /** Environment of the child; default: that of this process. */
  env?: NodeJS.ProcessEnv;
  /** Token that the child requires in its first line. */
  token?: string;
  /** More kinds of events: `approvals`, `agents`, `codes`, `thinking`, ... */
  features?: string[];
  /** Limit for each response, in milliseconds (60,000). */
  timeout?: number;
  /** Called with events that belong to no run. */
  onEvent?: (event: ZotEvent) => void;
}

export interface PromptOptions {
  /** Name of an agent that `open_agent` opened; default: the process's own. */
  agent?: string;
  images?: { mime_type: string; data: string }[];
  /** Limits of this prompt; `maxCost` in US dollars. */
  maxSteps?: number;
  maxCost?: number;
  maxTokens?: number;
  maxSeconds?: number;
  /** Aborts the run. */
  signal?: AbortSignal;
}

/** The outcome of `ask`. */
export interface Answer {
  text: string;
  stop: string;
  costUsd: number;
}

type Word = ZotCommand["type"];
type Fields<W extends Word> = Omit<Extract<ZotCommand, { type: W }>, "type" | "id">;
interface Waiting {
  resolve: (data: unknown) => void;
  reject: (error: Error) => void;
  run: Run | undefined;
}

const KEPT_STDERR = 16_384;
const STOP_MS = 5_000;

/** The events of one prompt, up to and including `done`. Leaving a `for await` loop early aborts the run. */
export class Run implements AsyncIterable<ZotEvent> {
  private readonly waiting: ZotEvent[] = [];
  private wake: () => void = () => {};
  private failure: Error | undefined;
  /** Whether the last event has come, though perhaps not been read. */
  ended = false;

  constructor(
    private readonly client: Client,
    readonly id: string,
    readonly agent: string,
  ) {}

  /** Abort the run; its events still end with `done`. */
  async abort(): Promise<void> {
    if (!this.ended) await this.client.request("abort", { target: this.id, ...toAgent(this.agent) });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ZotEvent, void, void> {
    try {
      for (;;) {
        const event = this.waiting.shift();
        if (event !== undefined) yield event;
        else if (this.failure !== undefined) throw this.failure;
        else if (this.ended) return;
        else await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      if (!this.ended && this.failure === undefined) await this.abort();
    }
  }

  /** @internal */
  put(event: ZotEvent): void {
    this.waiting.push(event);
    this.ended = event.type === "done" || event.type === "run_suspended";
    this.wake();
  }

  /** @internal */
  fail(error: Error): void {
    this.failure ??= error;
    this.wake();
  }
}

/** A child process and its agents. */
export class Client {
  /** The end of what the child wrote to stderr. */
  stderr = "";
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly answers = new Map<string, Waiting>();
  private readonly runs = new Map<string, Run[]>();
  private readonly exited: Promise<number | null>;
  private readonly timeout: number;
  private readonly onEvent: (event: ZotEvent) => void;
  private rest: Buffer = Buffer.alloc(0);
  private gone: ServerGone | undefined;
  private count = 0;
  /** Settled when the child has accepted token and features. */
  readonly ready: Promise<void>;

  constructor(command: string[] = ["zot", "rpc"], options: ClientOptions = {}) {
    const [program = "zot", ...words] = command;
    const env = { ...(options.env ?? process.env) };
    if (options.token) env["ZOTCORE_RPC_TOKEN"] = options.token;
    this.timeout = options.timeout ?? 60_000;
    this.onEvent = options.onEvent ?? (() => {});
    this.child = spawn(program, words, { env, ...(options.cwd ? { cwd: options.cwd } : {}) });
    this.child.stdout.on("data", (bytes: Buffer) => this.read(bytes));
    this.child.stderr.on("data", (bytes: Buffer) => {
      this.stderr = (this.stderr + bytes.toString()).slice(-KEPT_STDERR);
    });
    this.child.stdin.on("error", () => {}); // the exit says it better
    this.exited = new Promise((resolve) => {
      this.child.on("error", (error) => {
        this.end(`cannot start ${program}: ${error.message}`, null);
        resolve(null);
      });
      this.child.on("close", (code, signal) => {
        const how = signal ? `was killed by ${signal}` : `ended with exit code ${code}`;
        this.end(`${program} ${how}: ${this.stderr.trim() || "it wrote nothing to stderr"}`, code);
        resolve(code);
      });
    });
    const greets = Boolean(options.token) || (options.features ?? []).length > 0;
    const hello = { token: options.token ?? "", features: options.features ?? [] };
    this.ready = greets ? this.request("hello", hello).then(() => {}) : Promise.resolve();
    this.ready.catch(() => {}); // whoever awaits it hears of it
  }

  /** Send a prompt; return its events. A refused prompt throws where they are read. */
  prompt(message: string, options: PromptOptions = {}): Run {
    const agent = options.agent ?? "";
    const run = new Run(this, this.nextId(), agent);
    const fields: Fields<"prompt"> = { message, ...toAgent(agent) };
    if (options.images) fields.images = options.images;
    if (options.maxSteps !== undefined) fields.max_steps = options.maxSteps;
    if (options.maxCost !== undefined) fields.max_cost = options.maxCost;
    if (options.maxTokens !== undefined) fields.max_tokens = options.maxTokens;
    if (options.maxSeconds !== undefined) fields.max_seconds = options.maxSeconds;
    this.send("prompt", fields, run.id, run).catch((error: Error) => run.fail(error));
    const abort = () => void run.abort().catch(() => {});
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort, { once: true });
    return run;
  }

  /** Run a prompt to its end and return the text. Throws RunFailed. */
  async ask(message: string, options: PromptOptions = {}): Promise<Answer> {
    let text = "";
    let stop = "end";
    let costUsd = 0;
    let failed: { message: string; code?: string } | undefined;
    for await (const event of this.prompt(message, options)) {
      if (event.type === "turn_start") failed = undefined; // an error that the run got over
      if (event.type === "error") failed = event;
      if (event.type === "turn_end") stop = event.stop;
      if (event.type === "usage") costUsd += event.cost_usd;
      if (event.type === "assistant_message") {
        text = event.content.map((block) => (block.type === "text" ? block.text : "")).join("");
      }
    }
    if (failed !== undefined || stop === "error" || stop === "aborted") {
      throw new RunFailed(failed?.message ?? `the run ended with ${stop}`, stop, failed?.code);
    }
    return { text, stop, costUsd };
  }

  /** Answer an `approval_request`. */
  async approve(
    requestId: string,
    decision: ZotApprove["decision"],
    more: Partial<Fields<"approve">> = {},
  ): Promise<void> {
    await this.request("approve", { ...more, request_id: requestId, decision });
  }

  /** Send any command; return the data of its response. Throws CommandFailed, ServerGone, ResponseTimeout. */
  request<W extends Word>(type: W, fields: Fields<W>): Promise<ZotData[W]> {
    return this.send(type, fields, this.nextId());
  }

  /** End the child: its input is closed, and it is killed if it does not end by itself. */
  async close(): Promise<number | null> {
    this.child.stdin.end();
    if ([...this.runs.values()].some((runs) => runs.length > 0)) this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), STOP_MS);
    const code = await this.exited;
    clearTimeout(timer);
    return code;
  }

  private nextId(): string {
    return String(++this.count);
  }

  private send<W extends Word>(type: W, fields: Fields<W>, id: string, run?: Run): Promise<ZotData[W]> {
    if (this.gone !== undefined) return Promise.reject(this.gone);
    return new Promise<ZotData[W]>((resolve, reject) => {
      const late = () => this.settle(id, new ResponseTimeout(`no answer to ${type} within ${this.timeout} ms`));
      const timer = setTimeout(late, this.timeout);
      const done = <T>(call: (value: T) => void) => (value: T) => (clearTimeout(timer), call(value));
      this.answers.set(id, { resolve: done(resolve as (data: unknown) => void), reject: done(reject), run });
      this.child.stdin.write(JSON.stringify({ ...fields, type, id }) + "\n");
    });
  }

  private settle(id: string, outcome: Error | { data: unknown }): void {
    const waiting = this.answers.get(id);
    this.answers.delete(id);
    if (waiting === undefined) return;
    if (outcome instanceof Error) waiting.reject(outcome);
    else waiting.resolve(outcome.data);
  }

  // Bytes end at LF and nowhere else; a letter may be cut between two pieces.
  private read(bytes: Buffer): void {
    this.rest = this.rest.length > 0 ? Buffer.concat([this.rest, bytes]) : bytes;
    for (let at = this.rest.indexOf(10); at >= 0; at = this.rest.indexOf(10)) {
      const line = this.rest.subarray(0, at).toString();
      this.rest = this.rest.subarray(at + 1);
      if (line.trim() !== "") this.take(JSON.parse(line) as Frame);
    }
  }

  private take(frame: Frame): void {
    const agent = frame.agent ?? "";
    if (frame.type === "response") {
      const id = String(frame.id);
      const run = this.answers.get(id)?.run;
      if (frame.success) {
        if (run !== undefined) this.runs.set(run.agent, [...(this.runs.get(run.agent) ?? []), run]);
        this.settle(id, { data: frame.data });
      } else {
        this.settle(id, new CommandFailed(frame.command, frame.error, frame.code));
      }
      return;
    }
    const [run, ...others] = this.runs.get(agent) ?? [];
    if (run === undefined) return this.onEvent(frame);
    run.put(frame);
    if (run.ended) this.runs.set(agent, others);
  }

  private end(message: string, code: number | null): void {
    this.gone ??= new ServerGone(message, code, this.stderr);
    for (const id of [...this.answers.keys()]) this.settle(id, this.gone);
    for (const run of [...this.runs.values()].flat()) run.fail(this.gone);
    this.runs.clear();
  }
}

type Succeeded = { type: "response"; success: true; command: string; id?: string | number; data?: unknown; agent?: string };
type Frame = ZotEvent | Succeeded | (ZotFailedResponse & { agent?: string });

function toAgent(agent: string): { agent?: string } {
  return agent === "" ? {} : { agent };
}
