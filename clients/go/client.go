// Package zot drives `zot rpc`: one JSON object a line, both ways. It needs the standard library alone; copy the folder.
package zot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	keptStderr = 16 << 10
	stopTime   = 5 * time.Second
)

// CommandError is a command that the server refused. Code is a word for programs, with the feature "codes".
type CommandError struct{ Command, Message, Code string }

func (e *CommandError) Error() string { return e.Command + ": " + e.Message }

// GoneError means that the child has ended; Stderr is the end of what it wrote there.
type GoneError struct {
	Cause  error
	Stderr string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("zot has ended (%v): %s", e.Cause, strings.TrimSpace(e.Stderr))
}
func (e *GoneError) Unwrap() error { return e.Cause }

// RunError is a run of Ask that failed or was aborted.
type RunError struct{ Message, Code, Stop string }

func (e *RunError) Error() string { return e.Message }

// Fields are the fields of a command, beside its type and id.
type Fields map[string]interface{}

// Run is an accepted prompt. Read Events to their end, or call Abort and then read them to their end.
type Run struct {
	Events <-chan Event
	ID     string
	client *Client
	agent  string
	queue  *eventQueue
}

// Err returns why the events ended before Done: the child is gone.
func (r *Run) Err() error { return r.queue.err() }

// Abort stops the run; its events still end with Done.
func (r *Run) Abort(ctx context.Context) error {
	return r.client.Request(ctx, "abort", forAgent(Fields{"target": r.ID}, r.agent), nil)
}

// Option changes a prompt.
type Option func(Fields)

// Agent sends the prompt to an agent that the command "open_agent" opened.
func Agent(name string) Option { return func(f Fields) { f["agent"] = name } }

// MaxSteps limits the model calls of the prompt.
func MaxSteps(steps int) Option { return func(f Fields) { f["max_steps"] = steps } }

// MaxCost limits the cost of the prompt, in US dollars.
func MaxCost(dollars float64) Option { return func(f Fields) { f["max_cost"] = dollars } }

// Client is a child process and its agents. Its methods may be called from any goroutine.
type Client struct {
	// OnEvent gets the events that belong to no run; set it before the first command.
	OnEvent func(Event)

	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  *tail
	writing sync.Mutex
	ended   chan struct{}

	mutex   sync.Mutex
	count   int
	waiting map[string]waiting
	runs    map[string][]*eventQueue
	gone    error
}

type waiting struct {
	answer chan response
	run    *eventQueue
	agent  string
}

type response struct {
	Success bool            `json:"success"`
	Command string          `json:"command"`
	ID      string          `json:"id"`
	Data    json.RawMessage `json:"data"`
	Error   string          `json:"error"`
	Code    string          `json:"code"`
	gone    error
}

// Start starts the command, `zot rpc` if it is empty. With features, or with the token in the variable
// ZOTCORE_RPC_TOKEN, it says hello first.
func Start(ctx context.Context, command []string, features ...string) (*Client, error) {
	if len(command) == 0 {
		command = []string{"zot", "rpc"}
	}
	child := exec.Command(command[0], command[1:]...)
	stdin, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	client := &Client{
		command: child,
		stdin:   stdin,
		stderr:  &tail{},
		ended:   make(chan struct{}),
		waiting: map[string]waiting{},
		runs:    map[string][]*eventQueue{},
	}
	child.Stderr = client.stderr
	if err := child.Start(); err != nil {
		return nil, &GoneError{err, ""}
	}
	go client.read(stdout)
	token := os.Getenv("ZOTCORE_RPC_TOKEN")
	if token != "" || len(features) > 0 {
		hello := Fields{"token": token, "features": features}
		if err := client.Request(ctx, "hello", hello, nil); err != nil {
			client.Close()
			return nil, err
		}
	}
	return client, nil
}

// Prompt sends a prompt and returns its events. A second prompt is queued in the server.
func (c *Client) Prompt(ctx context.Context, text string, options ...Option) (*Run, error) {
	fields := Fields{"message": text}
	for _, option := range options {
		option(fields)
	}
	agent, _ := fields["agent"].(string)
	queue := newQueue()
	id, err := c.send(ctx, "prompt", fields, nil, queue, agent)
	if err != nil {
		if ctx.Err() == nil {
			queue.end(err)
		}
		return nil, err
	}
	return &Run{Events: queue.out, ID: id, client: c, agent: agent, queue: queue}, nil
}

// Ask runs a prompt to its end and returns the text of the last message. Cancelling ctx aborts the run.
func (c *Client) Ask(ctx context.Context, text string, options ...Option) (string, error) {
	run, err := c.Prompt(ctx, text, options...)
	if err != nil {
		return "", err
	}
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-ctx.Done():
			run.Abort(context.Background())
		case <-answered:
		}
	}()
	answer, failed := "", RunError{Stop: "end"}
	for event := range run.Events {
		switch event := event.(type) {
		case *TurnStart:
			failed = RunError{Stop: "end"} // an error that the run got over
		case *AssistantMessage:
			answer = event.Text()
		case *ErrorEvent:
			failed.Message, failed.Code = event.Message, event.Code
		case *TurnEnd:
			failed.Stop = event.Stop
		}
	}
	if err := run.Err(); err != nil {
		return answer, err
	}
	if failed.Message == "" && (failed.Stop == "error" || failed.Stop == "aborted") {
		failed.Message = "the run ended with " + failed.Stop
	}
	if failed.Message != "" {
		return answer, &failed
	}
	return answer, nil
}

// Approve answers an ApprovalRequest: "allow", "deny", "allow_session" or "allow_project".
func (c *Client) Approve(ctx context.Context, requestID, decision, reason string) error {
	fields := Fields{"request_id": requestID, "decision": decision, "reason": reason}
	return c.Request(ctx, "approve", fields, nil)
}

// Request sends any command; the data of its response is stored in what data points to, unless it is nil.
func (c *Client) Request(ctx context.Context, command string, fields Fields, data interface{}) error {
	_, err := c.send(ctx, command, fields, data, nil, "")
	return err
}

// Stderr returns the end of what the child wrote to stderr.
func (c *Client) Stderr() string { return c.stderr.String() }

// Close ends the child: its input is closed, and it is killed if it does not end by itself.
func (c *Client) Close() error {
	c.mutex.Lock()
	busy := false
	for _, runs := range c.runs {
		busy = busy || len(runs) > 0
	}
	c.mutex.Unlock()
	c.stdin.Close()
	if busy {
		c.command.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-c.ended:
	case <-time.After(stopTime):
		c.command.Process.Kill()
		<-c.ended
	}
	return nil
}

func (c *Client) send(
	ctx context.Context, command string, fields Fields, data interface{}, run *eventQueue, agent string,
) (string, error) {
	answer := make(chan response, 1)
	c.mutex.Lock()
	if c.gone != nil {
		defer c.mutex.Unlock()
		return "", c.gone
	}
	c.count++
	id := strconv.Itoa(c.count)
	c.waiting[id] = waiting{answer, run, agent}
	c.mutex.Unlock()
	line := Fields{"type": command, "id": id}
	for name, value := range fields {
		line[name] = value
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		return "", err
	}
	c.writing.Lock()
	_, err = c.stdin.Write(append(encoded, '\n'))
	c.writing.Unlock()
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		return "", err // of a broken pipe the end of the child tells more
	}
	select {
	case got := <-answer:
		if got.gone != nil {
			return "", got.gone
		}
		if !got.Success {
			return "", &CommandError{command, got.Error, got.Code}
		}
		if data != nil {
			return id, json.Unmarshal(got.Data, data)
		}
		return id, nil
	case <-ctx.Done():
		if run != nil {
			go c.abandon(id, answer, run, agent)
		}
		return "", ctx.Err()
	}
}

// abandon aborts a run whose caller left before the server answered.
func (c *Client) abandon(id string, answer <-chan response, run *eventQueue, agent string) {
	got := <-answer
	if got.gone != nil || !got.Success {
		run.end(got.gone)
	} else {
		c.Request(context.Background(), "abort", forAgent(Fields{"target": id}, agent), nil)
	}
	for range run.out {
	}
}

// read takes lines until the child ends. Lines end at LF and nowhere else.
func (c *Client) read(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	var failure error
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if failure = c.take(bytes.TrimSpace(line)); failure != nil {
			c.command.Process.Kill()
			break
		}
	}
	cause := c.command.Wait()
	if failure != nil {
		cause = failure
	} else if cause == nil {
		cause = errors.New("exit status 0")
	}
	c.end(&GoneError{cause, c.stderr.String()})
	close(c.ended)
}

func (c *Client) take(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var head struct{ Type, Agent string }
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("not a frame: %.80s", line)
	}
	if head.Type == "response" {
		var answer response
		if err := json.Unmarshal(line, &answer); err != nil {
			return err
		}
		c.answer(answer)
		return nil
	}
	event, err := parseEvent(head.Type, line)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	runs := c.runs[head.Agent]
	if len(runs) == 0 {
		c.mutex.Unlock()
		if c.OnEvent != nil {
			c.OnEvent(event)
		}
		return nil
	}
	runs[0].put(event)
	if head.Type == "done" || head.Type == "run_suspended" {
		runs[0].end(nil)
		c.runs[head.Agent] = runs[1:]
	}
	c.mutex.Unlock()
	return nil
}

func (c *Client) answer(answer response) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	waits, known := c.waiting[answer.ID]
	if !known {
		return
	}
	delete(c.waiting, answer.ID)
	if answer.Success && waits.run != nil { // before the events that follow
		c.runs[waits.agent] = append(c.runs[waits.agent], waits.run)
	}
	waits.answer <- answer
}

func (c *Client) end(gone error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.gone = gone
	for _, waits := range c.waiting {
		waits.answer <- response{gone: gone}
	}
	for _, runs := range c.runs {
		for _, run := range runs {
			run.end(gone)
		}
	}
	c.waiting, c.runs = nil, nil
}

func forAgent(fields Fields, agent string) Fields {
	if agent != "" {
		fields["agent"] = agent
	}
	return fields
}

// eventQueue keeps the events of a run until they are read, so that a slow reader stops no response.
type eventQueue struct {
	out     chan Event
	mutex   sync.Mutex
	changed *sync.Cond
	events  []Event
	over    bool
	failure error
}

func newQueue() *eventQueue {
	queue := &eventQueue{out: make(chan Event)}
	queue.changed = sync.NewCond(&queue.mutex)
	go queue.deliver()
	return queue
}

func (q *eventQueue) put(event Event) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.events = append(q.events, event)
	q.changed.Signal()
}

func (q *eventQueue) end(failure error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.over, q.failure = true, failure
	q.changed.Signal()
}

func (q *eventQueue) err() error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.failure
}

func (q *eventQueue) deliver() {
	defer close(q.out)
	for {
		q.mutex.Lock()
		for len(q.events) == 0 && !q.over {
			q.changed.Wait()
		}
		events := q.events
		q.events = nil
		q.mutex.Unlock()
		if len(events) == 0 {
			return
		}
		for _, event := range events {
			q.out <- event
		}
	}
}

// tail keeps the last bytes that were written.
type tail struct {
	mutex sync.Mutex
	bytes []byte
}

func (t *tail) Write(more []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bytes = append(t.bytes, more...)
	if extra := len(t.bytes) - keptStderr; extra > 0 {
		t.bytes = append([]byte(nil), t.bytes[extra:]...)
	}
	return len(more), nil
}

func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return string(t.bytes)
}
