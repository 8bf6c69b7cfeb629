package api

import (
	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/openapi"
)

// peopleOperations describes our routes about projects and keys.
var peopleOperations = map[string]openapi.Operation{
	"GET" + ours + "/projects": {Tag: tagPeople, Summary: "List the projects that the key sees.",
		Answers: answers(200, []carrel.Project{})},
	"POST" + ours + "/projects": {Tag: tagPeople, Summary: "Make a project. Administrators only.",
		Body: strict(projectIn{}, "name"), Answers: answers(201, carrel.Project{})},
	"GET" + ours + "/projects/{name}": {Tag: tagPeople, Summary: "Tell about one project.",
		Answers: answers(200, carrel.Project{})},
	"DELETE" + ours + "/projects/{name}": {Tag: tagPeople,
		Summary: "Revoke a project's keys and remove it; 409 if it still owns something. Administrators only.",
		Answers: nothing()},
	"GET" + ours + "/keys": {Tag: tagPeople,
		Summary: "List the project's API keys, also those revoked lately. Needs the scope admin, as all that concerns keys.",
		Answers: answers(200, []carrel.APIKey{})},
	"POST" + ours + "/keys": {Tag: tagPeople, Summary: "Make an API key, with the quota and the ceiling that bind it. Only this answer has its secret.",
		Body: strict(newKeyIn{}, "name"), Answers: answers(201, carrel.IssuedKey{})},
	"GET" + ours + "/keys/{key}": {Tag: tagPeople, Summary: "Tell about one key, by its ID or name.",
		Answers: answers(200, carrel.APIKey{})},
	"PATCH" + ours + "/keys/{key}": {Tag: tagPeople, Summary: "Change a key's name, or when it expires.",
		Body: strict(keyUpdateIn{}), Answers: answers(200, carrel.APIKey{})},
	"POST" + ours + "/keys/{key}/rotate": {Tag: tagPeople,
		Summary: "Give a key another secret. The old one works for as long as overlap says.",
		Body:    perhaps(rotateIn{}), Answers: answers(200, carrel.IssuedKey{})},
	"DELETE" + ours + "/keys/{key}": {Tag: tagPeople,
		Summary: "Revoke a key, and cut the streams that it opened.", Answers: nothing()},
}

// e2bKeyOperations describes E2B's routes about keys.
var e2bKeyOperations = map[string]openapi.Operation{
	"GET /api-keys": {Tag: tagE2B, Summary: "List the team's API keys.", Answers: answers(200, []keyBody{})},
	"POST /api-keys": {Tag: tagE2B, Summary: "Make an API key. Only this answer has its secret.",
		Body: loose(keyNameBody{}, "name"), Answers: answers(201, createdKeyBody{})},
	"PATCH /api-keys/{apiKeyID}": {Tag: tagE2B, Summary: "Give an API key another name.",
		Body: loose(keyNameBody{}, "name"), Answers: map[int]any{200: nil}},
	"DELETE /api-keys/{apiKeyID}": {Tag: tagE2B, Summary: "Revoke an API key.", Answers: nothing()},
	"POST /access-tokens": {Tag: tagE2B, Summary: "Make an access token. Only this answer has it.",
		Body: loose(keyNameBody{}, "name"), Answers: answers(201, tokenBody{})},
	"DELETE /access-tokens/{accessTokenID}": {Tag: tagE2B, Summary: "Revoke an access token.", Answers: nothing()},
}

// allowanceOperations describes our routes about quotas, ceilings and budgets.
var allowanceOperations = map[string]openapi.Operation{
	"GET" + ours + "/quota": {Tag: tagPeople, Summary: "Tell the quotas that bind the key itself, and what is used of them: its project's, and its own.",
		Answers: answers(200, []carrel.QuotaReport{})},
	"PUT" + ours + "/quota": {Tag: tagPeople,
		Summary: "Replace the quota of a project (administrators of the machine only) or of one of its keys. Without limits it is removed.",
		Body:    strict(quotaIn{}), Answers: answers(200, carrel.QuotaReport{})},
	"GET" + ours + "/quotas": {Tag: tagPeople, Summary: "List the quotas that the key sees.",
		Answers: answers(200, []carrel.QuotaReport{})},
	"GET" + ours + "/ceilings": {Tag: tagPeople, Summary: "List the ceilings that the key sees.",
		Answers: answers(200, []carrel.CeilingOf{})},
	"PUT" + ours + "/ceiling": {Tag: tagPeople,
		Summary: "Replace the ceiling of a project (administrators of the machine only) or of one of its keys. Without bounds it is removed.",
		Body:    strict(ceilingIn{}), Answers: answers(200, carrel.CeilingOf{})},
	"GET" + ours + "/budgets": {Tag: tagPeople, Summary: "List the budgets that the key sees, and what is spent of them.",
		Answers: answers(200, []carrel.BudgetStatus{})},
	"PUT" + ours + "/budgets/{name}": {Tag: tagPeople, Summary: "Make or replace a budget. Administrators of the machine only.",
		Body: strict(budgetIn{}, "amount"), Answers: answers(200, carrel.BudgetStatus{})},
	"DELETE" + ours + "/budgets/{name}": {Tag: tagPeople, Summary: "Remove a budget. Administrators of the machine only.",
		Query: []openapi.Parameter{openapi.String("project")}, Answers: nothing()},
}

// whereQuery are the parameters that say where a member is.
func whereQuery() []openapi.Parameter {
	return []openapi.Parameter{openapi.String("project"), openapi.String("organisation")}
}

// personOperations describes our routes about people, members and organisations.
var personOperations = map[string]openapi.Operation{
	"GET" + ours + "/whoami": {Tag: tagPeople, Summary: "Tell who asks, and in which projects a person may act.",
		Answers: answers(200, carrel.Self{})},
	"GET" + ours + "/people": {Tag: tagPeople, Summary: "List the people. Administrators of the machine only.",
		Answers: answers(200, []carrel.Person{})},
	"POST" + ours + "/people": {Tag: tagPeople,
		Summary: "Make a person. Only this answer has a password that was made. Administrators of the machine only.",
		Body:    strict(newPersonIn{}, "name"), Answers: answers(201, carrel.IssuedPerson{})},
	"GET" + ours + "/people/{person}": {Tag: tagPeople,
		Summary: "Tell about one person, by ID or name: administrators of the machine, and everybody about the own one.",
		Answers: answers(200, carrel.Person{})},
	"PATCH" + ours + "/people/{person}": {Tag: tagPeople,
		Summary: "Disable or enable a person, or change the address. Disabling cuts sessions and streams. Administrators of the machine only.",
		Body:    strict(personUpdateIn{}), Answers: answers(200, carrel.Person{})},
	"DELETE" + ours + "/people/{person}": {Tag: tagPeople,
		Summary: "Remove a person, with all sessions and rights. Administrators of the machine only.", Answers: nothing()},
	"PUT" + ours + "/people/{person}/password": {Tag: tagPeople,
		Summary: "Give a person another password, and end the other sessions. The own one needs the old password.",
		Body:    perhaps(passwordIn{}), Answers: answers(200, carrel.IssuedPerson{})},
	"GET" + ours + "/members": {Tag: tagPeople, Query: whereQuery(),
		Summary: "List who may act in a project, also by an organisation or a group; or the members of an organisation. Needs the scope admin.",
		Answers: answers(200, []carrel.Member{})},
	"PUT" + ours + "/members/{person}": {Tag: tagPeople,
		Summary: "Let a person act in a project, or in those of an organisation (administrators of the machine only). Needs the scope admin.",
		Body:    perhaps(memberIn{}), Answers: answers(200, carrel.Member{})},
	"DELETE" + ours + "/members/{person}": {Tag: tagPeople, Query: whereQuery(),
		Summary: "Take a right away, and cut the streams that it opened. Needs the scope admin.", Answers: nothing()},
	"GET" + ours + "/organisations": {Tag: tagPeople, Summary: "List the organisations. Administrators of the machine only.",
		Answers: answers(200, []carrel.Organisation{})},
	"POST" + ours + "/organisations": {Tag: tagPeople, Summary: "Make an organisation. Administrators of the machine only.",
		Body: strict(projectIn{}, "name"), Answers: answers(201, carrel.Organisation{})},
	"PUT" + ours + "/organisations/{name}": {Tag: tagPeople, Summary: "Replace the projects of an organisation. Administrators of the machine only.",
		Body: strict(organisationIn{}, "projects"), Answers: answers(200, carrel.Organisation{})},
	"DELETE" + ours + "/organisations/{name}": {Tag: tagPeople, Summary: "Remove an organisation; its projects stay. Administrators of the machine only.",
		Answers: nothing()},
}
