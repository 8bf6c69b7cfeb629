package service

import (
	"context"
	"time"
)

// placeholder gives a guest that is ready an identity that nobody knows, and lets it do
// once what the first command will need: the shell, its libraries, and the way there.
func (n *nursery) placeholder(ctx context.Context, b *box, l *line) error {
	if err := n.greeter.greet(ctx, b, l); err != nil {
		return err
	}
	return n.greeter.touch(ctx, b.guest(), touches)
}

// touchTime bounds the first commands. There are several, for each finds less left to be read, mapped and
// started, in the guest and in the sandbox's kernel: the fourth takes half of the first one's time.
const (
	touchTime = 10 * time.Second
	touches   = 4
)
