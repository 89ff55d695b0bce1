// A tool for the model in Go, without an SDK. The weather is made up from the city's name, so the
// same question has the same answer. Build it with: go build -o weather .
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
)

type frame struct {
	Type string          `json:"type"`
	ID   string          `json:"id"`
	Args json.RawMessage `json:"args"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

var schema = json.RawMessage(`{
	"type": "object",
	"properties": {"city": {"type": "string", "description": "name of the city"}},
	"required": ["city"]
}`)

func emit(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func weather(args json.RawMessage) (string, error) {
	var in struct {
		City string `json:"city"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return "", err
	}
	if in.City == "" {
		return "", fmt.Errorf("which city?")
	}
	hash := fnv.New32a()
	hash.Write([]byte(in.City))
	sum := hash.Sum32()
	sky := []string{"sun", "clouds", "rain", "fog", "snow"}[sum%5]
	return fmt.Sprintf("%s: %d°C, %s", in.City, int(sum/5%35)-5, sky), nil
}

func answer(call frame) {
	text, err := weather(call.Args)
	if err != nil {
		text = err.Error()
	}
	emit(map[string]any{
		"type": "tool_result", "id": call.ID, "is_error": err != nil,
		"content": []block{{Type: "text", Text: text}},
	})
}

func main() {
	emit(map[string]any{
		"type": "hello", "name": "weather", "version": "1.0.0", "capabilities": []string{"tools"},
	})
	emit(map[string]any{
		"type": "register_tool", "name": "weather", "schema": schema,
		"description": "Get the current weather for a city.",
	})
	emit(map[string]any{"type": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 64*1024), 4*1024*1024)
	for lines.Scan() {
		var in frame
		if json.Unmarshal(lines.Bytes(), &in) != nil {
			continue
		}
		switch in.Type {
		case "tool_call":
			answer(in)
		case "shutdown":
			emit(map[string]any{"type": "shutdown_ack"})
			return
		}
	}
}
