package assembly

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image/debian"
	"github.com/carrel-dev/carrel/internal/service"
)

// kernelDir is the directory of the virtual machines' kernel, in the data directory. The directory
// kernels beside it has the programs of gVisor's.
const kernelDir = "vm-kernel"

// openKernels prepares the place of the virtual machines' kernel. It reads and writes nothing.
func (a *Assembly) openKernels() {
	set, err := a.packages()
	if err != nil {
		a.log.Debug("no kernel can be got", "err", err) // getting one says so
	}
	a.kernels = debian.NewKernels(debian.KernelOptions{Set: set, Fetcher: a.fetcher(),
		Dir: filepath.Join(a.dir, kernelDir), Log: a.log})
}

// getKernel brings the kernel of virtual machines.
func (a *Assembly) getKernel(ctx context.Context, progress func(carrel.Progress)) (carrel.Template, error) {
	fail := func(field, why, hint string) (carrel.Template, error) {
		return carrel.Template{}, &carrel.Error{Op: "get kernel", Kind: carrel.Unsupported, Field: field,
			Err: errors.New(why), Hint: hint}
	}
	switch {
	case a.kernels == nil:
		return fail("name", "only a daemon has virtual machines", "run carrel serve")
	case a.cfg.MicroVMKernel != "":
		return fail("name", "this daemon's machines boot the kernel in "+a.cfg.MicroVMKernel,
			"start it without --microvm-kernel")
	}
	return a.kernels.Get(ctx, progress)
}

// tellKernel adds to the check of the tier of virtual machines which kernel they boot.
func (a *Assembly) tellKernel(checks []service.Check) []service.Check {
	if a.kernels == nil || a.cfg.MicroVMKernel != "" {
		return checks
	}
	kernel, outdated, err := a.kernels.State()
	if err != nil {
		return checks // the check itself says so
	}
	f := driver.Finding{What: "machines boot a kernel of Debian's", Why: kernel}
	if outdated {
		f.What, f.Hint = "machines boot a kernel of an older Carrel", "carrel template get kernel"
	}
	for i, c := range checks {
		if c.Tier == carrel.MicroVM && c.Err == nil {
			checks[i].Findings = append(c.Findings, f)
		}
	}
	return checks
}
