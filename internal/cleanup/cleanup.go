// Package cleanup is a stack of undo steps for set-up in several steps. Each step pushes its undo,
// and success releases the stack.
package cleanup

// Stack is a list of undo steps, run in reverse order. The zero value is ready.
// It is not safe for concurrent use.
type Stack struct{ steps []func() }

// Add pushes an undo step.
func (s *Stack) Add(undo func()) { s.steps = append(s.steps, undo) }

// Run runs the steps, last first, and empties the stack. Defer it right after making the stack: it
// then undoes everything unless Release was called.
func (s *Stack) Run() {
	for i := len(s.steps) - 1; i >= 0; i-- {
		s.steps[i]()
	}
	s.steps = nil
}

// Release forgets the steps, so nothing is undone.
func (s *Stack) Release() { s.steps = nil }
