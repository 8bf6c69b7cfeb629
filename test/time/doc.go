// Package time holds the tests of what may never be lost: whole computers with
// everything a person leaves running in them go through pauses, forks and
// rollbacks, and are compared byte for byte.
package time
