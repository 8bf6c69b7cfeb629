// Package embedded runs a real program that embeds Carrel (package local). It ends the program in
// every possible way, and looks for things left on the host.
package embedded

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	_ "github.com/carrel-dev/carrel/local" // its init plays the parts of sandboxes
)

// playVar makes this test binary the program. Its value says how the program ends.
const playVar = "CARREL_TEST_EMBED"

// How the program ends.
const (
	endClose  = "close"
	endExit   = "exit"   // os.Exit without Close
	endPanic  = "panic"  // without Close
	endKill   = "kill"   // it waits to be killed
	endExec   = "exec"   // it becomes another program
	endExpire = "expire" // like endKill, with sandboxes of a short timeout
)

// Lines that the program prints besides one for each sandbox.
const (
	lineReady = "ready"
	lineError = "error"
)

// shortLife is the timeout of sandboxes that must end by themselves.
const shortLife = 3 * time.Second

func TestMain(m *testing.M) {
	if how := os.Getenv(playVar); how != "" {
		if err := program(how, os.Args[1:]); err != nil {
			fmt.Println(lineError, carrel.KindOf(err), err, "hint:", carrel.HintOf(err))
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// program makes a sandbox of each tier and prints a line for each. It waits for a line from its
// test, and ends.
func program(how string, tiers []string) error {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{})
	if err != nil {
		return err
	}
	for _, tier := range tiers {
		o := carrel.CreateOptions{Tier: carrel.Tier(tier)}
		if how == endExpire {
			o.Timeout = shortLife
		}
		box, err := svc.Create(ctx, o)
		if err != nil {
			return err
		}
		pc, err := svc.Computer(ctx, box.ID)
		if err != nil {
			return err
		}
		// A process that goes on, and a directory that its owner can't read.
		res, err := pc.Run(ctx, carrel.Command{Shell: "sleep 1000 & mkdir -p ~/shut/in; chmod 0 ~/shut; echo $HOSTNAME"})
		if err != nil {
			return err
		}
		fmt.Println(tier, strings.TrimSpace(string(res.Stdout)+string(res.Stderr)))
		if got := strings.TrimSpace(string(res.Stdout)); got != string(box.ID) {
			return fmt.Errorf("sandbox %s says it is %q", box.ID, got)
		}
	}
	fmt.Println(lineReady)
	var word string
	if _, err := fmt.Scanln(&word); err != nil {
		return err
	}
	switch how {
	case endClose:
		return svc.Close()
	case endExit:
		os.Exit(3)
	case endPanic:
		panic("on purpose")
	case endExec:
		return become("/bin/sleep", "1000")
	}
	select {}
}
