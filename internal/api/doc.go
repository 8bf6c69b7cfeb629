// Package api is the control plane's door: HTTP requests in, [carrel.Service]
// calls out.
//
// # E2B's API
//
// It is the public API; shapes, status codes and error texts are E2B's, so that
// its SDKs and CLI work unmodified.
//
//	POST   /sandboxes            POST /v2/sandboxes              create (v1: 15 s, v2: 300 s by default)
//	GET    /sandboxes            GET  /v2/sandboxes              list (v2: filters and pages)
//	GET    /sandboxes/{id}       DELETE /sandboxes/{id}          one sandbox; kill it
//	POST   /sandboxes/{id}/connect   and /v2/…                   attach; the timeout is only ever extended
//	POST   /sandboxes/{id}/timeout   /refreshes                  set, or extend, the end
//	PUT    /sandboxes/{id}/network                               replace the egress rules
//	GET    /sandboxes/{id}/metrics   /sandboxes/metrics          what sandboxes use
//	GET    /sandboxes/{id}/logs      /v2/sandboxes/{id}/logs     what happened to one
//	GET    /templates  /v2/templates  /templates/{id}  /templates/aliases/{alias}   DELETE /templates/{id}
//	GET    /teams                                                the one team there is
//	GET    /health                                               204 once ready; the only route without a key
//
// Every error is {"code": int, "message": string} with the status as code: the
// SDKs read the body's code, not the status. Where we know more, the fields
// "kind", "field", "hint" and "id" are added. What E2B has and this build does
// not (pause, snapshots, template builds, …) answers 501 with a sentence that
// says so: never a silent success.
//
// # Our API
//
// Under /carrel/v1 the vocabulary of package carrel travels as it is; package
// client is its counterpart. Durations are nanoseconds, or texts such as "90s".
//
//	GET    /carrel/v1/version    GET /carrel/v1/doctor
//	POST   /carrel/v1/sandboxes                                  body: carrel.CreateOptions
//	GET    /carrel/v1/sandboxes?metadata&state&template&startedAfter&oldestFirst&limit&cursor
//	GET    /carrel/v1/sandboxes/{id}        DELETE /carrel/v1/sandboxes/{id}
//	POST   /carrel/v1/sandboxes/{id}/timeout                     body: {timeout, extendOnly}
//	GET    /carrel/v1/sandboxes/{id}/metrics?from&to             GET …/logs?since&limit&newestFirst
//	GET    /carrel/v1/sandboxes/{id}/dial/{port}                 Upgrade: carrel-stream → 101, then raw bytes
//	GET    /carrel/v1/events?after                               one JSON event a line, blank lines in between
//	GET    /carrel/v1/templates  GET, DELETE /carrel/v1/templates/{name}
//	POST   /carrel/v1/templates/import?name                      body: the archive; progress lines, then the result
//	POST   /carrel/v1/templates/pull                             body: {name, image}; likewise
//
// A line of a job's answer is {"progress": …}, and the last one {"template": …}
// or {"error": …}.
//
// # Bounds
//
// The threat is a client that sends too much, too slowly or nonsense. A JSON body
// is at most 1 MiB, nested 64 deep, and must arrive within 30 seconds; an import
// may be long but must not stall for a minute. The API key is compared in
// constant time.
//
// The table from error kinds to HTTP statuses lives here and nowhere else.
package api
