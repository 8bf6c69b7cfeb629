// Package escape lets a hostile program run inside real sandboxes and try every way
// out that package plan lists, while canaries outside write down every byte. Under a
// policy that denies, nothing arrives; under one that allows, the same program gets
// through, so that the test can fail.
package escape
