// Package carreltest is a Carrel for tests, as net/http/httptest is a web server for tests: a real
// daemon on a loopback port, with simulated sandboxes that start in microseconds and need nothing
// from the host.
//
//	func TestAgent(t *testing.T) {
//		srv := carreltest.New(t)
//		agent := NewAgent(srv.URL, srv.APIKey) // any client of E2B's API
//		…
//		boxes, err := srv.Client().List(t.Context(), carrel.ListOptions{})
//	}
//
// The end of the test kills the sandboxes and stops the daemon. Clients ask for the template "base"
// by default. Here it stands for the simulated tier's own template, "sim", so nothing from this
// machine is packed.
package carreltest
