// Package api is the control plane's door. It turns HTTP requests into calls of [carrel.Service].
//
// # E2B's API
//
// This is the public API. Bodies, status codes and error texts are E2B's, so that its SDKs and CLI
// work unmodified.
//
//	POST   /sandboxes            POST /v2/sandboxes              create (v1: 15 s, v2: 300 s by default)
//	GET    /sandboxes            GET  /v2/sandboxes              list (v2: filters and pages)
//	GET    /sandboxes/{id}       DELETE /sandboxes/{id}          one sandbox; kill it
//	POST   /sandboxes/{id}/connect   and /v2/…                   attach, and wake a paused one (200 ran, 201 resumed); the timeout is only ever extended
//	POST   /sandboxes/{id}/pause     body: {memory}              204; 409 when it is paused
//	POST   /sandboxes/{id}/resume                                deprecated; 409 when it runs
//	POST   /sandboxes/{id}/fork      body: {count, timeout}      a list of {sandbox} or {error}; 15 s, at most 100
//	POST   /v2/sandboxes/{id}/fork   body: {count, timeout, memory}   the same; 300 s; memory: false keeps the files only
//	POST   /sandboxes/{id}/snapshots body: {name}                {snapshotID, names}; an ID or name may stand for a template's (see carrel.TemplateRef)
//	GET    /snapshots?sandboxID&name&limit&nextToken             requested ones, newest first; DELETE /templates/{id} removes one whose name no template has
//	POST   /sandboxes/{id}/timeout   /refreshes                  set, or extend, the end
//	PUT    /sandboxes/{id}/network                               replace the egress rules
//	GET    /sandboxes/{id}/metrics   /sandboxes/metrics          resource use of sandboxes
//	GET    /sandboxes/{id}/logs      /v2/sandboxes/{id}/logs     events of one sandbox
//	GET    /templates  /v2/templates?limit&nextToken  /default-templates  /templates/{id}  /templates/aliases/{alias}   DELETE /templates/{id}
//	POST   /v2/templates  /v3/templates                          begin a template; POST /v2/templates/{id}/builds/{build} starts it
//	GET    /templates/{id}/files/{hash}                          where to upload the files of a COPY
//	GET    /templates/{id}/builds/{build}/status?logsOffset&limit&level   GET /templates/{id}/builds/{build}/logs?cursor&limit&direction&level
//	POST   /templates/tags  DELETE /templates/tags  GET /templates/{id}/tags   PATCH /templates/{id}  PATCH /v2/templates/{id}
//	GET    /secrets?limit&nextToken  POST /secrets               the public data of secrets, by name; POST /secrets/{secretID} replaces a value
//	GET    /secrets/{secretID}   DELETE /secrets/{secretID}      by ID or name
//	GET    /templates/{id}/tags/count   …/tags/exists?tag   …/tags/groups?tagsLimit&assignmentLimit&tagsCursor&search&sort   …/tags/{tag}/assignments?cursor&limit
//	GET    /teams                                                the only team: the project of the key
//	GET    /teams/{team}/metrics?start&end   …/metrics/max?metric   its sandboxes, counted over the last hour
//	GET    /events/sandboxes?offset&limit&orderAsc&types   GET /events/sandboxes/{id}   what happened, for seven days
//	GET    /events/webhooks   POST /events/webhooks              who is told of it: body {name, url, events, enabled, signatureSecret}
//	GET    /events/webhooks/{webhook}   PATCH, DELETE            one of them; see docs/events.md
//	GET    /api-keys   POST /api-keys   PATCH, DELETE /api-keys/{apiKeyID}   the project's keys
//	POST   /access-tokens        DELETE /access-tokens/{accessTokenID}   keys in the form of access tokens
//	GET    /docs/api/cli?next                                    the page of "e2b auth login"; see LoginPath
//	GET    /health                                               204 once ready; the only route without a key
//
// Every error is {"code": int, "message": string} with the status as code: the SDKs read the body's
// code, not the status. A creation with the header Idempotency-Key may be sent again and makes no
// second sandbox. Where Carrel knows more, it adds the fields "kind", "field", "hint" and
// "id". Routes for features of E2B that this build does not have (volumes, …)
// answer 501 with a sentence that says so. They never succeed silently.
//
// E2B has two states. In answers and filters, a sandbox that is pausing, paused or resuming is
// "paused" here, and one that is starting or running is "running". The service refuses a timeout, a
// network rule or a command for a paused sandbox. The answer is 409 and says what to do, where E2B
// has 404. Forks and snapshots of paused sandboxes work here, although E2B refuses them.
//
// # Too many at once
//
// A creation or resumption whose turn would not come in time gets a 429 at once. If the machine has
// no room for it, it gets a 503. Both name the limit and have Retry-After in whole seconds, because
// without that E2B's SDKs would not try again. What a quota refuses has a 429 with "limit": its name,
// whose it is, its value, what is used and what was asked for. What a budget refuses names it. Starts are shared fairly among projects. A POST with
// Connect-Timeout-Ms is refused at once when it can't be served by then.
//
// # Projects
//
// Options.Callers identifies the caller. Options.Service hides the things of other projects: the
// answer is the same as if they had never existed. With the header Carrel-Tenant, the holder of an
// administrator's key acts for the project in the header. Routes about the machine itself answer
// others with 403. A key that may only read gets a 403 from everything but a GET, and from the GETs
// that enter a sandbox. When a key ends, so do the contexts of its requests: streams are cut, and
// others are answered with 401.
//
// # Our API
//
// The routes under /carrel/v1 use the types of package carrel unchanged. Package client is the
// other side. Durations are nanoseconds, or texts such as "90s". An unknown field is a 400, because
// its sender meant something by it.
//
//	GET    /carrel/v1/version    GET /carrel/v1/doctor    GET /carrel/v1/pool
//	GET    /carrel/v1/unclaimed    POST …/unclaimed/{id}/reclaim    DELETE …/unclaimed/{id}
//	GET    /carrel/v1/admission                                  how many start and wait, how many may, and what is free on the machine
//	GET    /carrel/v1/metrics    GET /metrics                    the daemon's figures, for Prometheus
//	GET    /carrel/v1/debug/pprof/{profile}?seconds              a profile of the daemon, to clients on its own machine
//	POST   /carrel/v1/sandboxes                                  body: carrel.CreateOptions
//	GET    /carrel/v1/sandboxes?match&metadata&state&template&project&startedAfter&oldestFirst&builds&limit&cursor
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
//	PATCH  /carrel/v1/sandboxes/{id}/metadata                    body: {set, remove} → the sandbox
//	GET    /carrel/v1/snapshots?sandbox&name&project&auto&limit&cursor   {snapshots, next}
//	GET    /carrel/v1/snapshots/{name}                           PATCH {names, label, kept}, DELETE
//	GET    /carrel/v1/snapshots/{name}/diff?to                   a list of carrel.FileChange
//	GET    /carrel/v1/snapshots/{name}/file?path                 carrel.SnapshotFile
//	GET    /carrel/v1/snapshot-store                             cost of snapshots; POST …/gc frees unneeded space
//	POST   /carrel/v1/sandboxes/{id}/programs                    provide programs: a stream, one line a call
//	GET    /carrel/v1/sandboxes/{id}/programs/{session}/calls/{call}   Upgrade: carrel-stream → 101, then one call's frames
//	GET    /carrel/v1/sandboxes/{id}/processes                   a list of carrel.ProcessRecord, with ended ones; 409 when it is paused
//	GET    /carrel/v1/sandboxes/{id}/processes/{process}/output?serial&from&most&wait   carrel.ProcessOutput; {process} is a PID or a tag
//	GET    /carrel/v1/sandboxes/{id}/dial/{port}                 Upgrade: carrel-stream → 101, then raw bytes
//	GET    /carrel/v1/secrets    POST /carrel/v1/secrets         body: carrel.NewSecret → carrel.Secret; no answer has a value
//	GET    /carrel/v1/secrets/{secret}   PUT {value, metadata}, DELETE
//	POST   /carrel/v1/secret-store/rekey                         body: {key}; seals all secrets anew, under a random key for none
//	GET    /carrel/v1/projects   POST /carrel/v1/projects        body: {name} → carrel.Project; GET, DELETE …/projects/{name}
//	GET    /carrel/v1/keys       POST /carrel/v1/keys            body: carrel.NewKey → carrel.IssuedKey; only here is the secret
//	GET    /carrel/v1/keys/{key}                                 PATCH {name, expires}, DELETE revokes
//	GET    /carrel/v1/whoami                                     → carrel.Self
//	GET    /carrel/v1/people     POST /carrel/v1/people          body: carrel.NewPerson → carrel.IssuedPerson; for administrators
//	GET    /carrel/v1/people/{person}                            PATCH {disabled, email}, DELETE removes
//	PUT    /carrel/v1/people/{person}/password                   body: {old, new} → carrel.IssuedPerson
//	GET    /carrel/v1/members?project=&organisation=             → [carrel.Member]
//	PUT    /carrel/v1/members/{person}                           body: {project, organisation, role}; DELETE ends the right
//	GET    /carrel/v1/organisations                              POST {name}, PUT {projects} and DELETE …/{name}; for administrators
//	POST   /carrel/v1/keys/{key}/rotate                          body: {overlap} → carrel.IssuedKey
//	GET    /carrel/v1/quota      GET /carrel/v1/quotas           a list of carrel.QuotaReport: the caller's own; all that it sees
//	PUT    /carrel/v1/quota                                      body: {project, key, hard, soft} → carrel.QuotaReport
//	GET    /carrel/v1/ceilings   PUT /carrel/v1/ceiling          body: {project, key} and carrel.Ceiling → carrel.CeilingOf
//	GET    /carrel/v1/budgets    PUT /carrel/v1/budgets/{name}   body: {project, label, amount, unit, period, warnPct}; DELETE …?project
//	GET    /carrel/v1/ssh-keys                                   who may open SSH sessions: a list of carrel.SSHKey
//	POST   /carrel/v1/ssh-keys                                   body: {name, publicKey, sandboxes} → carrel.SSHKey; DELETE …/ssh-keys/{name}
//	GET    /carrel/v1/events?after                               one JSON event a line, blank lines in between; with Accept: text/event-stream
//	                                                             as server-sent events; the header Last-Event-ID is after
//	GET    /carrel/v1/lifecycle-events?sandbox&offset&limit&orderAsc&types   events in E2B's form
//	GET    /carrel/v1/webhooks   POST /carrel/v1/webhooks        body: carrel.NewWebhook
//	GET    /carrel/v1/webhooks/{webhook}   PATCH body: carrel.WebhookUpdate, DELETE
//	GET    /carrel/v1/webhooks/{webhook}/deliveries?state&limit  a list of carrel.Delivery; POST …/replay body: carrel.ReplayOptions
//	GET    /carrel/v1/inbox?project&sandbox&wait&revision        the connections that wait for a person: a carrel.InboxList; wait in seconds
//	GET    /carrel/v1/nodes                                      the nodes of a fleet, from its front: {nodes: [carrel.Node]}
//	POST   /carrel/v1/nodes/{node}/drain                         move its sandboxes away → carrel.Drained
//	DELETE /carrel/v1/nodes/{node}/drain                         let it get new ones again → 204
//	DELETE /carrel/v1/nodes/{node}?force                         forget it → 204
//	POST   /carrel/v1/inbox/{question}                           body: carrel.Answer → carrel.Question
//	POST   /carrel/v1/movement/sandboxes/{id}/passport           {id} is a paused sandbox or a snapshot → carrel.Passport, with every secret
//	POST   /carrel/v1/movement/sandboxes                         body: carrel.Passport → the sandbox, paused here; DELETE …/sandboxes/{id} releases it
//	POST   /carrel/v1/movement/templates/{name}/passport         → carrel.TemplatePassport; POST …/templates body: that → carrel.Template
//	GET    /carrel/v1/usage?by&from&to&project&sandbox&format    what was used: {from, to, by, rows, total}; by=project,label:task; format=csv
//	GET    /carrel/v1/audit?since&until&verdict&host&rule&secret&sandbox&project&after&limit&follow   one {decision} a line; verdict=allowed or denied
//	GET    /carrel/v1/sandboxes/{id}/audit                       the same of one sandbox, also when it is gone
//	GET    /carrel/v1/trail?project&key&kind&op&target&since&until&after&limit   the audit trail, one carrel.TrailRecord a line; scope admin
//	GET    /carrel/v1/trail/verify                               a carrel.TrailReport
//	GET    /carrel/v1/templates  GET, DELETE /carrel/v1/templates/{name}    PATCH body: {start, ready, public}
//	POST   /carrel/v1/templates/import?name                      body: the archive; progress lines, then the result
//	POST   /carrel/v1/builds                                     body: carrel.BuildSpec, or a form of options and context → 202 carrel.Build
//	GET    /carrel/v1/builds?template&state&limit                newest first; GET …/builds/{id}, POST …/builds/{id}/cancel
//	GET    /carrel/v1/builds/{id}/logs?offset&limit&level&follow   one {log, next} a line, {end} at last
//	POST   /carrel/v1/template-tags                              body: {target, tags}; DELETE body: {name, tags}; GET …/templates/{name}/tags
//	GET    /carrel/v1/templates/{name}/packages                  carrel.TemplatePackages; GET …/templates/{name}/diff?to: a list of carrel.FileChange
//	GET    /carrel/v1/template-store/uses                        a list of carrel.TemplateUse
//	POST   /carrel/v1/template-store/gc                          body: carrel.CollectOptions → carrel.Collected
//	POST   /carrel/v1/templates/pull                             body: {name} and carrel.PullOptions; likewise; without an image: the built-in template
//	POST   /carrel/v1/templates/{name}/push                      body: carrel.PushOptions; likewise
//
// Each line of a job's answer is {"progress": …}. The last one is {"template": …}, {"pushed": …} or
// {"error": …}.
//
// # Bounds
//
// The threat is a client that sends too much, too slowly or nonsense. A JSON body is at most 1 MiB,
// nested 64 deep, and must arrive within 30 seconds. An import may be long but must not stall for a
// minute.
//
// The table from error kinds to HTTP statuses is only in this package.
package api
