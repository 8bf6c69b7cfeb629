package interp

import (
	"context"
	"errors"
	"strings"
	"time"
)

// guestTimeout is the longest time that a program waits for its host.
const guestTimeout = time.Minute

// toolGuest is the machine's part of carrel-guest: "token" asks the host for one of the sandbox's
// identity tokens.
func toolGuest(c *call) int {
	if len(c.args) == 0 || c.args[0] != "token" {
		return c.complain(1, "only \"token\" works in a simulated sandbox")
	}
	name, audience, err := tokenArgs(c.args[1:])
	if err != nil {
		return c.complain(1, "token: %v", err)
	}
	if c.r.m.token == nil {
		return c.complain(1, "token: this sandbox has no host to ask")
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, guestTimeout)
	defer cancel()
	token, err := c.r.m.token(ctx, name, audience)
	if err != nil {
		return c.complain(1, "%v", err)
	}
	c.print(token + "\n")
	return 0
}

// tokenArgs reads the arguments that choose a token: its name or its audience.
func tokenArgs(args []string) (name, audience string, err error) {
	for len(args) > 0 {
		flag, value, joined := strings.Cut(strings.TrimPrefix(args[0], "-"), "=")
		args = args[1:]
		if !joined {
			if len(args) == 0 {
				return "", "", errors.New("want --name NAME or --audience AUDIENCE")
			}
			value, args = args[0], args[1:]
		}
		switch flag {
		case "-name", "name":
			name = value
		case "-audience", "audience":
			audience = value
		default:
			return "", "", errors.New("flag provided but not defined: -" + strings.TrimPrefix(flag, "-"))
		}
	}
	if (name == "") == (audience == "") {
		return "", "", errors.New("want one of --name and --audience")
	}
	return name, audience, nil
}
