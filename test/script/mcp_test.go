package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// note is an entry that the server of these tests stores.
type note struct {
	Text  string   `json:"text" jsonschema:"what to remember"`
	Stars int      `json:"stars,omitempty"`
	Tags  []string `json:"tags,omitempty"`
}

type notes struct {
	Notes []note `json:"notes"`
}

// serveNotes is an MCP server on this process's streams: a list of notes, and tools that fail.
func serveNotes() {
	var mu sync.Mutex
	var all notes
	s := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "notes_add", Description: "keeps a note"}, func(_ context.Context, _ *mcp.CallToolRequest, n note) (*mcp.CallToolResult, notes, error) {
		mu.Lock()
		defer mu.Unlock()
		if n.Text == "" {
			return nil, notes{}, errors.New("an empty note")
		}
		all.Notes = append(all.Notes, n)
		return nil, all, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "uname"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "notes of " + strings.Join(os.Args[1:], ",")}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "waits"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "dies"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		os.Exit(3)
		return nil, nil, nil
	})
	if len(os.Args) > 1 && os.Args[1] == "broken" {
		fmt.Fprintln(os.Stderr, "no notes today")
		os.Exit(1)
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
		os.Exit(1) // who asked has gone
	}
}
