package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
)

const (
	// checkpointTimeout bounds the wait for a snapshot. A large memory takes seconds.
	checkpointTimeout = 5 * time.Minute
	// wakeTimeout bounds the wait for a new generation after the connection broke.
	wakeTimeout = 10 * time.Second
	wakePoll    = 20 * time.Millisecond
)

// checkpointer is "carrel-guest checkpoint": a sandbox's own request for a snapshot.
type checkpointer struct {
	host   guest.Host
	req    guest.CheckpointRequest
	asJSON bool
	// generation reads the number of this copy, "" if there is none.
	generation func() string
}

// outcome is the command's output with --json.
type outcome struct {
	SnapshotID string `json:"snapshotID,omitempty"`
	Restored   bool   `json:"restored"` // this is a copy from the snapshot
	Generation int    `json:"generation"`
}

// checkpoint is the subcommand.
func checkpoint(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("carrel-guest checkpoint", flag.ContinueOnError)
	c := checkpointer{generation: readGeneration}
	flags.StringVar(&c.req.Label, "label", "", "what people are to know of this moment")
	flags.BoolVar(&c.req.FilesOnly, "files-only", false, "keep the files only, without memory and processes")
	flags.BoolVar(&c.asJSON, "json", false, "print JSON")
	host := flags.String("host", net.JoinHostPort(driver.GatewayIPv4, strconv.Itoa(int(guest.HostPort))), "where the host listens")
	if done, err := parse(flags, args, stdout, "[--label TEXT] [--files-only] [--json]"); done || err != nil {
		return err
	}
	c.host.Dial = dialHost(*host)
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
	defer cancel()
	return c.run(ctx, stdout)
}

// parse reads a subcommand's flags. It takes no other arguments. done reports that the user asked
// for help and got it.
func parse(flags *flag.FlagSet, args []string, stdout io.Writer, usage string) (done bool, err error) {
	flags.SetOutput(io.Discard) // an error is one line, printed once
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		fmt.Fprintf(stdout, "usage: %s %s\n", flags.Name(), usage)
		flags.PrintDefaults()
		return true, nil
	case err != nil:
		return false, &carrel.Error{Kind: carrel.Invalid, Err: err, Hint: flags.Name() + " --help"}
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("%s: unexpected arguments: %s", strings.TrimPrefix(flags.Name(), "carrel-guest "), strings.Join(flags.Args(), " "))
	}
	return false, nil
}

// dialHost connects to the host's port.
func dialHost(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		return d.DialContext(ctx, "tcp", addr)
	}
}

// run asks for the snapshot. Then it finds out whether this is the sandbox that asked or a copy: in
// a copy the connection is gone and the generation has changed.
func (c *checkpointer) run(ctx context.Context, stdout io.Writer) error {
	before := c.generation()
	reply, err := c.host.Checkpoint(ctx, c.req)
	if err == nil {
		return c.print(stdout, reply.SnapshotID, outcome{SnapshotID: reply.SnapshotID, Generation: reply.Generation})
	}
	if carrel.KindOf(err) != carrel.Unavailable && carrel.KindOf(err) != carrel.TimedOut {
		return err
	}
	for began := time.Now(); ; time.Sleep(wakePoll) {
		if now := c.generation(); now != before {
			n, _ := strconv.Atoi(now) // a number: the guest wrote it
			return c.print(stdout, "restored: generation "+now, outcome{Restored: true, Generation: n})
		}
		if time.Since(began) > wakeTimeout || errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
	}
}

// print writes the result.
func (c *checkpointer) print(stdout io.Writer, text string, o outcome) error {
	if c.asJSON {
		raw, err := json.Marshal(o)
		if err != nil {
			return err
		}
		text = string(raw)
	}
	_, err := fmt.Fprintln(stdout, text)
	return err
}

// readGeneration reads the generation that the guest wrote after the last restore.
func readGeneration() string {
	data, _ := os.ReadFile(guest.GenerationFile) // none: never restored
	return strings.TrimSpace(string(data))
}

// report writes an error as one line, and its hint as another.
func report(stderr io.Writer, err error) {
	fmt.Fprintln(stderr, "carrel-guest:", err)
	var known *carrel.Error
	if errors.As(err, &known) && known.Hint != "" {
		fmt.Fprintln(stderr, "hint:", known.Hint)
	}
}
