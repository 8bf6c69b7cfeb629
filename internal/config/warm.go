package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Warm has the settings for sandboxes that are kept ready.
type Warm struct {
	// Cap is how many may be ready at once, of all kinds together; 0 keeps none.
	Cap int
	// Floors are kinds of which some are always ready, even without demand.
	Floors Floors
}

// defaultWarm is small: the pool only replaces kinds that were used lately.
const defaultWarm = 8

// mostWarm bounds Cap: a larger number is a mistake.
const mostWarm = 10000

// Floor is one kind of sandbox, and the least number of it that is ready.
type Floor struct {
	Template string
	CPUs     float64 // 0 is the default
	MemoryMB int     // 0 is the default
	Count    int
}

// String writes a floor in the form that ParseFloor reads.
func (f Floor) String() string {
	if f.CPUs == 0 && f.MemoryMB == 0 {
		return fmt.Sprintf("%s=%d", f.Template, f.Count)
	}
	return fmt.Sprintf("%s:%g:%d=%d", f.Template, f.CPUs, f.MemoryMB, f.Count)
}

// ParseFloor reads TEMPLATE[:CPUS:MEMORY]=COUNT, such as base=5 or py:2:1024=20. A value that is 0
// or left out is the default of new sandboxes.
func ParseFloor(text string) (Floor, error) {
	const form = "TEMPLATE[:CPUS:MEMORY]=COUNT, such as base=5 or py:2:1024=20"
	wrong := func(what string) (Floor, error) {
		return Floor{}, bad("warm-floor", "%q: %s; the form is %s", text, what, form)
	}
	kind, count, ok := strings.Cut(text, "=")
	if !ok {
		return wrong("no count")
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > mostWarm {
		return wrong("the count is no whole number from 0 to " + strconv.Itoa(mostWarm))
	}
	f := Floor{Template: kind, Count: n}
	if parts := strings.Split(kind, ":"); len(parts) >= 3 {
		last := len(parts) - 2
		cpus, cerr := strconv.ParseFloat(parts[last], 64)
		memory, merr := strconv.Atoi(parts[last+1])
		if cerr == nil && merr == nil {
			switch {
			case !(cpus == 0 || cpus >= minCPUs && cpus <= 1024):
				return wrong("the processors are no number from " + number(minCPUs) + " to 1024")
			case memory != 0 && memory < minMemoryMB:
				return wrong("the memory is less than " + strconv.Itoa(minMemoryMB) + " MiB")
			}
			f.Template, f.CPUs, f.MemoryMB = strings.Join(parts[:last], ":"), cpus, memory
		}
	}
	if f.Template == "" {
		return wrong("no template")
	}
	return f, nil
}

// Floors is a flag that may be given more than once.
type Floors []Floor

// String implements flag.Value.
func (f *Floors) String() string {
	words := make([]string, len(*f))
	for i, one := range *f {
		words[i] = one.String()
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value: one floor, or several with commas.
func (f *Floors) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		one, err := ParseFloor(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		*f = append(*f, one)
	}
	return nil
}

// Type names the value in help texts.
func (f *Floors) Type() string { return "TEMPLATE[:CPUS:MEMORY]=COUNT" }

// checkWarm checks the settings for ready sandboxes.
func (c Config) checkWarm() error {
	if c.Warm.Cap < 0 || c.Warm.Cap > mostWarm {
		return bad("warm", "%d is not between 0 and %d", c.Warm.Cap, mostWarm)
	}
	sum := 0
	for _, f := range c.Warm.Floors {
		sum += f.Count
	}
	if sum > c.Warm.Cap {
		err := bad("warm-floor", "the floors are %d together, more than may be ready (%d)", sum, c.Warm.Cap).(*carrel.Error)
		err.Hint = fmt.Sprintf("raise it: --warm %d", sum)
		return err
	}
	return nil
}
