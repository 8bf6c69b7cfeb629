package service

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel/internal/readiness"
)

// placeholder gives a ready guest an identity that nobody knows. It also runs a first command, so
// that the shell, its libraries and the connection are warm when a real command comes.
func (n *nursery) placeholder(ctx context.Context, b *box, l *line) error {
	if err := n.greeter.greet(ctx, b, l); err != nil {
		return err
	}
	return n.greeter.touch(ctx, b.guest(), touches)
}

// stretch runs the ready command of a template once more, in a sandbox that goes on from the
// template's own start. So the pages that its programs need for their work are in memory when the
// work comes. A failure does not matter: the start was ready when it was kept.
func (n *nursery) stretch(ctx context.Context, ready readiness.Check, b *box) {
	ctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	_ = ready.Await(ctx, b.guest().Run)
}

// touchTime bounds the first commands. There are several, because each one leaves less to read, map
// and start for the next, in the guest and in the sandbox's kernel. The fourth command takes half
// of the first one's time.
const (
	touchTime = 10 * time.Second
	touches   = 4
)
