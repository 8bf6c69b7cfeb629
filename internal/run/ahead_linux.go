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
	way   *carrier // of a box with a network, where that is another process
}

// ahead starts the stage before the settings are read, unless the flags already show that it would
// be useless.
func (o *Options) ahead(d Deps) (*walls, error) {
	w := &walls{}
	_, nested := os.LookupEnv(marker)
	other := o.tier != "" && o.tier != string(carrel.NS)
	wired := len(o.allow) > 0 || o.internet || o.policy != ""
	if wired && d.Wire == nil && (d.Whole == nil || o.policy != "") {
		return nil, ErrLater // such a policy is mostly one that puts in secrets
	}
	if d.Stage == nil || nested || other || o.light || o.host || o.dryRun || o.explain {
		return w, nil
	}
	program, err := w.program(d)
	if err != nil {
		return nil, err
	}
	network := box.Closed
	if wired {
		network = box.Wired
	}
	w.stage = box.StartAhead(program, network)
	if wired && d.Wire == nil {
		w.way = startCarrier(d.Whole)
	}
	return w, nil
}

// wire makes the way out of a box, here or in another process.
func (w *walls) wire(d Deps, o WireOptions) (Wire, error) {
	if d.Wire != nil {
		return d.Wire(o)
	}
	if w.way == nil {
		w.way = startCarrier(d.Whole)
	}
	return w.way, w.way.order(o)
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
	if w.way != nil {
		_ = w.way.Close()
	}
	if w.file != nil {
		_ = w.file.Close()
	}
}
