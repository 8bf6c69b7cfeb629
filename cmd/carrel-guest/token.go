package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
)

// tokenTimeout bounds the wait for a token.
const tokenTimeout = time.Minute

// token is the subcommand that prints one of the sandbox's identity tokens.
func token(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("carrel-guest token", flag.ContinueOnError)
	name := flags.String("name", "", "the name that the token was given")
	audience := flags.String("audience", "", "whom it is for")
	asJSON := flags.Bool("json", false, "print JSON, with the time when it expires")
	list := flags.Bool("list", false, "print the names and audiences that there are")
	address := flags.String("host", net.JoinHostPort(driver.GatewayIPv4, strconv.Itoa(int(guest.HostPort))), "where the host listens")
	if done, err := parse(flags, args, stdout, "--name NAME | --audience AUDIENCE | --list [--json]"); done || err != nil {
		return err
	}
	if *list == (*name != "" || *audience != "") || (*name != "" && *audience != "") {
		return &carrel.Error{Op: "token", Kind: carrel.Invalid, Err: errors.New("want one of --name, --audience and --list")}
	}
	host := guest.Host{Dial: dialHost(*address)}
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	if *list {
		return printTokens(ctx, host, stdout, *asJSON)
	}
	t, err := host.Token(ctx, *name, *audience)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(t)
	}
	_, err = fmt.Fprintln(stdout, t.Value)
	return err
}

// printTokens prints the tokens that the sandbox may ask for.
func printTokens(ctx context.Context, host guest.Host, stdout io.Writer, asJSON bool) error {
	self, err := host.Self(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		if self.Tokens == nil {
			self.Tokens = map[string]carrel.TokenSpec{}
		}
		return json.NewEncoder(stdout).Encode(self.Tokens)
	}
	for _, name := range slices.Sorted(maps.Keys(self.Tokens)) {
		if _, err := fmt.Fprintf(stdout, "%s\t%s\n", name, self.Tokens[name].Audience); err != nil {
			return err
		}
	}
	return nil
}
