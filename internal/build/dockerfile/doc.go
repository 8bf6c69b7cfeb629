// Package dockerfile makes a plan of a Dockerfile. BuildKit's own parser reads the file, so that a
// Dockerfile means here what it means to Docker. This package expands its words, picks the stages
// that the result needs, and refuses what a build cannot do: each error names the line and says
// what to do instead.
//
// A Dockerfile comes from a caller and may be hostile. Its size, its stages and its steps are
// bounded, and no file is opened: only the caller's resolve function asks for the configuration of
// a base.
package dockerfile
