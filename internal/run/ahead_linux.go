package run

import (
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
)

// walls are the parts of a box that are made before the settings are known.
type walls struct {
	file  *os.File // the stage's program
	stage *box.Ahead
}

// ahead starts the stage before the settings are read, unless the flags already show that it would
// be useless.
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

// program opens the stage's program, once. It is nil if this program is its own stage.
func (w *walls) program(d Deps) (_ *os.File, err error) {
	if w.file == nil && d.Stage != nil {
		w.file, err = d.Stage()
	}
	return w.file, err
}

// close ends a stage that no box has used.
func (w *walls) close() {
	if w.stage != nil {
		w.stage.Close()
	}
	if w.file != nil {
		_ = w.file.Close()
	}
}
