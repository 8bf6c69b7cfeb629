package api

import "github.com/carrel-dev/carrel/internal/openapi"

// pages are the parameters of E2B's lists that come in pages.
var pages = []openapi.Parameter{openapi.Integer("limit"), openapi.String("nextToken")}

// e2bOperations describes E2B's routes about sandboxes.
var e2bOperations = map[string]openapi.Operation{
	"POST /sandboxes": {Tag: tagE2B, Summary: "Make a sandbox. It lives 15 seconds unless a timeout is given.", Deprecated: true,
		Body: loose(createBody{}, "templateID"), Answers: answers(201, sandboxBody{})},
	"POST /v2/sandboxes": {Tag: tagE2B, Summary: "Make a sandbox. It lives 300 seconds unless a timeout is given.",
		Body: loose(createBody{}, "templateID"), Answers: answers(201, sandboxBody{})},
	"GET /sandboxes": {Tag: tagE2B, Summary: "List all running sandboxes.", Deprecated: true,
		Query: []openapi.Parameter{openapi.String("metadata")}, Answers: answers(200, []listedBody{})},
	"GET /v2/sandboxes": {Tag: tagE2B, Summary: "List running and paused sandboxes, page by page. X-Next-Token has the next page.",
		Query: append([]openapi.Parameter{openapi.String("metadata"), openapi.String("state"), openapi.String("template"),
			openapi.Time("startedAfter"), openapi.OneOf("order", "asc", "desc")}, pages...), Answers: answers(200, []listedBody{})},
	"GET /sandboxes/metrics": {Tag: tagE2B, Summary: "Tell the newest measurement of each sandbox that is named.",
		Query: []openapi.Parameter{openapi.Require(openapi.String("sandbox_ids"))}, Answers: answers(200, metricsBody{})},
	"GET /sandboxes/{id}":    {Tag: tagE2B, Summary: "Tell everything about one sandbox.", Answers: answers(200, detailBody{})},
	"DELETE /sandboxes/{id}": {Tag: tagE2B, Summary: "End a sandbox and forget its state.", Answers: nothing()},
	"POST /sandboxes/{id}/connect": {Tag: tagE2B, Summary: "Connect to a sandbox: 200 if it ran, 201 if it was paused and is resumed.", Deprecated: true,
		Body: loose(resumeBody{}, "timeout"), Answers: map[int]any{200: sandboxBody{}, 201: sandboxBody{}}},
	"POST /v2/sandboxes/{id}/connect": {Tag: tagE2B, Summary: "Connect to a sandbox: 200 if it ran, 201 if it was paused and is resumed.",
		Body: looseOptional(resumeBody{}), Answers: map[int]any{200: sandboxBody{}, 201: sandboxBody{}}},
	"POST /sandboxes/{id}/timeout": {Tag: tagE2B, Summary: "Say how many seconds a sandbox lives from now on.",
		Body: loose(timeoutBody{}, "timeout"), Answers: nothing()},
	"POST /sandboxes/{id}/refreshes": {Tag: tagE2B, Summary: "Let a sandbox live for so many seconds at least.",
		Body: looseOptional(refreshBody{}), Answers: nothing()},
	"POST /sandboxes/{id}/pause": {Tag: tagE2B, Summary: "Keep a sandbox's state and stop it; 409 if it is paused already.",
		Body: looseOptional(pauseBody{}), Answers: nothing()},
	"POST /sandboxes/{id}/resume": {Tag: tagE2B, Summary: "Let a paused sandbox run on; 409 if it runs.", Deprecated: true,
		Body: looseOptional(resumeBody{}), Answers: answers(201, sandboxBody{})},
	"POST /sandboxes/{id}/fork": {Tag: tagE2B, Summary: "Make copies of a sandbox that go on from its present moment.",
		Body: looseOptional(newForkBody{}), Answers: answers(201, []forkBody{})},
	"POST /sandboxes/{id}/snapshots": {Tag: tagE2B, Summary: "Keep a sandbox's present moment, from which others can be made.",
		Body: looseOptional(newSnapshotBody{}), Answers: answers(201, snapshotBody{})},
	"GET /snapshots": {Tag: tagE2B, Summary: "List the snapshots that somebody asked for, newest first.",
		Query: append([]openapi.Parameter{openapi.String("sandboxID"), openapi.String("name")}, pages...), Answers: answers(200, []snapshotBody{})},
	"PUT /sandboxes/{id}/network": {Tag: tagE2B, Summary: "Replace the rules for what may leave a sandbox.",
		Body: looseOptional(networkBody{}), Answers: nothing()},
	"GET /sandboxes/{id}/metrics": {Tag: tagE2B, Summary: "Tell what a sandbox used; start and end are seconds since 1970.",
		Query: []openapi.Parameter{openapi.Integer("start"), openapi.Integer("end")}, Answers: answers(200, []metricBody{})},
	"GET /sandboxes/{id}/logs": {Tag: tagE2B, Summary: "Tell what happened to a sandbox; start is milliseconds since 1970.", Deprecated: true,
		Query: []openapi.Parameter{openapi.Integer("limit"), openapi.Integer("start")}, Answers: answers(200, logsBody{})},
	"GET /v2/sandboxes/{id}/logs": {Tag: tagE2B, Summary: "Tell what happened to a sandbox, from a cursor on in either direction.",
		Query: []openapi.Parameter{openapi.Integer("limit"), openapi.Integer("cursor"), openapi.OneOf("level", logLevels...),
			openapi.OneOf("direction", "forward", "backward"), openapi.String("search")}, Answers: answers(200, logsBodyV2{})},
}

// e2bOtherOperations describes E2B's routes about templates, secrets and teams.
var e2bOtherOperations = map[string]openapi.Operation{
	"GET /templates":      {Tag: tagE2B, Summary: "List the templates.", Deprecated: true, Answers: answers(200, []templateBody{})},
	"GET /v2/templates":   {Tag: tagE2B, Summary: "List the templates.", Answers: answers(200, []templateBody{})},
	"GET /templates/{id}": {Tag: tagE2B, Summary: "Tell everything about one template.", Answers: answers(200, templateDetail{})},
	"DELETE /templates/{id}": {Tag: tagE2B, Summary: "Remove a template, or the snapshot of that name if no template has it.",
		Answers: nothing()},
	"GET /templates/aliases/{alias}": {Tag: tagE2B, Summary: "Tell which template a name means.", Answers: answers(200, aliasBody{})},
	"GET /teams":                     {Tag: tagE2B, Summary: "List the one team that there is: whoever holds the key.", Answers: answers(200, []teamBody{})},
	"GET /secrets": {Tag: tagE2B, Summary: "List the secrets by name, without their values.", Query: pages,
		Answers: answers(200, []secretBody{})},
	"POST /secrets": {Tag: tagE2B, Summary: "Keep a new secret.", Body: loose(newSecretBody{}, "name", "value"),
		Answers: answers(201, secretBody{})},
	"GET /secrets/{secretID}": {Tag: tagE2B, Summary: "Tell about one secret, by its ID or name.", Answers: answers(200, secretBody{})},
	"POST /secrets/{secretID}": {Tag: tagE2B, Summary: "Replace a secret's value.", Body: loose(secretUpdateBody{}, "value"),
		Answers: answers(200, secretBody{})},
	"DELETE /secrets/{secretID}": {Tag: tagE2B, Summary: "Remove a secret.", Answers: nothing()},
}
