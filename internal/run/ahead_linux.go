package run

import (
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
)

// walls are what of a box is there before it is known what it is like.
type walls struct {
	file  *os.File // the stage's program
	stage *box.Ahead
}

// ahead starts the stage while the settings are still to be read, unless the flags say already that it would be of no use.
func (o *Options) ahead(d Deps) (*walls, error) {
	w := &walls{}
	_, nested := os.LookupEnv(marker)
	other := o.tier != "" && o.tier != string(carrel.NS)
	wired := len(o.allow) > 0 || o.internet || o.policy != ""
	if d.Stage == nil || nested || other || o.light || o.host || o.dryRun || o.explain || wired && d.Wire == nil {
		return w, nil
	}
	program, err := w.program(d)
	if err != nil {
		return nil, err
	}
	w.stage = box.StartAhead(program)
	return w, nil
}

// program opens the stage's program, once. It is nil where this program is its own stage.
func (w *walls) program(d Deps) (_ *os.File, err error) {
	if w.file == nil && d.Stage != nil {
		w.file, err = d.Stage()
	}
	return w.file, err
}

// close ends a stage that no box has taken.
func (w *walls) close() {
	if w.stage != nil {
		w.stage.Close()
	}
	if w.file != nil {
		_ = w.file.Close()
	}
}
