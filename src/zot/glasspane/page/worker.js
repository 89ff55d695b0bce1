// Shared by all tabs of the page: holds the one stream of the board and passes it on.
import { BoardStream } from "./stream.js";

const ports = new Set();
const stream = new BoardStream((message) => { for (const port of ports) port.postMessage(message); });

addEventListener("connect", (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = () => ports.delete(port); // it says goodbye
  stream.begin();
  for (const message of stream.current()) port.postMessage(message);
});
