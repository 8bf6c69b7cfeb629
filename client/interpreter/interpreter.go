// Package interpreter runs cells of code in a sandbox's code interpreter, for Go programs. It is a
// client of the service on port 49999, which sandboxes of the template code-interpreter-v1 have from
// their start. In other sandboxes, [Interpreter.Start] starts it.
//
//	sb, err := svc.Create(ctx, carrel.CreateOptions{Template: "code-interpreter-v1"})
//	c, err := svc.Computer(ctx, sb.ID)
//	in := interpreter.New(c, sb.AccessToken)
//	defer in.Close()
//	res, err := in.Run(ctx, interpreter.Cell{Code: "6 * 7"}, nil)
//	fmt.Println(res.Text()) // 42
package interpreter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/carrel-dev/carrel"
)

// Port is where the code interpreter listens in a sandbox.
const Port = 49999

const (
	// startTimeout bounds the wait for a service that starts.
	startTimeout = 60 * time.Second
	startPoll    = 20 * time.Millisecond
	// maxLine is the longest line of an answer: a picture of 64 MiB, and what else there is.
	maxLine = 80 << 20
	// program is the service's program in every sandbox.
	program = "/.carrel/guest"
)

// Cell is code to run.
type Cell struct {
	Code     string            `json:"code"`
	Context  string            `json:"context_id,omitempty"` // or the default one of Language
	Language string            `json:"language,omitempty"`   // "" is Python
	Env      map[string]string `json:"env_vars,omitempty"`   // for this cell only
}

// Result is a value: the cell's own (Main) or one that it displayed. Fields that it has no form for
// are empty.
type Result struct {
	Main       bool                       `json:"is_main_result"`
	Text       string                     `json:"text,omitempty"`
	HTML       string                     `json:"html,omitempty"`
	Markdown   string                     `json:"markdown,omitempty"`
	SVG        string                     `json:"svg,omitempty"`
	PNG        []byte                     `json:"png,omitempty"`
	JPEG       []byte                     `json:"jpeg,omitempty"`
	PDF        []byte                     `json:"pdf,omitempty"`
	LaTeX      string                     `json:"latex,omitempty"`
	JSON       json.RawMessage            `json:"json,omitempty"`
	JavaScript string                     `json:"javascript,omitempty"`
	Data       json.RawMessage            `json:"data,omitempty"`
	Chart      json.RawMessage            `json:"chart,omitempty"`
	Extra      map[string]json.RawMessage `json:"extra,omitempty"`
}

// Failure is what the code of a cell threw.
type Failure struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// Output is one thing that a running cell did. One of its fields is set.
type Output struct {
	Stdout, Stderr string
	Result         *Result
	Failure        *Failure
}

// Execution is all that a cell did.
type Execution struct {
	Count          int // the number of the cell in its context
	Stdout, Stderr string
	Results        []Result
	Failure        *Failure // nil if the code threw nothing
}

// Text is the text of the cell's own value.
func (e Execution) Text() string {
	for _, r := range e.Results {
		if r.Main {
			return r.Text
		}
	}
	return ""
}

// Context is where cells keep their state.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

// Interpreter is a client of one sandbox's code interpreter. It may be used by several goroutines.
type Interpreter struct {
	computer carrel.Computer
	token    string
	http     *http.Client
}

// New returns a client. token is the sandbox's access token, "" if it has none. New does not
// connect.
func New(c carrel.Computer, token string) *Interpreter {
	return &Interpreter{computer: c, token: token, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.Dial(ctx, Port)
		},
		DisableCompression: true, IdleConnTimeout: time.Minute,
	}}}
}

// Close closes idle connections.
func (i *Interpreter) Close() { i.http.CloseIdleConnections() }

// Start waits until the service is ready. If nothing listens, it starts the service.
func (i *Interpreter) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resp, err := i.do(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		cmd := carrel.Command{Args: []string{program, "interpreter"}, Tag: "interpreter"}
		if _, serr := i.computer.Start(ctx, cmd); serr != nil {
			return fmt.Errorf("start the code interpreter: %w", serr)
		}
	}
	for {
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return &carrel.Error{Op: "run code", Kind: carrel.TimedOut,
				Err:  errors.Join(errors.New("the sandbox's code interpreter is not ready"), err),
				Hint: "carrel exec ID -- /.carrel/guest interpreter says why it does not start"}
		case <-time.After(startPoll):
		}
		resp, err = i.do(ctx, http.MethodGet, "/health", nil)
	}
}

// do makes a request.
func (i *Interpreter) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var raw io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		raw = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://interpreter.carrel"+path, raw)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if i.token != "" {
		req.Header.Set("X-Access-Token", i.token)
	}
	return i.http.Do(req)
}

// kinds are the error kinds of the service's answers.
var kinds = map[int]carrel.Kind{http.StatusBadRequest: carrel.Invalid,
	http.StatusUnauthorized: carrel.Denied, http.StatusNotFound: carrel.NotFound,
	http.StatusRequestEntityTooLarge: carrel.Invalid,
	http.StatusTooManyRequests:       carrel.Exhausted}

// call makes a request and checks its status.
func (i *Interpreter) call(ctx context.Context, op, method, path string, body any) (*http.Response, error) {
	resp, err := i.do(ctx, method, path, body)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var said struct{ Message string }
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said)
	if said.Message == "" {
		said.Message = resp.Status
	}
	kind, ok := kinds[resp.StatusCode]
	if !ok {
		kind = carrel.Internal
	}
	return nil, &carrel.Error{Op: op, Kind: kind, Err: errors.New(said.Message)}
}

// Run runs a cell to its end. show, if not nil, gets each output as it comes. A failure of the code
// is in the Execution; the error is one of the service. If ctx ends, the cell is interrupted.
func (i *Interpreter) Run(ctx context.Context, c Cell, show func(Output)) (Execution, error) {
	const op = "run code"
	if show == nil {
		show = func(Output) {}
	}
	resp, err := i.call(ctx, op, http.MethodPost, "/execute", c)
	if err != nil {
		return Execution{}, err
	}
	defer resp.Body.Close()
	var e Execution
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		over, err := e.add(lines.Bytes(), show)
		if over || err != nil {
			return e, err
		}
	}
	err = errors.Join(ctx.Err(), lines.Err(), errors.New("the answer ended before the cell"))
	return e, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: err}
}

// add takes a line of the answer. over reports that it is the last one.
func (e *Execution) add(raw []byte, show func(Output)) (over bool, err error) {
	var line struct {
		Type  string `json:"type"`
		Text  string `json:"text"`
		Count int    `json:"execution_count"`
	}
	if err := json.Unmarshal(raw, &line); err != nil {
		return false, fmt.Errorf("run code: a line is not understood: %w", err)
	}
	switch line.Type {
	case "stdout":
		e.Stdout += line.Text
		show(Output{Stdout: line.Text})
	case "stderr":
		e.Stderr += line.Text
		show(Output{Stderr: line.Text})
	case "result":
		var r Result
		if err := json.Unmarshal(raw, &r); err != nil {
			return false, fmt.Errorf("run code: a result is not understood: %w", err)
		}
		e.Results = append(e.Results, r)
		show(Output{Result: &r})
	case "error":
		e.Failure = &Failure{}
		if err := json.Unmarshal(raw, e.Failure); err != nil {
			return false, fmt.Errorf("run code: an error is not understood: %w", err)
		}
		show(Output{Failure: e.Failure})
	case "number_of_executions":
		e.Count = line.Count
	}
	return line.Type == "end_of_execution", nil // unknown types are of newer services
}

// Contexts lists the contexts.
func (i *Interpreter) Contexts(ctx context.Context) ([]Context, error) {
	var out []Context
	err := i.ask(ctx, "list contexts", http.MethodGet, "/contexts", nil, &out)
	return out, err
}

// CreateContext makes a context. An empty language is Python, an empty dir the user's home.
func (i *Interpreter) CreateContext(ctx context.Context, language, dir string) (Context, error) {
	var out Context
	in := map[string]string{"language": language, "cwd": dir}
	err := i.ask(ctx, "create context", http.MethodPost, "/contexts", in, &out)
	return out, err
}

// RestartContext gives a context an empty state.
func (i *Interpreter) RestartContext(ctx context.Context, id string) error {
	return i.ask(ctx, "restart context", http.MethodPost, "/contexts/"+id+"/restart", nil, nil)
}

// RemoveContext ends a context.
func (i *Interpreter) RemoveContext(ctx context.Context, id string) error {
	return i.ask(ctx, "remove context", http.MethodDelete, "/contexts/"+id, nil, nil)
}

// ask makes a request with a JSON answer.
func (i *Interpreter) ask(ctx context.Context, op, method, path string, in, out any) error {
	resp, err := i.call(ctx, op, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
