package cli

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// failure is the error for one of several things, in JSON.
type failure struct {
	ID    string      `json:"id,omitempty"`
	Kind  carrel.Kind `json:"kind"`
	Error string      `json:"error"`
	Hint  string      `json:"hint,omitempty"`
}

func failureOf(id string, err error) failure {
	return failure{ID: id, Kind: carrel.KindOf(err), Error: err.Error(), Hint: carrel.HintOf(err)}
}

// forEach calls do for each name and goes on if one fails. It returns the first error, which is
// reported at the end and decides the exit status; it reports the others itself.
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

// checkIDs refuses the whole list if one is not a sandbox's ID, before anything is done.
func checkIDs(args []string) error {
	for _, arg := range args {
		if _, err := carrel.ParseID(arg); err != nil {
			return err
		}
	}
	return nil
}
