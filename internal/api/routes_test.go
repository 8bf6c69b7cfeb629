package api

import "testing"

// TestRoutesAgree: the mux panics on patterns that contradict one another.
func TestRoutesAgree(t *testing.T) { New(Options{Key: "k"}) }
