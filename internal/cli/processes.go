package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
)

// processCommands are the commands about processes in a sandbox.
type processCommands struct{ *app }

// processRow is a process in JSON.
type processRow struct {
	PID  int      `json:"pid"`
	Tag  string   `json:"tag,omitempty"`
	Args []string `json:"args"`
	Dir  string   `json:"dir,omitempty"`
}

// psCommand is "carrel ps".
func (a processCommands) psCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "ps ID",
		Short: "List what was started in a sandbox and still runs",
		Long: `Lists the processes that were started from outside and still run: with carrel
exec, a shell, or a client. What those have started themselves is shown by
carrel exec ID -- ps. With --all it also lists what ran in the background and
has ended, with the exit status; the sandbox remembers the last of them.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "also what has ended, with its exit status")
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		if all {
			return a.printRecords(ctx, svc, id)
		}
		found, err := processesOf(ctx, svc, id)
		if err != nil {
			return err
		}
		rows, cells := []processRow{}, [][]string{}
		for _, p := range found {
			rows = append(rows, processRow{p.PID, p.Tag, p.Args, p.Dir})
			cells = append(cells, []string{strconv.Itoa(p.PID), first(p.Tag, "–"), strings.Join(p.Args, " ")})
		}
		if a.json {
			return a.printJSON(rows)
		}
		return a.table([]string{"PID", "TAG", "COMMAND"}, cells)
	})
	return c
}

// printRecords prints what is known of a sandbox's processes, those that have ended too.
func (a processCommands) printRecords(ctx context.Context, svc carrel.Service, id carrel.ID) error {
	_, all, err := recordsOf(ctx, svc, id)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(all)
	}
	cells := [][]string{}
	for _, r := range all {
		state := "running " + span(a.now().Sub(r.Started))
		if !r.Ended.IsZero() {
			state = first(r.Status, "ended") + ", " + span(a.now().Sub(r.Ended)) + " ago"
		}
		cells = append(cells, []string{strconv.Itoa(r.PID), first(r.Tag, "–"), state, bytesText(r.Kept), strings.Join(r.Args, " ")})
	}
	return a.table([]string{"PID", "TAG", "STATE", "KEPT", "COMMAND"}, cells)
}

// processesOf lists a sandbox's processes, sorted by ID. It does not wake a paused sandbox.
func processesOf(ctx context.Context, svc carrel.Service, id carrel.ID) ([]carrel.ProcessInfo, error) {
	comp, err := awake(ctx, svc, id)
	if err != nil {
		return nil, err
	}
	found, err := comp.Processes(ctx)
	slices.SortFunc(found, func(x, y carrel.ProcessInfo) int { return x.PID - y.PID })
	return found, err
}

// awake opens the inside of a sandbox that runs. It wakes none.
func awake(ctx context.Context, svc carrel.Service, id carrel.ID) (carrel.Computer, error) {
	sb, err := svc.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.State == carrel.Paused { // asking its guest would wake it
		return nil, &carrel.Error{Op: "list processes", Kind: carrel.Conflict, ID: id, Err: errors.New("the sandbox is paused: nothing runs in it now"),
			Hint: "carrel resume " + string(id)}
	}
	return svc.Computer(ctx, id)
}

// attachCommand is "carrel attach".
func (a processCommands) attachCommand() *cobra.Command {
	var kept bool
	c := &cobra.Command{
		Use:   "attach ID PID|TAG",
		Short: "Show the output of a process that runs in a sandbox",
		Long: `Shows what a process writes, and first what the sandbox still holds of what it
wrote while nobody listened. With --kept it begins with all that the sandbox keeps
of the process's output, whoever has read it. The exit status is the process's own;
125 means that Carrel could not show it. Ctrl-C leaves the process running.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := carrel.ParseID(args[0])
			if err != nil {
				return ownFailure{err}
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				follow := a.follow
				if kept {
					follow = a.followKept
				}
				if err := follow(c.Context(), svc, id, args[1]); err != nil {
					return ownFailure{err}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&kept, "kept", false, "begin with all of its output that is kept")
	return c
}

// runningProcess returns the PID of the running process that a text means: a PID or a tag.
func runningProcess(ctx context.Context, svc carrel.Service, id carrel.ID, text string) (int, error) {
	found, err := processesOf(ctx, svc, id)
	if err != nil {
		return 0, err
	}
	return findProcess(found, id, text)
}

// followKept shows what is kept of a running process's output and then what comes, and takes over
// the process's exit status.
func (a processCommands) followKept(ctx context.Context, svc carrel.Service, id carrel.ID, text string) error {
	pid, err := runningProcess(ctx, svc, id, text)
	if err != nil {
		return err
	}
	rec, err := a.printOutput(ctx, svc, id, strconv.Itoa(pid), true, 0)
	if err != nil {
		return err
	}
	a.takeStatus(rec.ExitCode)
	return nil
}

// takeStatus makes a process's exit code our own. It reports the end by a signal as shells do.
func (a processCommands) takeStatus(code int) {
	if a.code = code; code < 0 {
		a.code = 128 + int(syscall.SIGKILL)
	}
}

// follow shows a process's output until the process ends, and exits with its status.
func (a processCommands) follow(ctx context.Context, svc carrel.Service, id carrel.ID, text string) error {
	pid, err := runningProcess(ctx, svc, id, text)
	if err != nil {
		return err
	}
	comp, err := svc.Computer(ctx, id)
	if err != nil {
		return err
	}
	p, err := comp.Attach(ctx, pid, a.out, a.err)
	if err != nil {
		return err
	}
	defer p.Close()
	res, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	a.takeStatus(res.ExitCode)
	return nil
}

// findProcess finds the only process with this ID or else this tag.
func findProcess(found []carrel.ProcessInfo, id carrel.ID, text string) (int, error) {
	const op = "find process"
	if pid, err := strconv.Atoi(text); err == nil && slices.ContainsFunc(found, func(p carrel.ProcessInfo) bool { return p.PID == pid }) {
		return pid, nil
	}
	var pids []string
	pid := 0
	for _, p := range found {
		if p.Tag == text && text != "" {
			pid = p.PID
			pids = append(pids, strconv.Itoa(p.PID))
		}
	}
	switch len(pids) {
	case 1:
		return pid, nil
	case 0:
		return 0, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("nothing with the ID or tag %q runs", text),
			Hint: "carrel ps -a " + string(id) + "; what an ended one wrote: carrel logs " + string(id) + " " + text}
	}
	return 0, &carrel.Error{Op: op, Kind: carrel.Invalid, ID: id, Err: fmt.Errorf("%q may be %s", text, strings.Join(pids, ", ")),
		Hint: "give the process ID"}
}
