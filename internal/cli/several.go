package cli

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// failure is what went wrong with one of several, in JSON.
type failure struct {
	ID    string      `json:"id,omitempty"`
	Kind  carrel.Kind `json:"kind"`
	Error string      `json:"error"`
	Hint  string      `json:"hint,omitempty"`
}

func failureOf(id string, err error) failure {
	return failure{ID: id, Kind: carrel.KindOf(err), Error: err.Error(), Hint: carrel.HintOf(err)}
}

// forEach does the same with each of several and goes on when one fails. The first
// error decides the exit status and is returned to be reported at the end; the
// others are reported here.
func (a *app) forEach(ctx context.Context, names []string, do func(name string) error) ([]failure, error) {
	var firstErr error
	failed := []failure{} // never null in JSON
	for _, name := range names {
		err := do(name)
		if err == nil {
			continue
		}
		failed = append(failed, failureOf(name, err))
		if firstErr == nil {
			firstErr = err
		} else {
			a.report(err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed, firstErr
}

// checkIDs refuses the whole list when one is no sandbox's ID, before anything is done.
func checkIDs(args []string) error {
	for _, arg := range args {
		if _, err := carrel.ParseID(arg); err != nil {
			return err
		}
	}
	return nil
}
