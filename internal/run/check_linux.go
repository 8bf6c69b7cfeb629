package run

import (
	"context"
	"os"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// Checked says what this host gives to boxes of this user.
type Checked struct {
	Box     error  // why there are none
	Network error  // why there are none with a network
	Way     string // what such a network goes through, in words
}

// Check builds a box without and one with a network, and starts a program in each that does
// nothing.
func Check(ctx context.Context, d Deps) (c Checked) {
	if _, c.Box = try(ctx, d, box.Closed); c.Box != nil {
		c.Network = c.Box
		return c
	}
	c.Way, c.Network = try(ctx, d, box.Wired)
	return c
}

// try starts one box.
func try(ctx context.Context, d Deps, network box.Network) (way string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	w := &walls{}
	defer w.close()
	stage, err := w.program(d)
	if err != nil {
		return "", err
	}
	b, err := box.Start(ctx, box.Spec{Args: []string{program, "version"}, Root: box.Root{Host: true}, Network: network}, box.Options{Stage: stage})
	if err != nil {
		return "", err
	}
	if link := b.Link(); link != nil {
		way = tap.Way(link)
		_ = link.Close()
	}
	_ = b.Kill()
	_, _ = b.Wait()
	return way, nil
}
