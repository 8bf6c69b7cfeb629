package run

import (
	"context"
	"errors"
	"os"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// Checked says which boxes this host allows this user.
type Checked struct {
	Box     error  // why there are none
	Network error  // why there are no boxes with a network
	Way     string // what the network of a box goes through, in words
}

// Check builds a box without a network and a box with one, and starts a program that does nothing
// in each.
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
	s := box.Spec{Args: []string{program, "version"}, Root: box.Root{Host: true}, NoTmp: true, Network: network}
	b, err := box.Start(ctx, s, box.Options{Stage: stage})
	if exec := (*os.PathError)(nil); errors.As(err, &exec) && exec.Op == "exec" {
		return "a link", nil // the walls stood, and this program lies where a box does not see it
	}
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
