// Package client is [carrel.Service] over HTTP: the same interface that
// carrel.Open gives inside a process, talking to a daemon.
//
//	svc, err := client.New("http://127.0.0.1:7070", os.Getenv("CARREL_API_KEY"))
//	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 5 * time.Minute})
//	c, err := svc.Computer(ctx, sb.ID)
//	res, err := c.Run(ctx, carrel.Command{Shell: "echo hello"})
//
// The life of sandboxes goes through the daemon's /carrel/v1 endpoints. What
// happens inside one goes to its guest over raw streams, which the daemon opens
// for whoever has the API key: commands, files and ports all work the same way,
// loopback ports included, and nothing is translated on the way.
//
// Errors are the daemon's, restored: [carrel.KindOf] and [carrel.HintOf] say the
// same on both sides. A daemon that can't be reached is Unavailable.
package client
