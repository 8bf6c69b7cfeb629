package assembly

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/service"
)

// baseRow is the name of the check of the template base.
const baseRow = "base"

// baseHint says how the stand-in is replaced.
const baseHint = "carrel template get base"

// PrepareBase makes the template base of Debian's packages if the configuration demands it and if
// there is none yet. It returns an error if it can't be made.
func (a *Assembly) PrepareBase(ctx context.Context) error {
	if a.cfg.Base != config.BaseDebian {
		return nil
	}
	stage := ""
	err := a.images.PrepareBase(asMaker(ctx), func(p carrel.Progress) {
		if p.Stage != stage {
			stage = p.Stage
			a.log.Info("making the template base", "stage", stage)
		}
	})
	if err == nil {
		return nil
	}
	hint := "start with --base auto to let this machine's tools stand in for it"
	if own := carrel.HintOf(err); own != "" {
		hint = own + "; or " + hint
	}
	return &carrel.Error{Op: "start daemon", Kind: carrel.KindOf(err), Field: "base",
		Err: err, Hint: hint}
}

// TellBase logs what the template base is.
func (a *Assembly) TellBase() {
	st := a.images.BaseState()
	f := baseFinding(st)
	args := []any{"source", st.Source}
	if st.Digest != "" {
		args = append(args, "digest", st.Digest)
	}
	if f.Hint != "" {
		args = append(args, "hint", f.Hint)
	}
	a.log.Info(f.What, args...)
}

// baseCheck says what the template base is. No state of it keeps sandboxes from being made.
func (a *Assembly) baseCheck() service.Check {
	var st store.BaseState
	if a.images != nil {
		st = a.images.BaseState()
	} else {
		st = store.InspectBase(a.imageOptions())
	}
	return service.Check{Driver: baseRow, Findings: []driver.Finding{baseFinding(st)}}
}

// baseFinding describes the template base.
func baseFinding(st store.BaseState) driver.Finding {
	why := st.Source
	if st.Digest != "" {
		why += ", " + st.Digest
	}
	switch {
	case st.StandIn == "" && st.Outdated:
		return driver.Finding{What: "the template base is of an older Carrel's packages", Why: why,
			Hint: baseHint}
	case st.StandIn == "":
		return driver.Finding{What: "the template base is its own", Why: why}
	case st.Forced, st.Unknown:
		return driver.Finding{What: "the template host is base", Why: why}
	}
	return driver.Finding{What: "the template host stands in for base", Why: why, Hint: baseHint}
}
