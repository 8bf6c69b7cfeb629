// Package ready tests, with real walls, things that are made before a client asks for them:
// templates that are started once, and sandboxes that are kept ready.
package ready
