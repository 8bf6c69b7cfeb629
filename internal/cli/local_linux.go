package cli

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/pod"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/spf13/cobra"
)

// localDaemons returns nil: Linux has daemons of its own.
func localDaemons(string) error { return nil }

// walls returns nil: Linux has walls for "carrel run".
func walls() error { return nil }

// runDaemon runs the daemon until it is interrupted.
func (a *app) runDaemon(ctx context.Context, cfg config.Config) error {
	return daemon.Run(ctx, cfg, daemon.Hooks{Ready: a.announce})
}

// runPod runs the daemon of a pod until it is interrupted.
func (a *app) runPod(ctx context.Context, cfg config.Config, opts podOptions) error {
	return daemon.RunPod(ctx, cfg, daemon.PodOptions{Listen: opts.listen, Dir: opts.dir, Opened: opts.opened},
		daemon.Hooks{Ready: a.announce})
}

// authority returns the certificate file of a local daemon with --tls-self-signed.
func authority(dataDir string) string { return daemon.Authority(dataDir) }

// doctorCommand is "carrel doctor".
func (a *app) doctorCommand() *cobra.Command {
	cfg := config.Default()
	var inPod bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say which walls work on this host, and what to do where one does not",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.DataDir = a.dataDirectory()
			if err := finishConfig(&cfg); err != nil {
				return err
			}
			rows, err := daemon.Doctor(c.Context(), cfg)
			if err != nil {
				return err
			}
			a.addFromDaemon(c.Context(), rows)
			rows = append(rows, boxRow(c.Context()))
			if inPod {
				rows = podRows(rows, pod.Here(cfg.DataDir).Inspect())
			}
			if err := a.printDoctor(rows); err != nil || a.json {
				return err
			}
			a.printPoolLine(c.Context())
			return nil
		},
	}
	c.Flags().BoolVar(&inPod, "in-pod", false, "also say which settings of this Kubernetes pod are missing, for each tier")
	return c
}

// podRows adds what the settings of the pod explain: to a tier's row what the tier lacks, and a row
// about the pod's safety.
func podRows(rows []daemon.DoctorRow, lacks []pod.Lack) []daemon.DoctorRow {
	for i := range rows {
		if rows[i].Tier == "" || rows[i].OK {
			continue
		}
		for _, lack := range pod.For(lacks, rows[i].Tier) {
			rows[i].Findings = append([]api.Finding{{What: "missing in this pod", Why: lack.Problem, Hint: lack.Hint}}, rows[i].Findings...)
			rows[i].Hint = lack.Hint // the driver's own is for hosts
		}
	}
	row := daemon.DoctorRow{Driver: "pod", OK: true}
	for _, lack := range pod.For(lacks, "") {
		row.Findings = append(row.Findings, api.Finding{What: "could be safer", Why: lack.Problem, Hint: lack.Hint})
	}
	return append(rows, row)
}

// baseRow is the row about the template base.
const baseRow = "base"

// addFromDaemon adds what only a running daemon knows: the sandboxes and snapshots that need
// another build, and what its template base is. Without a daemon there is nothing to add.
func (a *app) addFromDaemon(ctx context.Context, rows []daemon.DoctorRow) {
	_ = a.withService(ctx, func(svc carrel.Service) error {
		c, ok := svc.(*client.Client)
		if !ok {
			return nil
		}
		told, err := c.Doctor(ctx)
		if err != nil {
			return nil
		}
		for i := range rows {
			for _, t := range told {
				if t.Driver == baseRow && rows[i].Driver == baseRow {
					rows[i].Findings = nil // the daemon may have other settings
				}
				for _, f := range t.Findings {
					f := api.Finding(f)
					same := func(other api.Finding) bool { return other.What == f.What }
					if t.Driver == rows[i].Driver && !slices.ContainsFunc(rows[i].Findings, same) {
						rows[i].Findings = append(rows[i].Findings, f)
					}
				}
			}
		}
		return nil
	})
}

// boxRow says whether "carrel run" works here, with and without a network.
func boxRow(ctx context.Context) daemon.DoctorRow {
	c := run.Check(ctx, runDeps())
	row := daemon.DoctorRow{Driver: "run", OK: c.Box == nil}
	switch {
	case c.Box != nil:
		row.Problem, row.Hint = c.Box.Error(), carrel.HintOf(c.Box)
		return row
	case c.Network != nil:
		row.Findings = append(row.Findings, api.Finding{What: "no box has a network", Why: c.Network.Error(), Hint: carrel.HintOf(c.Network)})
	default:
		row.Findings = append(row.Findings, api.Finding{What: "a box with a network has it", Why: "through " + c.Way})
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		row.Findings = append(row.Findings, api.Finding{What: "secrets are hidden, and nobody is told which were touched", Why: err.Error(), Hint: "modprobe fuse; chmod 666 /dev/fuse"})
		return row
	}
	_ = f.Close()
	return row
}

// printPoolLine reports the state of the daemon's pool, if a daemon runs.
func (a *app) printPoolLine(ctx context.Context) {
	_ = a.withService(ctx, func(svc carrel.Service) error { // without a daemon there is nothing to report
		st, err := svc.Pool(ctx)
		if err != nil {
			return nil
		}
		fmt.Fprintf(a.out, "%-8s %d of at most %d ready, %d hits, %d misses; memory allows to %s; %d start of %d at once, %d wait\n", "pool", st.Ready, st.Cap, st.Hits, st.Misses, st.Memory,
			st.Gate.Starting, st.Gate.Limit, st.Gate.Waiting)
		if st.Problem != "" {
			fmt.Fprintf(a.out, "         note: the last one could not be made: %s\n", printable(st.Problem))
		}
		return nil
	})
}

func (a *app) printDoctor(rows []daemon.DoctorRow) error {
	if a.json {
		return a.printJSON(rows)
	}
	for _, r := range rows {
		verdict := "works"
		if !r.OK {
			verdict = "does not work: " + r.Problem
		}
		fmt.Fprintf(a.out, "%-8s %s\n", r.Driver, verdict)
		if r.Hint != "" {
			fmt.Fprintf(a.out, "         hint: %s\n", r.Hint)
		}
		for _, f := range r.Findings {
			fmt.Fprintf(a.out, "         note: %s: %s\n", f.What, f.Why)
			if f.Hint != "" {
				fmt.Fprintf(a.out, "         hint: %s\n", f.Hint)
			}
		}
	}
	return nil
}
