// Package escape runs a hostile program inside real sandboxes. The program tries every way out that
// package plan lists, while canaries outside record every byte. Under a policy that denies, nothing
// may arrive. Under one that allows, the same program gets through, so that the test can fail.
package escape
