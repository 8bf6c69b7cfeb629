package memory_test

import (
	"testing"

	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

func TestConformance(t *testing.T) {
	statetest.Run(t, func(*testing.T) state.Store { return memory.Open() })
}
