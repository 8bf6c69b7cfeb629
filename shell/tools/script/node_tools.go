package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/codemode"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// grant reads the rules of --tools. The tools are the machine's programs. tools.NAME({...}) runs
// "NAME -" with the object as JSON on its standard input, as programs made from tools expect (see
// codemode.Programs). It reads the output as JSON, or as text. The rules apply only to this
// script's tools object. Other ways to run programs, such as child_process, are limited only by the
// sandbox.
func (n *node) grant(file string) error {
	f, err := n.c.Open(file, vfs.ReadOnly, 0)
	if err != nil {
		return fmt.Errorf("%s: %s", file, tool.ErrText(err))
	}
	defer f.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return fmt.Errorf("%s: %s", file, tool.ErrText(err))
	}
	rules, err := codemode.ParseRules(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	guard := codemode.NewGuard(rules, nil)
	n.tools = func(vm *quickjs.VM, args []quickjs.Value) (any, error) {
		a := in{vm, args}
		name, input := a.str(0), json.RawMessage(a.str(1))
		if !slices.Contains(n.c.Machine().Commands(), name) && !n.runs(name) {
			return nil, fmt.Errorf("there is no tool %q", name)
		}
		if err := guard.Check(name, input); err != nil {
			return nil, err
		}
		n.flush()
		out, errs := &capped{n: n, most: maxRead}, &capped{n: n, most: 1 << 20}
		status := n.c.Run(tool.Child{Args: []string{name, "-"}, Dir: n.dir, In: bytes.NewReader(input), Out: out, Err: errs})
		_ = n.c.Pay(-int64(out.b.Len() + errs.b.Len()))
		if status != 0 {
			if why := strings.TrimSpace(errs.b.String()); why != "" {
				return nil, errors.New(why)
			}
			return nil, fmt.Errorf("%s: exit status %d", name, status)
		}
		text := strings.TrimSuffix(out.b.String(), "\n")
		if json.Valid([]byte(text)) {
			return text, nil
		}
		b, err := json.Marshal(text)
		return string(b), err
	}
	return nil
}

// installTools gives the object tools to the script.
func (n *node) installTools() error {
	_, err := n.hook("grant")
	return err
}
