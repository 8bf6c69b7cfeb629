// Package time has the tests of data that must never be lost. Whole computers with running programs
// go through pauses, forks and rollbacks, and are compared byte for byte.
package time
