// Package net runs real programs in real sandboxes against local servers that stand for the network
// outside: the clients that agents use every day, through an allow-list, and model vendors' SDKs
// with keys that never enter the sandbox.
package net
