// Package daemon gives a service doors and runs them: package assembly puts together what
// is below the doors, this one adds the listeners, the certificates and the keys.
//
// # Start
//
// The data directory is made private and locked, so that two daemons can't share
// it; the API key is made at the first start. Then come the service, which
// adopts the sandboxes that still run, and the doors on one listener. When
// requests are served, <data>/daemon.json says where, and Hooks.Ready is called.
//
// # Stop
//
// Ending the context stops accepting, gives requests under way five seconds, ends
// streams, and closes the parts in reverse order. Sandboxes live on: the next
// daemon with the same data directory adopts them. SIGHUP reads the certificate's
// files at once, which otherwise happens when they are seen to have changed.
//
// # Files in the data directory
//
//	api-key       the API key, 0600
//	daemon.json   {"url", "addr", "pid"} of the running daemon
//	lock          held while a daemon runs
//	state.db      the records
//	records.ledger  their second copy
//	templates/    imported and pulled templates
//	sandboxes/    one directory for each sandbox
//	run/          sockets of drivers and of the keeper
//	guest/        the guest's image, as this binary carries it
package daemon
