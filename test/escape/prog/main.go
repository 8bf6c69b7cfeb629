// The program that tries to get out of a sandbox. It runs inside, makes every attempt of package
// plan (or those that the plan names), and prints its outcomes: one [plan.Outcome] in JSON on each
// line. It can't know whether anything got out; the canaries know.
//
// With the argument "hold" it keeps connections open and writes to them while the policy changes.
// With "listen" it is the neighbour: it serves a port and prints everything that arrives.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/test/escape/plan"
)

// attempt is one running attempt.
type attempt struct {
	plan.Attempt
	plan plan.Plan
	mark string // its marker
}

// serial are attempts that would disturb others. They run after those, in this order.
var serial = []string{"flood-then-denied", "slow-hellos", "control-after-flood"}

func main() {
	before := openDescriptors() // before the runtime opens any
	p, err := plan.Parse(os.Getenv(plan.Env))
	if err != nil {
		fmt.Fprintln(os.Stderr, "plan:", err)
		os.Exit(2)
	}
	inherited = before
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(o plan.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(o)
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "hold":
			hold(p, tell)
		case "listen":
			listen(p.Neighbour)
		}
		return
	}
	askForAllowed()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	try := func(a plan.Attempt) {
		f, ok := ways[a.Name]
		if !ok {
			tell(plan.Outcome{Name: a.Name, Saw: plan.Failed, Detail: "the program has no such way"})
			return
		}
		start := time.Now()
		o := f(&attempt{a, p, p.Marker(a.Name)})
		o.Name, o.Took = a.Name, time.Since(start)
		tell(o)
	}
	for _, a := range plan.Attempts {
		if wanted(p, a) && !slices.Contains(serial, a.Name) {
			slots <- struct{}{}
			wg.Go(func() { defer func() { <-slots }(); try(a) })
		}
	}
	wg.Wait()
	for _, name := range serial {
		i := slices.IndexFunc(plan.Attempts, func(a plan.Attempt) bool { return a.Name == name })
		if a := plan.Attempts[i]; wanted(p, a) {
			try(a)
		}
	}
	tell(plan.Outcome{Name: "end"})
}

func wanted(p plan.Plan, a plan.Attempt) bool {
	return !a.Held() && (len(p.Only) == 0 || slices.Contains(p.Only, a.Name))
}

// ways are the attempts.
var ways = map[string]func(*attempt) plan.Outcome{}

// add fills ways from the table of each file.
func add(more map[string]func(*attempt) plan.Outcome) bool {
	for name, f := range more {
		if _, twice := ways[name]; twice {
			panic("two ways " + name)
		}
		ways[name] = f
	}
	return true
}
