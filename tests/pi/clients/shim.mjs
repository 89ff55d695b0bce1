// Stands where RpcClient expects pi's JavaScript: starts the command in RPC_SERVER instead.
import { spawn } from "node:child_process";

const [program, ...first] = JSON.parse(process.env.RPC_SERVER);
const child = spawn(program, [...first, ...process.argv.slice(2)], { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => process.exit(signal ? 1 : (code ?? 1)));
