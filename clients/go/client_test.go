package zot

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// ZOT_COMMAND: the words of a `zot rpc` that answers, as tests/examples/test_packages.py starts it.
func start(t *testing.T, features ...string) (*Client, context.Context) {
	t.Helper()
	words := strings.Fields(os.Getenv("ZOT_COMMAND"))
	if len(words) == 0 {
		t.Skip("ZOT_COMMAND is not set")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	client, err := Start(ctx, words, features...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, ctx
}

func TestTwoPromptsAreAnsweredInTheirOrder(t *testing.T) {
	client, ctx := start(t)
	first, err := client.Prompt(ctx, "say:one two")
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Prompt(ctx, "say:three")
	if err != nil {
		t.Fatal(err)
	}
	for _, expected := range []struct {
		run  *Run
		text string
	}{{first, "one two"}, {second, "three"}} {
		text, last := "", Event(nil)
		for last = range expected.run.Events {
			if delta, ok := last.(*TextDelta); ok {
				text += delta.Delta
			}
		}
		if _, ok := last.(*Done); !ok || text != expected.text {
			t.Errorf("got %q, %v", text, last)
		}
	}
}

func TestAnApprovalIsAsked(t *testing.T) {
	client, ctx := start(t, "approvals")
	run, err := client.Prompt(ctx, "tool:bash:echo hi")
	if err != nil {
		t.Fatal(err)
	}
	result := ""
	for event := range run.Events {
		switch event := event.(type) {
		case *ApprovalRequest:
			if err := client.Approve(ctx, event.RequestID, "deny", "not today"); err != nil {
				t.Error(err)
			}
		case *ToolResult:
			result = event.Content[0].Text
		}
	}
	if !strings.Contains(result, "not today") {
		t.Errorf("got %q", result)
	}
}

func TestAbort(t *testing.T) {
	client, ctx := start(t)
	run, err := client.Prompt(ctx, "hang:headers")
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	stop := ""
	for event := range run.Events {
		if end, ok := event.(*TurnEnd); ok {
			stop = end.Stop
		}
	}
	if stop != "aborted" {
		t.Errorf("got %q", stop)
	}
}

func TestCancellingAskAbortsTheRun(t *testing.T) {
	client, ctx := start(t)
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} { // before it is accepted, and later
		short, cancel := context.WithTimeout(ctx, wait)
		_, err := client.Ask(short, "hang:headers")
		cancel()
		var failed *RunError
		if !errors.As(err, &failed) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if text, err := client.Ask(ctx, "say:after"); text != "after" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestErrorsHaveTypes(t *testing.T) {
	client, ctx := start(t, "codes")
	_, err := client.Prompt(ctx, "")
	var refused *CommandError
	if !errors.As(err, &refused) || refused.Code == "" {
		t.Errorf("got %v", err)
	}
	_, err = client.Ask(ctx, "loop tool:bash:true", MaxSteps(1))
	var failed *RunError
	if !errors.As(err, &failed) || failed.Code == "" {
		t.Errorf("got %v", err)
	}
	dying, err := Start(ctx, []string{"sh", "-c", "read line; echo no luck >&2; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dying.Ask(ctx, "hi")
	var gone *GoneError
	if !errors.As(err, &gone) || !strings.Contains(gone.Stderr, "no luck") {
		t.Errorf("got %v", err)
	}
}

func TestAnAgentOfItsOwn(t *testing.T) {
	client, ctx := start(t, "agents")
	var opened struct{ Agent string }
	if err := client.Request(ctx, "open_agent", Fields{"tools": []string{}}, &opened); err != nil {
		t.Fatal(err)
	}
	if text, err := client.Ask(ctx, "say:beside", Agent(opened.Agent)); text != "beside" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}
