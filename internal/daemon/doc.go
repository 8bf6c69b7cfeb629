// Package daemon adds doors to a service and runs them. Package assembly makes the parts behind the
// doors. This package adds the listeners, the certificates and the keys.
//
// # Start
//
// The daemon makes the data directory private and locks it, so that two daemons can't share it. At
// the first start it makes the API key. Then it opens the service, which adopts the sandboxes that
// still run, and the doors on one listener. When requests are served, it writes the address to
// <data>/daemon.json and calls Hooks.Ready.
//
// # Stop
//
// When the context ends, the daemon stops accepting, gives requests under way five seconds, ends
// streams, and closes the parts in reverse order. Sandboxes live on: the next daemon with the same
// data directory adopts them. The daemon reads the certificate's files again when they change, and
// at once on SIGHUP.
//
// # Files in the data directory
//
//	api-key       the API key, 0600
//	daemon.json   {"url", "addr", "pid", "dir"} of the running daemon
//	.daemon.json.spare  the same of the last one: room for the next announcement
//	lock          held while a daemon runs
//	state.db      the records
//	records.ledger  their second copy
//	records.dropped  damaged rows of the records, as they were, if there are any
//	templates/    imported and pulled templates
//	sandboxes/    one directory for each sandbox
//	run/          sockets of drivers and of the keeper
//	guest/        the guest's image, as this binary carries it
package daemon
