// Package carreltest is a Carrel for tests, as net/http/httptest is a web server
// for tests: a real daemon on a loopback port, with simulated sandboxes that start
// in microseconds and need nothing of the host.
//
//	func TestAgent(t *testing.T) {
//		srv := carreltest.New(t)
//		agent := NewAgent(srv.URL, srv.APIKey) // whatever speaks E2B's API
//		…
//		boxes, err := srv.Client().List(t.Context(), carrel.ListOptions{})
//	}
//
// The test's end kills the sandboxes and stops the daemon. The template "base",
// which clients ask for when they are not told otherwise, stands for the simulated
// tier's own, "sim": nothing of this machine is packed.
package carreltest
