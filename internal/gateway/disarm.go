package gateway

import "net/http"

// onOurOrigin reports whether a browser that follows a link to this request counts the answer as a
// page of the daemon's origin: it is a signed file URL on the plain port. A link to any other port
// of a sandbox has a host name of its own, or needs headers that no link has.
func onOurOrigin(r *http.Request) bool {
	_, _, own := splitHost(r.Host)
	return !own && signed(r)
}

// disarm keeps a file of a sandbox from acting as a page of the daemon. The console is on the same
// origin: a script in such a file would have the session of the person who opened the link. So the
// browser gives the file an origin of its own, guesses no type, and takes no cookie.
func disarm(h http.Header) {
	h.Set("Content-Security-Policy", "sandbox; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed",
		"Strict-Transport-Security", "Access-Control-Allow-Credentials"} {
		h.Del(name)
	}
}
