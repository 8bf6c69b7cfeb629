// Package net runs real programs in real sandboxes against local servers that stand
// for the network outside: the clients that agents use every day, through a list of
// what is allowed, and model vendors' SDKs with keys that never enter the sandbox.
package net
