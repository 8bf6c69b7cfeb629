package simshell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/version"
	"github.com/carrel-dev/carrel/shell/codemode"
	"github.com/carrel-dev/carrel/shell/tool"
)

// serverStart bounds an MCP server's start up to its list of tools; some are installed first.
const serverStart = 2 * time.Minute

// openServers starts the MCP servers, one for each command line, and turns their tools into
// programs. If rulesFile is not "", its rules judge the calls. undo ends the servers.
func openServers(ctx context.Context, lines []string, rulesFile string, undo *cleanup.Stack) (map[string]tool.Command, error) {
	fail := func(flag string, err error) (map[string]tool.Command, error) {
		return nil, &carrel.Error{Op: "start MCP servers", Kind: carrel.Invalid, Field: "--" + flag, Err: err}
	}
	var guard *codemode.Guard
	if rulesFile != "" {
		text, err := os.ReadFile(rulesFile)
		if err != nil {
			return fail("mcp-rules", err)
		}
		rules, err := codemode.ParseRules(text)
		if err != nil {
			return fail("mcp-rules", fmt.Errorf("%s: %w", rulesFile, err))
		}
		guard = codemode.NewGuard(rules, nil)
	}
	var tools []codemode.Tool
	for _, line := range lines {
		argv, err := splitCommand(line)
		if err != nil {
			return fail("mcp", fmt.Errorf("%q: %w", line, err))
		}
		more, err := openServer(ctx, argv, undo)
		if err != nil {
			return nil, &carrel.Error{Op: "start MCP server", Kind: carrel.Unavailable, Field: "--mcp", Err: fmt.Errorf("%s: %w", argv[0], err),
				Hint: "it must be a program that speaks the Model Context Protocol on its standard input and output"}
		}
		tools = append(tools, more...)
	}
	programs, err := codemode.Programs(tools, guard)
	if err != nil {
		return fail("mcp", err)
	}
	return programs, nil
}

// openServer starts a server and lists its tools.
func openServer(ctx context.Context, argv []string, undo *cleanup.Stack) ([]codemode.Tool, error) {
	said := &firstWords{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = said
	starting, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	implementation := &mcp.Implementation{Name: "carrel", Version: version.Version}
	session, err := mcp.NewClient(implementation, nil).Connect(starting, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Second}, nil)
	if err != nil {
		return nil, said.explain(err)
	}
	undo.Add(func() { _ = session.Close() }) // it was told to end, or killed
	tools, err := codemode.FromMCP(starting, session)
	if err != nil {
		return nil, said.explain(err)
	}
	return tools, nil
}

// firstWords keeps the beginning of a server's log, to explain a failed start.
type firstWords struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (f *firstWords) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const most = 4 << 10
	f.text.Write(b[:min(len(b), most-f.text.Len())])
	return len(b), nil
}

func (f *firstWords) explain(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text := strings.TrimSpace(f.text.String()); text != "" {
		return fmt.Errorf("%w: it says: %s", err, text)
	}
	return err
}

// splitCommand splits a command line into words like a shell: at blanks, with quotes and
// backslashes only.
func splitCommand(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("it is empty")
	}
	return words, nil
}
