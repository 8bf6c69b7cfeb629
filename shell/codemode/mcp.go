package codemode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxTools is the most tools that one server may have.
const maxTools = 1000

// FromMCP makes tools from the tools of an MCP server. They live as long as the session. The result
// of a tool is its structured content. Without that, it is its text (as JSON, if it is JSON), or
// else its content unchanged.
func FromMCP(ctx context.Context, session *mcp.ClientSession) ([]Tool, error) {
	var out []Tool
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list tools: %w", err)
		}
		if len(out) == maxTools {
			return nil, fmt.Errorf("the server has more than %d tools", maxTools)
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("%s: its schema: %w", t.Name, err)
		}
		out = append(out, Tool{Name: t.Name, Description: t.Description, Schema: schema,
			Call: func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
				r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: t.Name, Arguments: args})
				if err != nil {
					return nil, err
				}
				return mcpResult(r)
			}})
	}
	return out, nil
}

// mcpResult makes JSON from a tool's answer.
func mcpResult(r *mcp.CallToolResult) (json.RawMessage, error) {
	var text strings.Builder
	only := true
	for _, c := range r.Content {
		t, ok := c.(*mcp.TextContent)
		if !ok {
			only = false
			continue
		}
		text.WriteString(t.Text)
	}
	switch {
	case r.IsError && text.Len() > 0:
		return nil, errors.New(text.String())
	case r.IsError:
		return nil, errors.New("the tool failed")
	case r.StructuredContent != nil:
		return json.Marshal(r.StructuredContent)
	case !only:
		return json.Marshal(r.Content)
	case json.Valid([]byte(text.String())):
		return json.RawMessage(text.String()), nil
	}
	return json.Marshal(text.String())
}
