package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// keptWait is how long one request for output waits while logs follows a process.
const keptWait = 15 * time.Second

// tailMost is the most bytes that --tail holds while it looks for the last lines.
const tailMost = 2 << 20

// printOutput prints the kept output of a process. With follow, it also prints new output until the
// process ends. With lines above 0, it begins with the last lines. It returns the record of the
// process.
func (a processCommands) printOutput(ctx context.Context, svc carrel.Service, id carrel.ID, name string, follow bool, lines int) (carrel.ProcessRecord, error) {
	comp, all, err := recordsOf(ctx, svc, id)
	if err != nil {
		return carrel.ProcessRecord{}, err
	}
	rec, err := findRecord(all, id, name)
	if err != nil {
		return rec, err
	}
	q := carrel.OutputQuery{Serial: rec.Serial, From: rec.Written - rec.Kept}
	until := rec.Written // what is there now
	if q.From > 0 && lines == 0 {
		fmt.Fprintf(a.err, "carrel: the first %s are not kept any more\n", bytesText(q.From))
	}
	held := &tailed{lines: lines}
	for {
		out, err := comp.Output(ctx, q)
		if err != nil {
			return rec, err
		}
		rec = out.ProcessRecord
		if out.From > q.From && q.From > 0 {
			fmt.Fprintf(a.err, "carrel: %s are missing here: they came faster than they were read\n", bytesText(out.From-q.From))
		}
		if held == nil {
			err = a.printPieces(out.Pieces)
		} else {
			held.add(out.Pieces)
			if lines == 0 || out.Next >= until || len(out.Pieces) == 0 {
				err = a.printPieces(held.pieces)
				held.pieces = nil
			}
			if out.Next >= until || len(out.Pieces) == 0 {
				held = nil
			}
		}
		switch {
		case err != nil:
			return rec, err
		case out.Over(), !follow && held == nil:
			return rec, nil
		}
		if q.From = out.Next; follow && held == nil {
			q.Wait = keptWait
		}
	}
}

// printPieces prints each piece of output to the stream that the process wrote it to.
func (a processCommands) printPieces(pieces []carrel.OutputPiece) error {
	for _, p := range pieces {
		if a.json {
			if err := a.printJSON(p); err != nil {
				return err
			}
			continue
		}
		to := a.out
		if p.Stream == "stderr" {
			to = a.err
		}
		if _, err := to.Write(p.Data); err != nil {
			return err
		}
	}
	return nil
}

// tailed holds output. If there is a number of lines, it holds only the last lines.
type tailed struct {
	lines  int
	pieces []carrel.OutputPiece
}

// add adds pieces, and forgets everything before the last lines.
func (t *tailed) add(pieces []carrel.OutputPiece) {
	t.pieces = append(t.pieces, pieces...)
	if t.lines <= 0 {
		return
	}
	// The line break at the very end belongs to the last line.
	breaks, size := -1, 0
	if n := len(t.pieces); n > 0 && !endsLine(t.pieces[n-1].Data) {
		breaks = 0
	}
	for i := len(t.pieces) - 1; i >= 0; i-- {
		data := t.pieces[i].Data
		for j := len(data) - 1; j >= 0; j-- {
			if data[j] == '\n' {
				breaks++
			}
			if size++; breaks >= t.lines || size > tailMost {
				t.pieces[i].Data = data[j+1:]
				t.pieces = append([]carrel.OutputPiece(nil), t.pieces[i:]...)
				return
			}
		}
	}
}

func endsLine(data []byte) bool { return len(data) > 0 && data[len(data)-1] == '\n' }

// recordsOf lists the records of a sandbox's processes. It wakes no sandbox.
func recordsOf(ctx context.Context, svc carrel.Service, id carrel.ID) (carrel.Computer, []carrel.ProcessRecord, error) {
	comp, err := awake(ctx, svc, id)
	if err != nil {
		return nil, nil, err
	}
	all, err := comp.Records(ctx)
	return comp, all, err
}

// findRecord finds the one process that a text means: by its ID, else by its tag. A running process
// goes before an ended one. Of ended ones, the last goes first.
func findRecord(all []carrel.ProcessRecord, id carrel.ID, text string) (carrel.ProcessRecord, error) {
	const op = "find process"
	for _, match := range []func(carrel.ProcessRecord) bool{
		func(r carrel.ProcessRecord) bool { return fmt.Sprint(r.PID) == text },
		func(r carrel.ProcessRecord) bool { return r.Tag == text && text != "" },
	} {
		var run, over []carrel.ProcessRecord
		for _, r := range all {
			switch {
			case !match(r):
			case r.Ended.IsZero():
				run = append(run, r)
			default:
				over = append(over, r)
			}
		}
		switch {
		case len(run) > 1:
			var pids []string
			for _, r := range run {
				pids = append(pids, fmt.Sprint(r.PID))
			}
			return carrel.ProcessRecord{}, &carrel.Error{Op: op, Kind: carrel.Invalid, ID: id, Err: fmt.Errorf("%q may be %s", text, strings.Join(pids, ", ")),
				Hint: "give the process ID"}
		case len(run) == 1:
			return run[0], nil
		case len(over) > 0:
			return over[len(over)-1], nil
		}
	}
	return carrel.ProcessRecord{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("nothing is kept of a process with the ID or tag %q", text),
		Hint: "carrel ps -a " + string(id)}
}

// noteDetached says how to find a process again that was left running.
func noteDetached(w io.Writer, id carrel.ID, pid int, tag string) {
	fmt.Fprintf(w, "its output: carrel logs -f %s %s\n", id, first(tag, fmt.Sprint(pid)))
}
