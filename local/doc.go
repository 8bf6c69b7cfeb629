// Package local lets a program have sandboxes of its own: no daemon, no port, no
// client. Import it for its effect, as one imports a driver of database/sql, and
// call [carrel.Open]:
//
//	import (
//		"github.com/carrel-dev/carrel"
//		_ "github.com/carrel-dev/carrel/local"
//	)
//
//	svc, err := carrel.Open(ctx, carrel.Config{})
//
// The zero Config gives sandboxes of the simulated tier, which need nothing of the
// host. With Tier gvisor they are real ones; then this program starts itself again
// as each sandbox's kernel. That is what this package's init looks out for: in
// such a child it plays that part instead of the program's main. Other packages'
// init functions that run before it should therefore do little. The program must be
// linked statically for that (CGO_ENABLED=0), and Open says so when it is not:
// Unsupported, with what to do as the hint, as for anything else this host lacks.
//
// Nothing outlives the service: Close kills every sandbox and removes what it kept
// outside of Config.DataDir, where templates are.
package local
