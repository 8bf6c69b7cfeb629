package daemontest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Sh runs a command of the shell in a sandbox, within a time, and returns what it prints. An exit code
// other than 0 is an error.
func Sh(ctx context.Context, svc carrel.Service, id carrel.ID, command string, most time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	box, err := svc.Computer(ctx, id)
	if err != nil {
		return "", err
	}
	res, err := box.Run(ctx, carrel.Command{Args: []string{"sh", "-c", command}})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("exit code %d: %s", res.ExitCode, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}
