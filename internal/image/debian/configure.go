package debian

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel"
)

//go:embed configure.sh
var configureScript string

// configureEnv is the environment of the script that configures the packages.
func configureEnv(s *Set) map[string]string {
	return map[string]string{"ARCH": s.Arch, "SUITE": s.Suite,
		"SOURCE_DATE_EPOCH": fmt.Sprint(s.Epoch)}
}

// tarCommand writes the tree to standard output, in a fixed order.
var tarCommand = []string{"tar", "--create", "--file=-", "--directory=/", "--numeric-owner",
	"--sort=name",
	"--one-file-system", "--sparse-version=1.0", "--exclude=./proc/*", "--exclude=./sys/*",
	"--exclude=./dev/*", "--exclude=./run/*",
	"--exclude=./tmp/*", "."}

// Inside is a sandbox that was started from a first image. [carrel.Computer] has its method.
type Inside interface {
	Run(ctx context.Context, cmd carrel.Command) (*carrel.Result, error)
}

// Configure configures the packages of a set inside a sandbox. Then it writes the sandbox's tree to
// out, as a tar stream.
func Configure(ctx context.Context, in Inside, s *Set, out io.Writer) error {
	var log tail
	res, err := in.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", configureScript},
		Env: configureEnv(s), User: "root", Dir: "/",
		Stdout: &log, Stderr: &log})
	if err != nil {
		return fmt.Errorf("configure the packages: %w", err)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("configure the packages: %s: %s", res.Status, log.text())
	}
	var complaints tail
	res, err = in.Run(ctx, carrel.Command{Args: tarCommand, User: "root", Dir: "/", Stdout: out,
		Stderr: &complaints})
	if err != nil {
		return fmt.Errorf("read the configured files: %w", err)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("read the configured files: %s: %s", res.Status, complaints.text())
	}
	return nil
}

// tail keeps the end of a program's output, for an error.
type tail struct{ b []byte }

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - tailSize; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

// text returns the last lines.
func (t *tail) text() string {
	lines := bytes.Split(bytes.TrimSpace(t.b), []byte("\n"))
	const most = 6
	lines = lines[max(0, len(lines)-most):]
	return strings.ToValidUTF8(string(bytes.Join(lines, []byte("; "))), "?")
}

var errNoSandbox = errors.New(
	"this service has no sandbox with real processes to configure the packages in")
