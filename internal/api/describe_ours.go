package api

import (
	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/openapi"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// ours is where the routes of our own API begin.
const ours = " /carrel/v1"

// sandboxOperations describes our routes about sandboxes.
var sandboxOperations = map[string]openapi.Operation{
	"POST" + ours + "/sandboxes": {Tag: tagBoxes, Summary: "Make a sandbox.", Body: perhaps(createIn{}), Answers: answers(201, carrel.Sandbox{})},
	"GET" + ours + "/sandboxes": {Tag: tagBoxes, Summary: "List the sandboxes of the project, page by page.",
		Query: []openapi.Parameter{openapi.String("match"), openapi.String("metadata"), openapi.String("state"), openapi.String("template"),
			openapi.String("project"), openapi.Time("startedAfter"), openapi.Boolean("oldestFirst"),
			openapi.Boolean("builds"), openapi.Integer("limit"), openapi.String("cursor")},
		Answers: answers(200, pageBody{})},
	"GET" + ours + "/sandboxes/{id}":    {Tag: tagBoxes, Summary: "Tell everything about one sandbox.", Answers: answers(200, carrel.Sandbox{})},
	"DELETE" + ours + "/sandboxes/{id}": {Tag: tagBoxes, Summary: "End a sandbox and forget its state.", Answers: nothing()},
	"POST" + ours + "/sandboxes/{id}/timeout": {Tag: tagBoxes, Summary: "Say how long a sandbox lives from now on.",
		Body: strict(timeoutIn{}, "timeout"), Answers: answers(200, carrel.Sandbox{})},
	"PUT" + ours + "/sandboxes/{id}/network": {Tag: tagBoxes, Summary: "Replace the rules for what may leave a sandbox.",
		Body: strict(carrel.Network{}), Answers: answers(200, carrel.Sandbox{})},
	"GET" + ours + "/sandboxes/{id}/metrics": {Tag: tagBoxes, Summary: "Tell what a sandbox used.",
		Query: []openapi.Parameter{openapi.Time("from"), openapi.Time("to")}, Answers: answers(200, []carrel.Metric{})},
	"GET" + ours + "/sandboxes/{id}/logs": {Tag: tagBoxes, Summary: "Tell what happened to a sandbox, also after its end.",
		Query: []openapi.Parameter{openapi.Time("since"), openapi.Time("until"), openapi.Integer("limit"), openapi.Boolean("newestFirst")}, Answers: answers(200, []carrel.LogEntry{})},
	"GET" + ours + "/sandboxes/{id}/processes": {Tag: tagBoxes, Summary: "List the processes of a running sandbox, also ended ones whose output is kept.",
		Answers: answers(200, []carrel.ProcessRecord{})},
	"GET" + ours + "/sandboxes/{id}/processes/{process}/output": {Tag: tagBoxes, Summary: "Read a piece of a process's kept output. The process is given by its PID or its tag.",
		Query: []openapi.Parameter{openapi.Integer("serial"), openapi.Integer("from"), openapi.Integer("most"), openapi.String("wait")}, Answers: answers(200, carrel.ProcessOutput{})},
	"GET" + ours + "/sandboxes/{id}/trace": {Tag: tagBoxes, Summary: "Tell how long each step of a sandbox's operations took.", Answers: answers(200, []carrel.Trace{})},
	"GET" + ours + "/sandboxes/{id}/dial/{port}": {Tag: tagBoxes, Summary: "Connect to a port in a sandbox. The request must have the header Upgrade: carrel-stream; raw bytes follow.",
		Answers: answers(101, nil)},
	"POST" + ours + "/sandboxes/{id}/programs": {Tag: tagBoxes, Summary: "Provide programs to a simulated sandbox for as long as the answer is read, one line a call.",
		Body: strict(programsIn{}, "programs"), Media: openapi.Lines, Answers: answers(200, programLine{})},
	"GET" + ours + "/sandboxes/{id}/programs/{session}/calls/{call}": {Tag: tagBoxes, Summary: "Answer one call of a provided program. The request must have the header Upgrade: carrel-stream.",
		Answers: answers(101, nil)},
	"POST" + ours + "/sandboxes/{id}/promote": {Tag: tagBoxes, Summary: "Move a sandbox with its files to another tier that runs real programs.",
		Body: perhaps(carrel.PromoteOptions{}), Answers: answers(200, carrel.Sandbox{})},
	"PATCH" + ours + "/sandboxes/{id}/metadata": {Tag: tagBoxes, Summary: "Remove labels of a sandbox, and then set some; the others stay.",
		Body: strict(carrel.MetadataChange{}), Answers: answers(200, carrel.Sandbox{})},
	"PUT" + ours + "/sandboxes/{id}/lifecycle": {Tag: tagBoxes, Summary: "Say what happens to a sandbox by itself: at its timeout, when it is idle, and when moments are kept.",
		Body: strict(lifecycleIn{}), Answers: answers(200, carrel.Sandbox{})},
}

// momentOperations describes our routes about sandboxes' time.
var momentOperations = map[string]openapi.Operation{
	"POST" + ours + "/sandboxes/{id}/pause": {Tag: tagMoments, Summary: "Keep a sandbox's state and stop it.",
		Body: perhaps(carrel.PauseOptions{}), Answers: answers(200, carrel.Sandbox{})},
	"POST" + ours + "/sandboxes/{id}/resume": {Tag: tagMoments, Summary: "Let a paused sandbox run on; one that runs is left as it is.",
		Body: perhaps(resumeIn{}), Answers: answers(200, resumedBody{})},
	"POST" + ours + "/sandboxes/{id}/snapshots": {Tag: tagMoments, Summary: "Keep a sandbox's present moment.",
		Body: perhaps(carrel.SnapshotOptions{}), Answers: answers(201, carrel.Snapshot{})},
	"POST" + ours + "/sandboxes/{id}/fork": {Tag: tagMoments, Summary: "Make copies of a sandbox that go on from its present moment, or from an earlier one.",
		Body: perhaps(forkIn{}), Answers: answers(201, forksBody{})},
	"POST" + ours + "/sandboxes/{id}/rollback": {Tag: tagMoments, Summary: "Put a sandbox back to an earlier moment.",
		Body: strict(rollbackIn{}, "to"), Answers: answers(200, carrel.Sandbox{})},
	"GET" + ours + "/sandboxes/{id}/timeline": {Tag: tagMoments, Summary: "List the moments of a sandbox that are kept, and its forks.", Answers: answers(200, carrel.Timeline{})},
	"GET" + ours + "/snapshots": {Tag: tagMoments, Summary: "List the snapshots of the project, page by page.",
		Query:   []openapi.Parameter{openapi.String("sandbox"), openapi.String("name"), openapi.String("project"), openapi.Boolean("auto"), openapi.Integer("limit"), openapi.String("cursor")},
		Answers: answers(200, snapshotPage{})},
	"GET" + ours + "/snapshots/{name}": {Tag: tagMoments, Summary: "Tell about one snapshot, by its ID or name.", Answers: answers(200, carrel.Snapshot{})},
	"PATCH" + ours + "/snapshots/{name}": {Tag: tagMoments, Summary: "Change a snapshot's names, its label, or whether it is kept.",
		Body: strict(carrel.SnapshotUpdate{}), Answers: answers(200, carrel.Snapshot{})},
	"DELETE" + ours + "/snapshots/{name}": {Tag: tagMoments, Summary: "Remove a snapshot.", Answers: nothing()},
	"GET" + ours + "/snapshots/{name}/file": {Tag: tagMoments, Summary: "Read the beginning of one file of a snapshot. Links are not followed.",
		Query: []openapi.Parameter{openapi.Require(openapi.String("path"))}, Answers: answers(200, carrel.SnapshotFile{})},
	"GET" + ours + "/snapshots/{name}/diff": {Tag: tagMoments, Summary: "List the files that differ between two snapshots.",
		Query: []openapi.Parameter{openapi.Require(openapi.String("to"))}, Answers: answers(200, []carrel.FileChange{})},
	"GET" + ours + "/snapshot-store":     {Tag: tagMoments, Summary: "Tell what all snapshots cost.", Answers: answers(200, snapshot.Usage{})},
	"POST" + ours + "/snapshot-store/gc": {Tag: tagMoments, Summary: "Free what no snapshot needs.", Answers: answers(200, snapshot.Collected{})},
}

// templateOperations describes our routes about templates.
var templateOperations = map[string]openapi.Operation{
	"GET" + ours + "/templates":        {Tag: tagTemplates, Summary: "List the templates that the project may use.", Answers: answers(200, []carrel.Template{})},
	"GET" + ours + "/templates/{name}": {Tag: tagTemplates, Summary: "Tell about one template, by its ID or name.", Answers: answers(200, carrel.Template{})},
	"PATCH" + ours + "/templates/{name}": {Tag: tagTemplates, Summary: "Change how a template starts and who may use it.",
		Body: strict(carrel.TemplateUpdate{}), Answers: answers(200, carrel.Template{})},
	"DELETE" + ours + "/templates/{name}": {Tag: tagTemplates, Summary: "Remove a template.", Answers: nothing()},
	"POST" + ours + "/templates/import": {Tag: tagTemplates, Summary: "Make a template from an archive: a root filesystem, or an image as docker save writes it.",
		Query: []openapi.Parameter{openapi.Require(openapi.String("name"))}, Body: &openapi.Body{Media: openapi.Bytes},
		Media: openapi.Lines, Answers: answers(200, jobLine{})},
	"POST" + ours + "/templates/pull": {Tag: tagTemplates,
		Summary: "Make a template from an image in a registry. Without an image, make the built-in template with that name.",
		Body:    strict(pullIn{}, "name"), Media: openapi.Lines, Answers: answers(200, jobLine{})},
	"POST" + ours + "/templates/{name}/push": {Tag: tagTemplates,
		Summary: "Send a template to a registry, as an OCI image.",
		Body:    strict(carrel.PushOptions{}, "image"), Media: openapi.Lines,
		Answers: answers(200, jobLine{})},
}

// catalogOperations describes our routes about what is in templates and what uses them.
var catalogOperations = map[string]openapi.Operation{
	"GET" + ours + "/templates/{name}/packages": {Tag: tagTemplates,
		Summary: "List the packages that are installed in a template.",
		Answers: answers(200, carrel.TemplatePackages{})},
	"GET" + ours + "/templates/{name}/diff": {Tag: tagTemplates,
		Summary: "List the files that differ between two templates.",
		Query:   []openapi.Parameter{openapi.Require(openapi.String("to"))},
		Answers: answers(200, []carrel.FileChange{})},
	"GET" + ours + "/template-store/uses": {Tag: tagTemplates,
		Summary: "Count what lies on each image.", Answers: answers(200, []carrel.TemplateUse{})},
	"POST" + ours + "/template-store/gc": {Tag: tagTemplates, Summary: "Remove the caches of builds.",
		Body: strict(carrel.CollectOptions{}), Answers: answers(200, carrel.Collected{})},
}

// buildOperations describes our routes about builds.
var buildOperations = map[string]openapi.Operation{
	"POST" + ours + "/builds": {Tag: tagTemplates, Body: strict(carrel.BuildSpec{}),
		Answers: answers(202, carrel.Build{}),
		Summary: "Begin to build a template. With files, the request is a form: options, in JSON, and context, a tar stream."},
	"GET" + ours + "/builds": {Tag: tagTemplates,
		Summary: "List the builds of the project, newest first.",
		Query: []openapi.Parameter{openapi.String("template"), openapi.String("state"),
			openapi.Integer("limit")},
		Answers: answers(200, []carrel.Build{})},
	"GET" + ours + "/builds/{id}": {Tag: tagTemplates, Summary: "Tell about one build.",
		Answers: answers(200, carrel.Build{})},
	"POST" + ours + "/builds/{id}/cancel": {Tag: tagTemplates, Summary: "End a build.",
		Answers: answers(200, carrel.Build{})},
	"GET" + ours + "/builds/{id}/logs": {Tag: tagTemplates,
		Summary: "Read a build's log, one line a line.",
		Query: []openapi.Parameter{openapi.Integer("offset"), openapi.Integer("limit"),
			openapi.String("level"), openapi.Boolean("follow")},
		Media: openapi.Lines, Answers: answers(200, buildLogLine{})},
	"POST" + ours + "/template-tags": {Tag: tagTemplates,
		Summary: "Make tags of a template point to the build that the target has now.",
		Body:    strict(tagIn{}, "target", "tags"), Answers: answers(201, carrel.TemplateTag{})},
	"DELETE" + ours + "/template-tags": {Tag: tagTemplates, Summary: "Remove tags of a template.",
		Body: strict(untagIn{}, "name", "tags"), Answers: nothing()},
	"GET" + ours + "/templates/{name}/tags": {Tag: tagTemplates,
		Summary: "List the tags of a template.", Answers: answers(200, []carrel.TemplateTag{})},
}

// secretOperations describes our routes about secrets.
var secretOperations = map[string]openapi.Operation{
	"GET" + ours + "/secrets": {Tag: tagSecrets, Summary: "List the secrets of the project by name, without their values.", Answers: answers(200, []carrel.Secret{})},
	"POST" + ours + "/secrets": {Tag: tagSecrets, Summary: "Keep a new secret.", Body: strict(carrel.NewSecret{}, "name", "value"),
		Answers: answers(201, carrel.Secret{})},
	"GET" + ours + "/secrets/{secret}": {Tag: tagSecrets, Summary: "Tell about one secret, by its ID or name.", Answers: answers(200, carrel.Secret{})},
	"PUT" + ours + "/secrets/{secret}": {Tag: tagSecrets, Summary: "Replace a secret's value.", Body: strict(secretUpdateBody{}, "value"),
		Answers: answers(200, carrel.Secret{})},
	"DELETE" + ours + "/secrets/{secret}": {Tag: tagSecrets, Summary: "Remove a secret.", Answers: nothing()},
	"POST" + ours + "/secret-store/rekey": {Tag: tagSecrets, Summary: "Seal all secrets anew, with the given key or a random one. Administrators only.",
		Body: perhaps(rekeyIn{}), Answers: nothing()},
}

// daemonOperations describes our routes about the daemon itself.
var daemonOperations = map[string]openapi.Operation{
	"GET" + ours + "/version":   {Tag: tagDaemon, Summary: "Tell the daemon's version.", Answers: answers(200, versionBody{})},
	"GET" + ours + "/doctor":    {Tag: tagDaemon, Summary: "Tell which tiers work on this machine, and what the others need. Administrators only.", Answers: answers(200, []DriverReport{})},
	"GET" + ours + "/pool":      {Tag: tagDaemon, Summary: "Tell which sandboxes are kept ready. Administrators only.", Answers: answers(200, carrel.PoolStatus{})},
	"GET" + ours + "/unclaimed": {Tag: tagDaemon, Summary: "List snapshots and sandboxes that have no record. Administrators only.", Answers: answers(200, []carrel.Unclaimed{})},
	"POST" + ours + "/unclaimed/{id}/reclaim": {Tag: tagDaemon, Summary: "Make the record of a snapshot again, from what the snapshot says of itself. Administrators only.",
		Answers: nothing()},
	"DELETE" + ours + "/unclaimed/{id}": {Tag: tagDaemon, Summary: "Delete a snapshot's content, or end a sandbox, that has no record. Administrators only.", Answers: nothing()},
	"GET" + ours + "/admission":         {Tag: tagDaemon, Summary: "Tell how many creations start and wait, how many may, and what is free on the machine. Administrators only.", Answers: answers(200, admission.State{})},
	"GET" + ours + "/metrics":           {Tag: tagDaemon, Summary: "The same as /metrics.", Media: openapi.Text, Answers: answers(200, nil)},
	"GET /metrics":                      {Tag: tagDaemon, Summary: "Tell the daemon's figures to Prometheus, which sends the key as a bearer token. Administrators only.", Media: openapi.Text, Answers: answers(200, nil)},
	"GET" + ours + "/debug/pprof/{profile}": {Tag: tagDaemon, Summary: "Take a profile of the daemon. Only for administrators on its own machine.",
		Query: []openapi.Parameter{openapi.Integer("seconds"), openapi.String("gc"), openapi.String("debug")}, Media: openapi.Bytes, Answers: answers(200, nil)},
	"GET" + ours + "/events": {Tag: tagDaemon, Summary: "Follow what happens to sandboxes, one event a line.",
		Query: []openapi.Parameter{openapi.Integer("after")}, Media: openapi.Lines, Answers: answers(200, eventLine{})},
	"GET" + ours + "/usage": {Tag: tagDaemon, Summary: "Tell what was used, summed by the columns of by: project, key, template, tier, kind, sandbox, day, label:NAME.",
		Query: []openapi.Parameter{openapi.String("by"), openapi.Time("from"), openapi.Time("to"), openapi.String("project"), openapi.String("sandbox"), openapi.OneOf("format", "json", "csv")}, Answers: answers(200, carrel.UsageReport{})},
	"GET" + ours + "/audit": {Tag: tagDaemon, Summary: "Read the log of what left the sandboxes and what was refused, one decision a line.",
		Query: auditQuery, Media: openapi.Lines, Answers: answers(200, auditLine{})},
	"GET" + ours + "/sandboxes/{id}/audit": {Tag: tagDaemon, Summary: "Read the same log of one sandbox, also after its end.",
		Query: auditQuery, Media: openapi.Lines, Answers: answers(200, auditLine{})},
	"GET" + ours + "/trail": {Tag: tagDaemon, Summary: "Read the audit trail: what callers did, one record a line, as it was written. Needs a key with the scope admin, which sees its own project.",
		Query: trailQuery, Media: openapi.Lines, Answers: answers(200, carrel.TrailRecord{})},
	"GET" + ours + "/trail/verify": {Tag: tagDaemon, Summary: "Check the chain of hashes and the signatures of the audit trail. Administrators only.", Answers: answers(200, carrel.TrailReport{})},
	"GET" + ours + "/ssh-keys":     {Tag: tagDaemon, Summary: "List the keys that may open SSH sessions.", Answers: answers(200, []carrel.SSHKey{})},
	"POST" + ours + "/ssh-keys": {Tag: tagDaemon, Summary: "Let a key open SSH sessions.", Body: strict(sshKeyIn{}, "name", "publicKey"),
		Answers: answers(201, carrel.SSHKey{})},
	"DELETE" + ours + "/ssh-keys/{name}": {Tag: tagDaemon, Summary: "Take an SSH key's right away and end its sessions.", Answers: nothing()},
}

// auditQuery are the parameters of a request for the log of decisions.
var auditQuery = []openapi.Parameter{openapi.Time("since"), openapi.Time("until"), openapi.OneOf("verdict", "allowed", "denied"),
	openapi.String("host"), openapi.String("rule"), openapi.String("secret"), openapi.String("sandbox"), openapi.String("project"),
	openapi.Integer("after"), openapi.Integer("limit"), openapi.Boolean("follow")}

// trailQuery are the parameters of a request for the audit trail.
var trailQuery = []openapi.Parameter{openapi.String("project"), openapi.String("key"), openapi.String("kind"), openapi.String("op"),
	openapi.String("target"), openapi.Time("since"), openapi.Time("until"), openapi.Integer("after"), openapi.Integer("limit")}

// openOperations describes the routes that need no key. The daemon serves the documents about
// identity itself.
var openOperations = map[string]openapi.Operation{
	"GET /health":                           {Tag: tagDaemon, Summary: "Answer 204 once requests are served, and 503 before.", Open: true, Answers: map[int]any{204: nil, 503: nil}},
	"GET /healthz":                          {Tag: tagDaemon, Summary: "Answer 204 as long as the daemon answers at all.", Open: true, Answers: nothing()},
	"GET /readyz":                           {Tag: tagDaemon, Summary: "The same as /health.", Open: true, Answers: map[int]any{204: nil, 503: nil}},
	"GET " + DocumentPath:                   {Tag: tagDaemon, Summary: "Get this document.", Open: true, Answers: answers(200, map[string]any{})},
	"GET /.well-known/openid-configuration": {Tag: tagIdentity, Summary: "Tell where the keys are, as OpenID Connect has it.", Open: true, Answers: answers(200, map[string]any{})},
	"GET" + ours + "/identity/jwks":         {Tag: tagIdentity, Summary: "Get the public keys that identity tokens are verified with.", Open: true, Answers: answers(200, map[string]any{})},
	"GET" + ours + "/identity/bundle":       {Tag: tagIdentity, Summary: "Get the same keys as a SPIFFE bundle.", Open: true, Answers: answers(200, map[string]any{})},
	"POST" + ours + "/identity/introspect": {Tag: tagIdentity, Summary: "Ask whether an identity token is good, as RFC 7662 has it.",
		Body: &openapi.Body{Media: openapi.Form}, Answers: answers(200, map[string]any{})},
	"POST" + ours + "/login/device": {Tag: tagPeople, Open: true,
		Summary: "Begin the login of a command line, as RFC 8628 has it: client_id, device_name.",
		Body:    &openapi.Body{Media: openapi.Form}, Answers: answers(200, map[string]any{})},
	"POST" + ours + "/login/token": {Tag: tagPeople, Open: true,
		Summary: "Ask for the token of a login that a person confirmed: grant_type, device_code.",
		Body:    &openapi.Body{Media: openapi.Form},
		Answers: map[int]any{200: map[string]any{}, 400: map[string]any{}}},
	"POST" + ours + "/login/revoke": {Tag: tagPeople, Open: true,
		Summary: "End the session of a token, as RFC 7009 has it: token.",
		Body:    &openapi.Body{Media: openapi.Form}, Answers: answers(200, map[string]any{})},
}
