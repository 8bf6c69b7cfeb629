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
//	POST   /sandboxes/{id}/connect   and /v2/…                   attach, and wake a paused one (200 ran, 201 resumed); the timeout is only ever extended
//	POST   /sandboxes/{id}/pause     body: {memory}              204; 409 when it is paused
//	POST   /sandboxes/{id}/resume                                deprecated; 409 when it runs
//	POST   /sandboxes/{id}/fork      body: {count, timeout}      a list of {sandbox} or {error}
//	POST   /sandboxes/{id}/snapshots body: {name}                {snapshotID, names}; an ID or name may stand for a template's (see carrel.TemplateRef)
//	GET    /snapshots?sandboxID&name&limit&nextToken             what was asked for, newest first; DELETE /templates/{id} removes one whose name no template has
//	POST   /sandboxes/{id}/timeout   /refreshes                  set, or extend, the end
//	PUT    /sandboxes/{id}/network                               replace the egress rules
//	GET    /sandboxes/{id}/metrics   /sandboxes/metrics          what sandboxes use
//	GET    /sandboxes/{id}/logs      /v2/sandboxes/{id}/logs     what happened to one
//	GET    /templates  /v2/templates  /templates/{id}  /templates/aliases/{alias}   DELETE /templates/{id}
//	GET    /secrets?limit&nextToken  POST /secrets               what is told of secrets, by name; POST /secrets/{secretID} replaces a value
//	GET    /secrets/{secretID}   DELETE /secrets/{secretID}      by ID or name
//	GET    /teams                                                the one team there is
//	GET    /health                                               204 once ready, without a key
//	GET    /openapi.json                                         all of this as an OpenAPI document, without a key
//
// Every error is {"code": int, "message": string} with the status as code: the
// SDKs read the body's code, not the status. Where we know more, the fields
// "kind", "field", "hint" and "id" are added. What E2B has and this build does
// not (template builds, volumes, …) answers 501 with a sentence that says so: never
// a silent success.
//
// E2B has two states. What is pausing, paused or resuming is "paused" here, in
// answers and in filters; what is starting or running is "running". A timeout, a
// network rule or a command for a paused sandbox is the service's to refuse: 409,
// which says what to do, where E2B has 404. Forks and snapshots of paused sandboxes
// work, which E2B refuses.
//
// # Too many at once
//
// A creation or resumption whose turn would not come in time is a 429 at once, one
// for which the machine has no room a 503. Both have Retry-After in whole seconds,
// without which E2B's SDKs would not try again, and say which limit it was. Starts
// are shared out fairly among projects. A POST with Connect-Timeout-Ms is refused at
// once when it can't be served by then.
//
// # Projects
//
// Options.Callers says who asks, and Options.Service keeps from each caller what is
// another project's: it is answered as what never was. With the header Carrel-Tenant the
// holder of an administrator's key acts for the project that it names. What is asked of the
// machine itself answers others with 403.
//
// # Our API
//
// Under /carrel/v1 the vocabulary of package carrel travels as it is; package
// client is its counterpart. Durations are nanoseconds, or texts such as "90s". A
// field that is not known is a 400: whoever sent it meant something by it.
//
//	GET    /carrel/v1/version    GET /carrel/v1/doctor    GET /carrel/v1/pool
//	GET    /carrel/v1/admission                                  how many start and wait, and how many may
//	GET    /carrel/v1/metrics                                    what the pool and that gate do, for Prometheus
//	GET    /carrel/v1/debug/pprof/{profile}?seconds              a profile of the daemon, to clients on its own machine
//	POST   /carrel/v1/sandboxes                                  body: carrel.CreateOptions
//	GET    /carrel/v1/sandboxes?match&metadata&state&template&project&startedAfter&oldestFirst&limit&cursor
//	GET    /carrel/v1/sandboxes/{id}        DELETE /carrel/v1/sandboxes/{id}
//	POST   /carrel/v1/sandboxes/{id}/timeout                     body: {timeout, extendOnly}
//	GET    /carrel/v1/sandboxes/{id}/metrics?from&to             GET …/logs?since&until&limit&newestFirst
//	GET    /carrel/v1/sandboxes/{id}/trace                       a list of carrel.Trace, oldest first
//	POST   /carrel/v1/sandboxes/{id}/pause                       body: {filesOnly} → the sandbox
//	POST   /carrel/v1/sandboxes/{id}/resume                      body: {timeout, filesOnly} → {sandbox, resumed}
//	POST   /carrel/v1/sandboxes/{id}/snapshots                   body: {name, label, filesOnly} → carrel.Snapshot
//	POST   /carrel/v1/sandboxes/{id}/fork                        body: {count, timeout} → {forks: [{sandbox} or {error}]}
//	POST   /carrel/v1/sandboxes/{id}/rollback                    body: {to, keep} → the sandbox
//	POST   /carrel/v1/sandboxes/{id}/promote                     body: {tier, template} → the sandbox
//	GET    /carrel/v1/sandboxes/{id}/timeline                    carrel.Timeline
//	PUT    /carrel/v1/sandboxes/{id}/lifecycle                   body: carrel.Lifecycle → the sandbox
//	GET    /carrel/v1/snapshots?sandbox&name&project&auto&limit&cursor   {snapshots, next}
//	GET    /carrel/v1/snapshots/{name}                           PATCH {names, label, kept}, DELETE
//	GET    /carrel/v1/snapshots/{name}/diff?to                   a list of carrel.FileChange
//	GET    /carrel/v1/snapshot-store                             what snapshots cost; POST …/gc frees what none needs
//	POST   /carrel/v1/sandboxes/{id}/programs                    provide programs: a stream, one line a call
//	GET    /carrel/v1/sandboxes/{id}/programs/{session}/calls/{call}   Upgrade: carrel-stream → 101, then one call's frames
//	GET    /carrel/v1/sandboxes/{id}/dial/{port}                 Upgrade: carrel-stream → 101, then raw bytes
//	GET    /carrel/v1/secrets    POST /carrel/v1/secrets         body: carrel.NewSecret → carrel.Secret; no answer has a value
//	GET    /carrel/v1/secrets/{secret}   PUT {value, metadata}, DELETE
//	POST   /carrel/v1/secret-store/rekey                         body: {key}; seals all secrets anew, under a random key for none
//	GET    /carrel/v1/ssh-keys                                   who may open SSH sessions: a list of carrel.SSHKey
//	POST   /carrel/v1/ssh-keys                                   body: {name, publicKey, sandboxes} → carrel.SSHKey; DELETE …/ssh-keys/{name}
//	GET    /carrel/v1/events?after                               one JSON event a line, blank lines in between
//	GET    /carrel/v1/audit?since&until&verdict&host&rule&secret&sandbox&project&after&limit&follow   one {decision} a line; verdict=allowed or denied
//	GET    /carrel/v1/sandboxes/{id}/audit                       the same of one sandbox, also when it is gone
//	GET    /carrel/v1/templates  GET, DELETE /carrel/v1/templates/{name}    PATCH body: {start, ready, public}
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
// may be long but must not stall for a minute.
//
// The table from error kinds to HTTP statuses lives here and nowhere else.
package api
