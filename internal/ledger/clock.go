package ledger

import "time"

// Moment is one reading of the machine's clocks.
type Moment struct {
	Wall time.Time
	Mono time.Duration // since some moment of this boot; never goes back
	Boot string        // which boot of the machine it is
}

// Clock reads the machine's clocks.
type Clock func() Moment
