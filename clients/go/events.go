package zot

import "encoding/json"

// Event is one of the structs below: use a type switch. Types that this version does not know are *Unknown.
type Event interface{ eventType() string }

// Block is a part of a message: a text, a tool call, or another kind with only its Type set.
type Block struct {
	Type string                 `json:"type"`
	Text string                 `json:"text"`
	ID   string                 `json:"id"`
	Name string                 `json:"name"`
	Args map[string]interface{} `json:"args"`
}

// UserMessage is a message of the user, as it was added to the transcript.
type UserMessage struct {
	Content []Block `json:"content"`
	Time    string  `json:"time"`
}

// TurnStart begins a call of the model; Step counts them from 1.
type TurnStart struct {
	Step int `json:"step"`
}

// TextDelta is a piece of the model's text.
type TextDelta struct {
	Delta string `json:"delta"`
}

// ThinkingDelta is a piece of the model's reasoning (feature "thinking").
type ThinkingDelta struct {
	Delta string `json:"delta"`
}

// AssistantMessage is the whole message of the model.
type AssistantMessage struct {
	Content []Block `json:"content"`
	Time    string  `json:"time"`
}

// Text returns the texts of the message.
func (m *AssistantMessage) Text() string {
	text := ""
	for _, block := range m.Content {
		if block.Type == "text" {
			text += block.Text
		}
	}
	return text
}

// Usage counts the tokens and the cost of one model call.
type Usage struct {
	Input      int     `json:"input"`
	Output     int     `json:"output"`
	CacheRead  int     `json:"cache_read"`
	CacheWrite int     `json:"cache_write"`
	CostUSD    float64 `json:"cost_usd"`
}

// ToolCall announces a tool that is about to run.
type ToolCall struct {
	ID   string                 `json:"id"`
	Name string                 `json:"name"`
	Args map[string]interface{} `json:"args"`
}

// ToolProgress is a piece of output of a tool that runs.
type ToolProgress struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// ToolResult is the result of a tool call, as the model gets it.
type ToolResult struct {
	ID      string  `json:"id"`
	IsError bool    `json:"is_error"`
	Content []Block `json:"content"`
}

// ApprovalRequest asks whether a tool may run (feature "approvals"); answer it with Client.Approve.
type ApprovalRequest struct {
	RequestID string                 `json:"request_id"`
	ID        string                 `json:"id"`
	Name      string                 `json:"name"`
	Args      map[string]interface{} `json:"args"`
}

// TurnEnd ends a model call: "end", "tool_use", "length", "error" or "aborted".
type TurnEnd struct {
	Stop string `json:"stop"`
}

// ErrorEvent is a failure of the run. The run goes on after some; the last TurnEnd decides.
type ErrorEvent struct {
	Message string `json:"message"`
	Code    string `json:"code"`
}

// Done is the last event of every run.
type Done struct{}

// Unknown is an event of a type that is not above, with the whole line.
type Unknown struct {
	Type string
	Line json.RawMessage
}

func (*UserMessage) eventType() string      { return "user_message" }
func (*TurnStart) eventType() string        { return "turn_start" }
func (*TextDelta) eventType() string        { return "text_delta" }
func (*ThinkingDelta) eventType() string    { return "thinking_delta" }
func (*AssistantMessage) eventType() string { return "assistant_message" }
func (*Usage) eventType() string            { return "usage" }
func (*ToolCall) eventType() string         { return "tool_call" }
func (*ToolProgress) eventType() string     { return "tool_progress" }
func (*ToolResult) eventType() string       { return "tool_result" }
func (*ApprovalRequest) eventType() string  { return "approval_request" }
func (*TurnEnd) eventType() string          { return "turn_end" }
func (*ErrorEvent) eventType() string       { return "error" }
func (*Done) eventType() string             { return "done" }
func (event *Unknown) eventType() string    { return event.Type }

var kinds = map[string]func() Event{
	"user_message":      func() Event { return new(UserMessage) },
	"turn_start":        func() Event { return new(TurnStart) },
	"text_delta":        func() Event { return new(TextDelta) },
	"thinking_delta":    func() Event { return new(ThinkingDelta) },
	"assistant_message": func() Event { return new(AssistantMessage) },
	"usage":             func() Event { return new(Usage) },
	"tool_call":         func() Event { return new(ToolCall) },
	"tool_progress":     func() Event { return new(ToolProgress) },
	"tool_result":       func() Event { return new(ToolResult) },
	"approval_request":  func() Event { return new(ApprovalRequest) },
	"turn_end":          func() Event { return new(TurnEnd) },
	"error":             func() Event { return new(ErrorEvent) },
	"done":              func() Event { return new(Done) },
}

func parseEvent(kind string, line []byte) (Event, error) {
	make, known := kinds[kind]
	if !known {
		return &Unknown{kind, append(json.RawMessage(nil), line...)}, nil
	}
	event := make()
	return event, json.Unmarshal(line, event)
}
