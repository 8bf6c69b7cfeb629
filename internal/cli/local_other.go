//go:build !linux

package cli

import (
	"context"
	"errors"
	"runtime"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/spf13/cobra"
)

// localDaemons returns an error: this system has no daemons of its own. The error says what to do
// instead.
func localDaemons(what string) error {
	hint := "run the daemon on a Linux machine, and use it from here with --url and --api-key"
	if runtime.GOOS == "windows" {
		hint = "use WSL2: wsl --install, then carrel inside it; or a daemon on a Linux machine, with --url and --api-key"
	}
	return &carrel.Error{Op: what, Kind: carrel.Unsupported, Err: errors.New("the walls of a daemon are Linux's"), Hint: hint}
}

// walls returns an error if this system has no walls for "carrel run". macOS has Seatbelt.
func walls() error {
	if runtime.GOOS == "darwin" {
		return nil
	}
	return &carrel.Error{Op: "run", Kind: carrel.Unsupported, Err: errors.New(runtime.GOOS + " has no walls that Carrel knows"),
		Hint: "on Windows use WSL2: wsl --install, then carrel run inside it"}
}

func (a *app) runDaemon(context.Context, config.Config) error { return localDaemons("carrel serve") }

func (a *app) runPod(context.Context, config.Config, podOptions) error {
	return localDaemons("carrel pod")
}

// authority returns "": this system has no daemon that could make one.
func authority(string) string { return "" }

// doctorCommand is "carrel doctor".
func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say which walls work on this host (on Linux)",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return localDaemons("carrel doctor") },
	}
}
