// Send one prompt to `zot rpc` and stream the answer. Standard library only.
// go run . PROMPT [FLAGS FOR ZOT...]        ZOT_BIN: the command, default zot
// Exit code: 0 answered, 1 failed, 2 wrong usage.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

type frame struct {
	Type, Delta, Name, Message, Error, Stop string
	Args                                    json.RawMessage
	Success                                 bool
	Content                                 []struct{ Type string }
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: zot-client PROMPT [FLAGS FOR ZOT...]")
		os.Exit(2)
	}
	name := os.Getenv("ZOT_BIN")
	if name == "" {
		name = "zot"
	}
	zot := exec.Command(name, append([]string{"rpc"}, os.Args[2:]...)...)
	zot.Stderr = os.Stderr
	in, _ := zot.StdinPipe()
	out, _ := zot.StdoutPipe()
	if err := zot.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	commands := json.NewEncoder(in)
	if token := os.Getenv("ZOTCORE_RPC_TOKEN"); token != "" {
		_ = commands.Encode(map[string]any{"id": "0", "type": "hello", "token": token})
	}
	_ = commands.Encode(map[string]any{"id": "1", "type": "prompt", "message": os.Args[1]})
	code := follow(out)
	in.Close() // the end of input is what ends zot
	_ = zot.Wait()
	os.Exit(code)
}

// follow shows the events of one prompt, up to its done.
func follow(out io.Reader) int {
	failed := 0
	for frames := json.NewDecoder(out); ; {
		var f frame
		if err := frames.Decode(&f); err != nil {
			fmt.Fprintln(os.Stderr, "error: zot ended before it was done")
			return 1
		}
		switch {
		case f.Type == "text_delta":
			fmt.Print(f.Delta)
		case f.Type == "tool_call":
			fmt.Fprintf(os.Stderr, "[%s] %s\n", f.Name, f.Args)
		case f.Type == "response" && !f.Success:
			fmt.Fprintln(os.Stderr, "error:", f.Error)
			return 1
		case f.Type == "error":
			fmt.Fprintln(os.Stderr, "error:", f.Message)
			failed = 1
		case f.Type == "turn_start":
			failed = 0 // an error that the run got over
		case f.Type == "turn_end" && (f.Stop == "error" || f.Stop == "aborted"):
			failed = 1
		case f.Type == "assistant_message" && len(f.Content) > 0 && f.Content[0].Type == "text":
			fmt.Println()
		case f.Type == "done":
			return failed
		}
	}
}
