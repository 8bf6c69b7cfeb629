// Package ready holds the tests, on real walls, of what is made before it is asked for:
// templates that are started once, and sandboxes that are kept ready.
package ready
