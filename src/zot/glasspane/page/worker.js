// Shared by all tabs of the page: holds the one stream of the board and passes it on.
import { BoardStream } from "./stream.js";

const ports = new Set();
const stream = new BoardStream((message) => { for (const port of ports) port.postMessage(message); });

addEventListener("connect", (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data === "bye") { ports.delete(port); return; }
    stream.begin(data.headers);
    for (const message of stream.current()) port.postMessage(message);
  };
});
